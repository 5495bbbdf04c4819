//! `${…}` in a text: where each expression begins and ends.

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// The text between `${` and `}`.
    Expression(&'a str),
}

/// The text's parts in their order; an error when a `${` is never closed. There is no way to escape `${`
/// other than an expression that says it, such as `${'$'}{`.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Unclosed> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if start > 0 {
            pieces.push(Piece::Text(&rest[..start]));
        }
        let inside = &rest[start + 2..];
        let end = end_of_expression(inside).ok_or(Unclosed(offset(text, rest) + start))?;
        pieces.push(Piece::Expression(&inside[..end]));
        rest = &inside[end + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// A `${` without its `}`, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unclosed(pub usize);

/// The place of a part in the text that it was cut from.
pub(crate) fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Whether a text holds an expression at all.
pub(crate) fn is_template(text: &str) -> bool {
    text.contains("${")
}

/// The expression, when the text is exactly one `${…}`.
pub(crate) fn sole_expression(text: &str) -> Option<&str> {
    match pieces(text).ok()?.as_slice() {
        [Piece::Expression(expression)] => Some(expression),
        _ => None,
    }
}

/// The place of the `}` that closes the expression: not one of a map, nor one inside a string.
fn end_of_expression(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        match byte {
            b'"' | b'\'' => {
                let raw = i.checked_sub(1).is_some_and(|before| is_raw_prefix(&bytes[..=before]));
                i = end_of_string(bytes, i, raw)?;
                continue;
            }
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(i),
            b'}' => depth -= 1,
            _ => {}
        }
        i += 1;
    }
    None
}

/// Whether the string that follows is raw: `r'…'`, or `br'…'`; not `bar'…'`.
fn is_raw_prefix(before: &[u8]) -> bool {
    let word = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let word = &before[before.len() - word..];
    word.len() <= 2 && word.iter().any(|byte| matches!(byte, b'r' | b'R'))
}

/// The place after the string that begins at `start`.
pub(super) fn end_of_string(bytes: &[u8], start: usize, raw: bool) -> Option<usize> {
    let quote = *bytes.get(start)?;
    let three = [quote; 3];
    let closing: &[u8] = if bytes[start..].starts_with(&three) { &three } else { &three[..1] };
    let mut i = start + closing.len();
    while i < bytes.len() {
        if bytes[i] == b'\\' && !raw {
            i += 2;
        } else if bytes[i..].starts_with(closing) {
            return Some(i + closing.len());
        } else {
            i += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use Piece::{Expression, Text};

    #[test]
    fn a_text_is_split_where_its_expressions_are() {
        let cases: &[(&str, &[Piece<'_>])] = &[
            ("", &[]),
            ("plain $ {text}", &[Text("plain $ {text}")]),
            ("${input}", &[Expression("input")]),
            ("a ${b} c ${d}", &[Text("a "), Expression("b"), Text(" c "), Expression("d")]),
            ("${ {'a': {'b': 1}} }!", &[Expression(" {'a': {'b': 1}} "), Text("!")]),
            ("${'}'}", &[Expression("'}'")]),
            (r#"${"\"}" + '\'}'}"#, &[Expression(r#""\"}" + '\'}'"#)]),
            (r"${r'\'}", &[Expression(r"r'\'")]),
            (r#"${"""a"}"b"""}"#, &[Expression(r#""""a"}"b""""#)]),
            ("$${x}", &[Text("$"), Expression("x")]),
            ("${'${'}x", &[Expression("'${'"), Text("x")]),
            ("é${é}é", &[Text("é"), Expression("é"), Text("é")]),
        ];
        for (text, expected) in cases {
            assert_eq!(pieces(text).as_deref(), Ok(*expected), "{text}");
        }
        for (text, at) in [("${", 0), ("a ${b", 2), ("${a} ${'}", 5), ("${{}", 0), (r"${'\'}", 0), ("${\"\"\"}", 0)] {
            assert_eq!(pieces(text), Err(Unclosed(at)), "{text}");
        }
    }

    #[test]
    fn only_a_text_that_is_one_expression_keeps_its_type() {
        assert_eq!(sole_expression("${input.n}"), Some("input.n"));
        for text in [" ${input.n}", "${a}${b}", "x", "", "${"] {
            assert_eq!(sole_expression(text), None, "{text}");
        }
    }
}
