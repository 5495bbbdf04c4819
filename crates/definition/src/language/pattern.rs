//! Regular expressions, weighed before anything is compiled. Matching takes time in proportion to the text and to the
//! positions of the pattern with its repetitions written out, so both are bounded and paid for.

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// How many places a pattern may have with its repetitions written out: `[a-z]{1,64}` has 64.
pub(crate) const MAX_POSITIONS: u64 = 4096;
/// The same for the ranges of its classes: `\w` has some hundred.
const MAX_RANGES: u64 = 64 << 10;
const MAX_NESTING: u32 = 64;
pub(crate) const MAX_COMPILED_BYTES: usize = 2 << 20;
/// What a pattern may remember while it matches. More is faster for strange patterns, and each keeps it.
pub(crate) const MAX_DFA_BYTES: usize = 256 << 10;

/// What compiling a pattern costs, whatever is in it, and for each position and range.
const COMPILING: u64 = 4096;
const COMPILING_EACH: u64 = 160;

/// What a pattern costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Steps for each byte of the text that it is held against.
    pub positions: u64,
    /// Steps to compile it.
    pub compiling: u64,
}

impl Weight {
    /// Steps to hold it against a text of so many bytes.
    pub fn matching(&self, bytes: usize) -> u64 {
        self.positions.saturating_mul(bytes as u64 + 1)
    }
}

/// A pattern that was compiled once.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub regex: Regex,
    pub weight: Weight,
}

pub(super) fn compile(pattern: &str) -> Result<Pattern, String> {
    let weight = weigh(pattern)?;
    Ok(Pattern { regex: build(pattern)?, weight })
}

pub(super) fn build(pattern: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder.nest_limit(MAX_NESTING).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_DFA_BYTES);
    builder.build().map_err(|_| "the pattern is too large; shorten it".to_owned())
}

/// The weight of a pattern, or why it is refused.
pub(crate) fn weigh(pattern: &str) -> Result<Weight, String> {
    let parsed = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern);
    let hir = parsed.map_err(|error| format!("not a regular expression: {}", reason(&error.to_string())))?;
    let Measured { positions, ranges } = measure(&hir);
    if positions > MAX_POSITIONS || ranges > MAX_RANGES {
        return Err(format!(
            "a pattern may have {MAX_POSITIONS} positions with its repetitions written out; shorten a repetition"
        ));
    }
    Ok(Weight { positions: positions.max(1), compiling: COMPILING + COMPILING_EACH * (positions + ranges) })
}

/// The last line of a message of the parser; before it, the pattern is shown.
fn reason(message: &str) -> &str {
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last)
}

struct Measured {
    positions: u64,
    ranges: u64,
}

/// The parser bounds how deep this goes.
fn measure(hir: &Hir) -> Measured {
    let one = Measured { positions: 1, ranges: 0 };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => one,
        HirKind::Literal(literal) => Measured { positions: literal.0.len() as u64, ranges: 0 },
        HirKind::Class(Class::Unicode(class)) => Measured { positions: 1, ranges: class.ranges().len() as u64 },
        HirKind::Class(Class::Bytes(class)) => Measured { positions: 1, ranges: class.ranges().len() as u64 },
        HirKind::Capture(capture) => measure(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(measure).fold(Measured { positions: 0, ranges: 0 }, |sum, part| Measured {
                positions: sum.positions.saturating_add(part.positions),
                ranges: sum.ranges.saturating_add(part.ranges),
            })
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            let Measured { positions, ranges } = measure(&repetition.sub);
            let times = u64::from(times);
            Measured { positions: positions.saturating_mul(times), ranges: ranges.saturating_mul(times) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_weighed_with_its_repetitions_written_out() {
        for (pattern, positions) in [
            ("", 1),
            ("abc", 3),
            ("^[a-z]+$", 4),
            ("[a-z]{1,64}", 64),
            ("(ab|c){10}", 30),
            (r"\w{3}-\d{4,}", 3 + 1 + 5),
            ("(a{60}){60}", 3600),
        ] {
            assert_eq!(weigh(pattern).map(|weight| weight.positions), Ok(positions), "{pattern}");
        }
        for (pattern, part) in [
            ("(a{1000}){1000}", "4096 positions"),
            (r"\pL{1000}", "4096 positions"),
            ("(", "unclosed group"),
            ("(?=a)", "look-around"),
        ] {
            assert!(weigh(pattern).is_err_and(|why| why.contains(part)), "{pattern}: {:?}", weigh(pattern));
        }
        assert!(weigh(&"(".repeat(10_000)).is_err());
        assert!(weigh(&format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000))).is_err());
    }
}
