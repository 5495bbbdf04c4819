//! Times as people read them: UTC, to the microsecond.

/// `2026-03-01 09:30:00.000000 UTC` of microseconds since 1970.
pub fn utc(us: i64) -> String {
    let (seconds, micros) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} UTC")
}

/// `2026-03-01`.
pub fn day(us: i64) -> String {
    utc(us).split(' ').next().unwrap_or_default().to_owned()
}

/// `2026-03-01 09:30:00.000 UTC`.
pub fn stamp(us: i64) -> String {
    format!("{} {}", day(us), time_of_day(us))
}

/// `09:30:00.000 UTC`.
pub fn time_of_day(us: i64) -> String {
    let text = utc(us);
    let time = text.split(' ').nth(1).and_then(|time| time.get(..12)).unwrap_or_default();
    format!("{time} UTC")
}

/// Microseconds since 1970 of an RFC 3339 date-time; digits beyond microseconds are dropped.
pub fn instant(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i64>().ok()
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let at = |i: usize| text.as_bytes().get(i).copied();
    if separators.iter().any(|(i, byte)| at(*i) != Some(*byte)) || !matches!(at(10), Some(b'T' | b't')) {
        return None;
    }
    let [year, month, day] = [number(0..4)?, number(5..7)?, number(8..10)?];
    let [hour, minute, second] = [number(11..13)?, number(14..16)?, number(17..19)?];
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        micros = format!("{:0<6}", fraction.get(..digits.min(6)).filter(|digits| !digits.is_empty())?).parse().ok()?;
        rest = fraction.get(digits..)?;
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = if rest.starts_with('+') { 1 } else { -1 };
            let (hours, minutes) = rest.strip_prefix(['+', '-'])?.split_once(':')?;
            sign * (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
        }
    };
    let seconds = days_of(year, month, day) * 86_400 + hour * 3600 + (minute - offset) * 60 + second;
    Some(seconds * 1_000_000 + micros)
}

/// The number of a day, in the proleptic Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day number, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (us, text) in [
            (0, "1970-01-01 00:00:00.000000 UTC"),
            (951_782_400_000_000, "2000-02-29 00:00:00.000000 UTC"),
            (1_772_357_400_123_456, "2026-03-01 09:30:00.123456 UTC"),
            (-1, "1969-12-31 23:59:59.999999 UTC"),
        ] {
            assert_eq!(utc(us), text);
        }
    }

    #[test]
    fn instants_are_read_with_any_offset() {
        for (text, us) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T01:00:00+01:00", Some(951_782_400_000_000)),
            ("2026-03-01T09:30:00.1234569Z", Some(1_772_357_400_123_456)),
            ("2026-03-01T09:30:00.1-00:30", Some(1_772_359_200_100_000)),
            ("2026-03-01 09:30:00Z", None),
            ("2026-03-01T09:30:00", None),
            ("2026-03-01T09:30:00.Z", None),
            ("tomorrow", None),
        ] {
            assert_eq!(instant(text), us, "{text}");
        }
    }
}
