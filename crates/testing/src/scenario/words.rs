//! Lines as words. A word in double quotes may hold anything, with `\"`, `\\` and `\u{…}` inside; the
//! comma after a bare word is for the reader. A word that begins with a brace or a bracket goes on to the
//! last one.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub quoted: bool,
}

pub fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = vec![];
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => {
                let (text, after) = quoted(&rest[1..])?;
                (Word { text, quoted: true }, after)
            }
            '{' => {
                let end = rest.rfind('}').ok_or("a body ends with a brace")? + 1;
                (Word { text: rest[..end].to_owned(), quoted: true }, &rest[end..])
            }
            '[' => {
                let end = rest.rfind(']').ok_or("a list ends with a bracket")? + 1;
                (Word { text: rest[..end].to_owned(), quoted: true }, &rest[end..])
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let text = rest[..end].trim_end_matches(',').to_owned();
                (Word { text, quoted: false }, &rest[end..])
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// The text up to the closing quote, and what comes after it.
fn quoted(line: &str) -> Result<(String, &str), String> {
    let mut text = String::new();
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((text, line[at + 1..].trim_start_matches(','))),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => text.push(c),
                Some((_, 'u')) => {
                    let hex: String =
                        chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').filter(|c| *c != '{').collect();
                    let character = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                    text.push(character.ok_or_else(|| format!("`\\u{{{hex}}}` is no character"))?);
                }
                other => return Err(format!("`\\{}` means nothing", other.map_or(' ', |(_, c)| c))),
            },
            c => text.push(c),
        }
    }
    Err("a quoted word does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split(line).unwrap().into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_are_bare_quoted_or_a_body() {
        assert_eq!(
            texts("  qa fires  B -> approved, chain Pending"),
            ["qa", "fires", "B", "->", "approved", "chain", "Pending"]
        );
        assert_eq!(texts(r#"x "" "a \"b\" \\" "\u{200B}", y"#), ["x", "", "a \"b\" \\", "\u{200B}", "y"]);
        assert_eq!(
            texts(r#"posts /p {"a": {"b": "c -> d"}} -> ok"#),
            ["posts", "/p", r#"{"a": {"b": "c -> d"}}"#, "->", "ok"]
        );
        for bad in ["\"open", r#""\n""#, r#""\u{110000}""#, "{ open"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
