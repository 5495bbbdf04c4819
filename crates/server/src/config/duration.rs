//! Lengths of time, as a configuration writes them.

use serde::Deserialize;
use serde::de::Error as _;

pub(super) const DAY_US: i64 = 86_400_000_000;

/// A length of time as it is written: `250ms`, `5s`, `1h30m`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    pub us: i64,
}

/// From the longest, so that a longer unit never follows a shorter one.
const UNITS: &[(&str, i64)] =
    &[("d", DAY_US), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];

impl Duration {
    pub fn parse(text: &str) -> Result<Duration, String> {
        let unusable =
            |why: &str| format!("`{text}` is no length of time ({why}): write it like 250ms, 5s, 1h30m or 7d");
        let (mut rest, mut us, mut units) = (text, 0_i64, UNITS);
        if text.is_empty() {
            return Err(unusable("it is empty"));
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(digits);
            let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, after) = after.split_at(letters);
            let number: i64 = number.parse().map_err(|_| unusable("a number is missing or too large"))?;
            let at = units
                .iter()
                .position(|(name, _)| *name == unit)
                .ok_or_else(|| unusable("units are d, h, m, s and ms, in this order"))?;
            let part = number.checked_mul(units[at].1).ok_or_else(|| unusable("it is too long"))?;
            us = us.checked_add(part).ok_or_else(|| unusable("it is too long"))?;
            (rest, units) = (after, &units[at + 1..]);
        }
        Ok(Duration { us })
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Duration::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units_from_the_longest() {
        for (text, us) in [
            ("250ms", 250_000),
            ("5s", 5_000_000),
            ("1h30m", 5_400_000_000),
            ("7d", 7 * DAY_US),
            ("2557d", 2557 * DAY_US),
            ("0s", 0),
            ("1d2h3m4s5ms", DAY_US + 7_384_005_000),
        ] {
            assert_eq!(Duration::parse(text), Ok(Duration { us }), "{text}");
        }
        for text in ["", " ", "5", "s", "5 s", "5x", "-5s", "1.5h", "30m1h", "5s5s", "1ms1s", "99999999999999d", "5s "]
        {
            assert!(Duration::parse(text).is_err_and(|told| told.contains("1h30m")), "{text}");
        }
    }
}
