//! Lengths of time as they are written: `250ms`, `5s`, `1h30m`, `7d`.

use countersign_kernel::plan::Micros;

/// From the longest to the shortest, which is also the order in which they are written.
const UNITS: &[(&str, Micros)] =
    &[("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];

/// Some hundred years: a time plus a duration is always a time.
const LONGEST: Micros = 36_500 * 86_400_000_000;

/// Whole numbers, each with its unit, the longest unit first and none twice. A day is 24 hours.
pub fn parse_duration(text: &str) -> Option<Micros> {
    let mut rest = text;
    let mut units = UNITS;
    let mut total: Micros = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: Micros = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let place = units.iter().position(|(unit, _)| *unit == &rest[..letters])?;
        total = number.checked_mul(units[place].1).and_then(|length| total.checked_add(length))?;
        units = &units[place + 1..];
        rest = &rest[letters..];
    }
    (total <= LONGEST).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, micros) in [
            ("250ms", 250_000),
            ("5s", 5_000_000),
            ("1h30m", 5_400_000_000),
            ("7d", 604_800_000_000),
            ("1d2h3m4s5ms", 93_784_005_000),
            ("90m", 5_400_000_000),
            ("0s", 0),
            ("36500d", 3_153_600_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(micros), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "+5s",
            "5 s",
            "1.5h",
            "5S",
            "30m1h",
            "1h1h",
            "5ms5s",
            "1w",
            "1us",
            "é",
            "5s ",
            "36501d",
            "99999999999999999999d",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
