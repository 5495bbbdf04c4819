//! Explains what is wrong with a text that is not an expression, for its author and at its place. The parser has
//! already refused the text; this module looks for the likely mistakes, from left to right.

use super::tokens::{Kind, Token, tokens};
use crate::problem::quoted;
use std::ops::Range;

/// Where, and what.
pub(super) type Fault = (Range<usize>, String);

/// Words of other languages, and their equivalents here.
const FOREIGN: &[(&str, &str)] = &[
    ("and", "&&"),
    ("AND", "&&"),
    ("or", "||"),
    ("OR", "||"),
    ("is", "=="),
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("gt", ">"),
    ("le", "<="),
    ("ge", ">="),
    ("=", "=="),
    ("===", "=="),
    ("!==", "!="),
    ("<>", "!="),
    ("&", "&&"),
    ("|", "||"),
];
const BINARY: &[&str] = &["==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "in"];
/// Names that cannot follow a dot.
const RESERVED: &[&str] = &["in", "true", "false", "null"];

/// The first slip; none where the text has none of those that are known here.
pub(super) fn fault(text: &str) -> Option<Fault> {
    let tokens = tokens(text);
    let mut reading = Reading { text, tokens: &tokens, open: vec![Level::default()], after_value: false };
    let mut i = 0;
    while i < tokens.len() {
        i = match reading.token(i) {
            Ok(next) => next,
            Err(fault) => return Some(fault),
        };
    }
    reading.end().err()
}

/// What is open: the text itself, then a bracket inside of it.
#[derive(Default)]
struct Level {
    bracket: &'static str,
    start: usize,
    is_call: bool,
    /// Where the conditions stand whose `:` has not come yet.
    questions: Vec<usize>,
    /// Whether the entry of a map has had its `:`.
    keyed: bool,
}

struct Reading<'t> {
    text: &'t str,
    tokens: &'t [Token<'t>],
    open: Vec<Level>,
    /// Whether a value has ended, so that only an operator can follow.
    after_value: bool,
}

impl Reading<'_> {
    /// Reads one token, or those that belong together; gives the next.
    fn token(&mut self, i: usize) -> Result<usize, Fault> {
        let token = self.tokens[i];
        if let Some(fault) = self.stranger(i) {
            return Err(fault);
        }
        match (token.kind, token.text) {
            (Kind::Mark, "(" | "[" | "{") => self.bracket(i)?,
            (Kind::Mark, ")" | "]" | "}") => self.close(i)?,
            (Kind::Mark, ".") if self.after_value => return self.selection(i),
            (Kind::Mark, ",") => self.comma(token)?,
            (Kind::Mark, "?") => {
                self.need_value(token)?;
                self.level().questions.push(token.start);
            }
            (Kind::Mark, ":") => self.colon(token)?,
            (Kind::Mark, "-" | "!" | ".") if !self.after_value => {}
            (_, text) if BINARY.contains(&text) && token.kind != Kind::Text => self.need_value(token)?,
            (Kind::Mark, _) => {
                return Err((token.span(), format!("an operator is missing before {}", quoted(token.text))));
            }
            _ if self.after_value => return Err(side_by_side(token)),
            _ => self.after_value = true,
        }
        Ok(i + 1)
    }

    fn level(&mut self) -> &mut Level {
        // The text itself is never closed.
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// What no expression holds, and words that mean nothing here though they do elsewhere.
    fn stranger(&self, i: usize) -> Option<Fault> {
        let token = self.tokens[i];
        let called = self.tokens.get(i + 1).is_some_and(|next| next.is("("));
        let meant = FOREIGN.iter().find(|(foreign, _)| *foreign == token.text).map(|(_, meant)| *meant);
        let message = match (token.kind, token.text) {
            (Kind::Name, "not") if !self.after_value && !called => "write `!` instead of `not`".to_owned(),
            (Kind::Name, "not") if self.after_value => "write `!(… in …)`: the `!` stands before all of it".to_owned(),
            (Kind::Name, _) if self.after_value && !called => format!("did you mean `{}`?", meant?),
            (Kind::Unclosed, _) => {
                return Some((token.start..token.start + 1, "this quotation is never closed".to_owned()));
            }
            (Kind::Stranger, "=") => "one `=` does not compare; did you mean `==`?".to_owned(),
            (Kind::Stranger, "$") => "inside of `${…}` a name stands alone, without `$`".to_owned(),
            (Kind::Stranger, "“" | "”" | "„" | "‘" | "’") => "write straight quotes, `'` or `\"`".to_owned(),
            (Kind::Stranger, "??") => "write `has(…) ? … : …` for a value that may be missing".to_owned(),
            (Kind::Stranger, text) => match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("{} cannot stand in an expression", quoted(text)),
            },
            _ => return None,
        };
        Some((token.span(), message))
    }

    fn bracket(&mut self, i: usize) -> Result<(), Fault> {
        let token = self.tokens[i];
        let is_call = self.after_value && token.is("(");
        let named = i.checked_sub(1).is_some_and(|before| self.tokens[before].kind == Kind::Name);
        let fits = !self.after_value || token.is("[") || named;
        if !fits {
            return Err(side_by_side(token));
        }
        let bracket = match token.text {
            "(" => ")",
            "[" => "]",
            _ => "}",
        };
        self.open.push(Level { bracket, start: token.start, is_call, ..Level::default() });
        self.after_value = false;
        Ok(())
    }

    fn close(&mut self, i: usize) -> Result<(), Fault> {
        let token = self.tokens[i];
        let level = &self.open[self.open.len() - 1];
        let opener = self.text.get(level.start..level.start + 1).unwrap_or_default();
        if level.bracket.is_empty() {
            return Err((token.span(), format!("this `{}` closes nothing", token.text)));
        }
        if level.bracket != token.text {
            let message = format!("this `{}` does not close the `{opener}` that is open", token.text);
            return Err((token.span(), message));
        }
        let before = self.tokens[i - 1];
        let empty = before.start == level.start;
        let may_be_empty = level.is_call || token.text != ")";
        let after_comma = before.is(",") && !level.is_call;
        let may_close = self.after_value || after_comma || (empty && may_be_empty);
        if !may_close {
            return Err((token.span(), missing_before(token)));
        }
        self.complete()?;
        if token.is("}") && self.after_value && !self.level().keyed {
            return Err(self.no_map(i));
        }
        self.open.pop();
        self.after_value = true;
        Ok(())
    }

    /// `{x}`, where a map has `{'x': 1}`; most often one pair of braces too many.
    fn no_map(&self, i: usize) -> Fault {
        let level = &self.open[self.open.len() - 1];
        let around = level.start == self.tokens[0].start && i + 1 == self.tokens.len();
        let message = match around {
            true => {
                let inside = self.text[level.start + 1..self.tokens[i].start].trim();
                format!("one pair of braces is enough: `${{{inside}}}`")
            }
            false => "a map is written with its keys: `{'key': value}`".to_owned(),
        };
        (level.start..level.start + 1, message)
    }

    /// Whether each condition at this level has had its `:`.
    fn complete(&mut self) -> Result<(), Fault> {
        match self.level().questions.pop() {
            Some(start) => Err((start..start + 1, "a `?` needs a `:` and a second value".to_owned())),
            None => Ok(()),
        }
    }

    fn comma(&mut self, token: Token<'_>) -> Result<(), Fault> {
        self.need_value(token)?;
        self.complete()?;
        if self.level().bracket.is_empty() {
            return Err((token.span(), "a `,` stands between brackets only".to_owned()));
        }
        self.level().keyed = false;
        Ok(())
    }

    fn colon(&mut self, token: Token<'_>) -> Result<(), Fault> {
        self.need_value(token)?;
        let level = self.level();
        if level.questions.pop().is_some() {
            return Ok(());
        }
        if level.bracket != "}" || level.keyed {
            return Err((token.span(), "a `:` needs a `?` before it".to_owned()));
        }
        level.keyed = true;
        Ok(())
    }

    /// `.name`, after a value.
    fn selection(&mut self, i: usize) -> Result<usize, Fault> {
        let dot = self.tokens[i];
        match self.tokens.get(i + 1) {
            Some(name) if name.kind == Kind::Name && !RESERVED.contains(&name.text) => Ok(i + 2),
            Some(name) if name.kind == Kind::Name => {
                let message = format!("{} has a meaning of its own; write `[\"{}\"]`", quoted(name.text), name.text);
                Err((name.span(), message))
            }
            Some(number) if number.kind == Kind::Number => {
                let index = number.text.bytes().all(|byte| byte.is_ascii_digit());
                let written = if index { number.text.to_owned() } else { format!("\"{}\"", number.text) };
                Err((number.span(), format!("a name does not begin with a digit; write `[{written}]`")))
            }
            _ => Err((dot.span(), "a name is missing after the `.`".to_owned())),
        }
    }

    fn need_value(&mut self, token: Token<'_>) -> Result<(), Fault> {
        if !self.after_value {
            return Err((token.span(), missing_before(token)));
        }
        self.after_value = false;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        if let Some(level) = self.open.iter().skip(1).next_back() {
            let message = format!("this `{}` is never closed", &self.text[level.start..level.start + 1]);
            return Err((level.start..level.start + 1, message));
        }
        match self.tokens.last() {
            Some(last) if !self.after_value => {
                Err((last.span(), format!("a value is missing after {}", quoted(last.text))))
            }
            _ => self.complete(),
        }
    }
}

fn missing_before(token: Token<'_>) -> String {
    format!("a value is missing before {}", quoted(token.text))
}

fn side_by_side(token: Token<'_>) -> Fault {
    (token.span(), format!("an operator is missing before {}", quoted(token.text)))
}

/// The name with dashes that was cut into pieces at `piece`, if so: what stands before its dot, and where the name does. CEL
/// takes the dash for a minus.
pub(crate) fn dashed<'t>(text: &'t str, piece: &Range<usize>) -> Option<(&'t str, Range<usize>)> {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let start = piece.start - text[..piece.start].chars().rev().take_while(|c| of_name(*c)).count();
    let end = piece.end + text[piece.end..].chars().take_while(|c| of_name(*c)).count();
    let name = text[start..end].trim_end_matches('-');
    let before = text[..start].strip_suffix('.')?;
    let path = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').map_or(0, |i| i + 1);
    let path = before.get(path..).filter(|path| !path.is_empty())?;
    name.contains('-').then(|| (path, start..start + name.len()))
}

/// Where a quotation begins that never ends, in what stands between `${` and the end of a value.
pub(crate) fn unclosed_quotation(text: &str) -> Option<usize> {
    tokens(text).iter().find(|token| token.kind == Kind::Unclosed).map(|token| token.start)
}

/// The place of an unbound name that is not a field of something else. `called`: where it is called.
pub(crate) fn place_of(text: &str, name: &str, called: bool) -> Range<usize> {
    let tokens = tokens(text);
    let found = tokens.iter().enumerate().find(|(i, token)| {
        let selected = i.checked_sub(1).is_some_and(|before| tokens[before].is("."));
        let calls = tokens.get(i + 1).is_some_and(|next| next.is("("));
        token.is(name) && calls == called && (called || !selected)
    });
    found.map_or(0..text.len(), |(_, token)| token.span())
}

/// Where an expression names this step or pin: `steps.NAME` or `steps["NAME"]`.
pub(crate) fn place_of_named(text: &str, variable: &str, name: &str) -> Option<Range<usize>> {
    let tokens = tokens(text);
    tokens.windows(3).find_map(|three| {
        let [owner, mark, named] = three else { return None };
        let written = named.text.trim_matches(['"', '\'']);
        (owner.is(variable) && (mark.is(".") || mark.is("[")) && written == name).then(|| named.span())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_at_its_place() {
        for (text, part, message) in [
            ("input.x = 3", "=", "one `=` does not compare; did you mean `==`?"),
            ("input.x === 3", "===", "did you mean `==`?"),
            ("input.x == && 3", "&&", "a value is missing before `&&`"),
            ("input.a and input.b", "and", "did you mean `&&`?"),
            ("input.a & input.b", "&", "did you mean `&&`?"),
            ("not input.a", "not", "write `!` instead of `not`"),
            ("input.", ".", "a name is missing after the `.`"),
            ("1 +", "+", "a value is missing after `+`"),
            ("(input.a", "(", "this `(` is never closed"),
            ("input.a)", ")", "this `)` closes nothing"),
            ("[1, 2)", ")", "this `)` does not close the `[` that is open"),
            ("input.x == 'free", "'", "this quotation is never closed"),
            ("input.x == “free”", "“", "write straight quotes, `'` or `\"`"),
            ("{ input.x }", "{", "one pair of braces is enough: `${input.x}`"),
            ("$input.x", "$", "inside of `${…}` a name stands alone, without `$`"),
            ("input.a ? 1", "?", "a `?` needs a `:` and a second value"),
            ("input.a 'b'", "'b'", "an operator is missing before `'b'`"),
            ("input.in", "in", "`in` has a meaning of its own; write `[\"in\"]`"),
            ("input.items.0", "0", "a name does not begin with a digit; write `[0]`"),
            ("size(input.a, )", ")", "a value is missing before `)`"),
            ("input.a, input.b", ",", "a `,` stands between brackets only"),
            ("input.a ?? 1", "??", "write `has(…) ? … : …` for a value that may be missing"),
        ] {
            let (place, told) = fault(text).unwrap_or_else(|| panic!("{text}: nothing"));
            assert_eq!((&text[place], told.as_str()), (part, message), "{text}");
        }
    }

    #[test]
    fn a_sound_expression_has_no_slip() {
        for text in [
            "input.plan != 'free' && !(input.n in [1, 2, ])",
            "{'a': {'b': 1}, 'c': input.x ? -1 : 2}['a']",
            "input.items.filter(i, i.price > 10.5e+3).map(i, i.name)[0]",
            "steps[\"a-b\"].output.x ? {} : {'x': []}",
            "has(input.x) ? r'\\d' + b'x' : \"\"\"a\"b\"\"\" // why",
            "type(input) == map",
            "size('') == 0",
        ] {
            assert_eq!(fault(text), None, "{text}");
        }
    }

    #[test]
    fn a_dashed_name_is_recognised_by_its_pieces() {
        let of = |text: &'static str, piece: &str| {
            let start = text.rfind(piece).unwrap();
            dashed(text, &(start..start + piece.len())).map(|(path, name)| (path, &text[name]))
        };
        assert_eq!(of("steps.a-b.output", "b"), Some(("steps", "a-b")));
        assert_eq!(of("1 + input.order-line-id", "line"), Some(("input", "order-line-id")));
        assert_eq!(of("input.total - tax", "tax"), None);
        assert_eq!(of("a-b", "b"), None);
    }
}
