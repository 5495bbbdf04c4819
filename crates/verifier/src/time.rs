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
}
