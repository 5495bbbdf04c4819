//! Lines as words. A word in double quotes may hold anything, with `\"`, `\\` and `\u{…}` inside; the
//! comma after a bare word is for the reader.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub quoted: bool,
}

pub fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = vec![];
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.peek().copied() {
        if c.is_whitespace() {
            chars.next();
        } else if c == '"' {
            chars.next();
            words.push(Word { text: quoted(&mut chars)?, quoted: true });
        } else if c == '{' {
            // The body of a request: JSON to the last brace.
            let rest: String = chars.by_ref().collect();
            let end = rest.rfind('}').ok_or("a body ends with a brace")?;
            words.push(Word { text: rest[..=end].to_owned(), quoted: true });
            chars = rest[end + 1..].to_owned().chars().collect::<Vec<_>>().into_iter().collect::<String>().leak().chars().peekable();
        } else {
            let mut text = String::new();
            while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                text.push(c);
            }
            if text.ends_with(',') {
                text.pop();
            }
            words.push(Word { text, quoted: false });
        }
    }
    Ok(words)
}

fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next().ok_or("a quoted word does not end")? {
            '"' => return Ok(text),
            '\\' => match chars.next() {
                Some(c @ ('"' | '\\')) => text.push(c),
                Some('u') => text.push(escape(chars)?),
                other => return Err(format!("`\\{}` means nothing", other.unwrap_or(' '))),
            },
            c => text.push(c),
        }
    }
}

fn escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char, String> {
    let hex: String = chars.by_ref().take_while(|c| *c != '}').filter(|c| *c != '{').collect();
    let code = u32::from_str_radix(&hex, 16).map_err(|_| format!("`{hex}` is no code point"))?;
    char::from_u32(code).ok_or_else(|| format!("`{hex}` is no character"))
}
