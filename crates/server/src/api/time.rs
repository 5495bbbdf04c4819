//! Times on the wire: RFC 3339. They leave as UTC with microseconds and may arrive with any offset.

use countersign_kernel::Time;
use jiff::Timestamp;

/// `2026-11-15T19:47:28.123456Z`.
pub fn format(time: Time) -> String {
    // Further away than calendars reach only where a policy keeps for millennia.
    let timestamp =
        Timestamp::from_microsecond(time.0).unwrap_or(if time.0 < 0 { Timestamp::MIN } else { Timestamp::MAX });
    format!("{timestamp:.6}")
}

/// 2^53 − 1: records state times as integers, and no record holds one beyond it (`spec/record.md`, section 7). In the year 2255.
const FURTHEST_US: i64 = (1 << 53) - 1;

/// `None` where the text is not an RFC 3339 date-time, or is one that no record could state.
pub fn parse(text: &str) -> Option<Time> {
    if !has_the_shape(text) {
        return None;
    }
    let timestamp: Timestamp = text.parse().ok()?;
    let us = timestamp.as_microsecond();
    (-FURTHEST_US..=FURTHEST_US).contains(&us).then_some(Time(us))
}

/// jiff reads more forms than RFC 3339 has: a time without seconds, a zone in brackets.
fn has_the_shape(text: &str) -> bool {
    let Some(text) = text.get(..).filter(|text| text.is_ascii()) else { return false };
    let Some((seconds, rest)) = text.split_at_checked(19) else { return false };
    let fits = |pattern: &[u8], text: &str| {
        pattern.len() == text.len()
            && pattern.iter().zip(text.bytes()).all(|(expected, byte)| match expected {
                b'0' => byte.is_ascii_digit(),
                b'T' => byte.eq_ignore_ascii_case(&b'T'),
                b'+' => byte == b'+' || byte == b'-',
                expected => *expected == byte,
            })
    };
    let offset = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
    };
    fits(b"0000-00-00T00:00:00", seconds) && (offset.eq_ignore_ascii_case("Z") || fits(b"+00:00", offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_out_in_utc_with_microseconds() {
        assert_eq!(format(Time(0)), "1970-01-01T00:00:00.000000Z");
        assert_eq!(format(Time(1_794_772_048_123_456)), "2026-11-15T19:47:28.123456Z");
        assert!(format(Time(i64::MAX)).starts_with("9999-12-"));
    }

    #[test]
    fn a_time_that_no_record_could_state_does_not_come_in() {
        assert!(parse("2255-06-05T23:47:34.740991Z").is_some());
        for text in ["2255-06-05T23:47:34.740992Z", "5633-04-02T00:00:00Z", "0001-01-01T00:00:00Z"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_rfc_3339_comes_in() {
        for (text, us) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t01:00:00.5+01:00", 500_000),
            ("1970-01-01T00:00:00.000001z", 1),
            ("2026-11-15T19:47:28.123456789-00:00", 1_794_772_048_123_456),
        ] {
            assert_eq!(parse(text), Some(Time(us)), "{text}");
        }
        for text in [
            "",
            "0",
            "1970-01-01",
            "1970-01-01T00:00Z",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+01",
            "1970-01-01T00:00:00 01:00",
            "1970-02-30T00:00:00Z",
            "1970-01-01T25:00:00Z",
            "1970-01-01T00:00:00Z[UTC]",
            "+01970-01-01T00:00:00Z",
            "１970-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
