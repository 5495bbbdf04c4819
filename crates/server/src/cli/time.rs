//! Times as people write and read them. On the wire they are RFC 3339 UTC with microseconds.

use super::output::printable;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

/// A time given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant(Timestamp);

impl Instant {
    /// For the wire: `2026-11-15T19:47:28.123456Z`.
    pub fn to_wire(self) -> String {
        format!("{:.6}", self.0)
    }
}

pub fn now() -> Instant {
    Instant(Timestamp::now())
}

/// For clap: an absolute time, or how long ago.
pub fn parse(text: &str) -> Result<Instant, String> {
    parse_at(text, Timestamp::now())
}

fn parse_at(text: &str, now: Timestamp) -> Result<Instant, String> {
    if let Some(instant) = parse_absolute(text) {
        return Ok(instant);
    }
    let help = "write a time like 2026-11-15T19:47:28Z, a day like 2026-11-15 (UTC), or how long ago: 30s, 2h, 7d";
    let span: Span = text.parse().map_err(|_| help.to_owned())?;
    let ago = span.abs().to_duration(SpanRelativeTo::days_are_24_hours());
    let ago =
        ago.map_err(|_| "months and years differ in length: count the time ago in days, hours or less".to_owned())?;
    now.checked_sub(ago).map(Instant).map_err(|_| "that is too long ago".to_owned())
}

fn parse_absolute(text: &str) -> Option<Instant> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(Instant(timestamp));
    }
    // A day and nothing else: jiff would ignore a time of day behind it.
    let date = text.parse::<Date>().ok().filter(|date| date.to_string() == text)?;
    date.to_zoned(TimeZone::UTC).ok().map(|midnight| Instant(midnight.timestamp()))
}

/// For clap: an absolute time, or how long from now: `in 5m`.
pub fn parse_ahead(text: &str) -> Result<Instant, String> {
    parse_ahead_at(text, Timestamp::now())
}

fn parse_ahead_at(text: &str, now: Timestamp) -> Result<Instant, String> {
    let span = text.trim().strip_prefix("in ").map(str::trim);
    if let Some(micros) = countersign_definition::parse_duration(span.unwrap_or(text)) {
        let ahead = SignedDuration::from_micros(micros);
        return now.checked_add(ahead).map(Instant).map_err(|_| "that is too far ahead".to_owned());
    }
    let help =
        "write a time like 2026-11-15T19:47:28Z, a day like 2026-11-15 (UTC), or how long from now: in 5m, in 2h";
    match span {
        None => parse_absolute(text).ok_or_else(|| help.to_owned()),
        Some(_) => Err(help.to_owned()),
    }
}

/// For clap: a length of time, like `30s` or `1h30m`, in milliseconds.
pub fn parse_millis(text: &str) -> Result<i64, String> {
    let micros = countersign_definition::parse_duration(text);
    micros.map(|micros| micros / 1000).ok_or_else(|| "write a length of time like 250ms, 30s, 5m or 1h30m".to_owned())
}

/// `3 min ago · 2026-11-15 19:47:28Z`; a time that cannot be read is shown as it came.
pub fn when(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => format!("{} · {}", relative(time, now), absolute(time)),
        Err(_) => printable(text),
    }
}

/// `2026-11-15 21:47:28Z (in 2 h)`; a time that cannot be read is shown as it came.
pub fn until(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => format!("{} ({})", absolute(time), relative(time, now)),
        Err(_) => printable(text),
    }
}

/// `2026-11-15 19:47:28Z`; a time that cannot be read is shown as it came.
pub fn at(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| printable(text), absolute)
}

/// `3 min ago`; a time that cannot be read is shown as it came.
pub fn ago(text: &str, now: Timestamp) -> String {
    text.parse::<Timestamp>().map_or_else(|_| printable(text), |time| relative(time, now))
}

fn absolute(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// `29 s left`, or that it has run out.
pub fn left(text: &str, now: Timestamp) -> String {
    let Ok(time) = text.parse::<Timestamp>() else { return printable(text) };
    let distance = time.duration_since(now);
    match ahead(distance) {
        _ if distance.is_negative() => format!("ran out {}", relative(time, now)),
        Some(amount) => format!("{amount} left"),
        None => "a moment left".to_owned(),
    }
}

/// `340 ms`, `3 s`, `5 min`: how long something took.
pub fn lasting(distance: SignedDuration) -> String {
    let ms = distance.as_millis().max(0);
    if ms < 3_000 { format!("{ms} ms") } else { past(distance).unwrap_or_else(|| format!("{ms} ms")) }
}

pub fn is_past(text: &str, now: Timestamp) -> bool {
    text.parse::<Timestamp>().is_ok_and(|time| time <= now)
}

fn relative(time: Timestamp, now: Timestamp) -> String {
    let distance = now.duration_since(time);
    if distance.is_negative() {
        return ahead(distance.abs()).map_or_else(|| "in a moment".to_owned(), |amount| format!("in {amount}"));
    }
    past(distance).map_or_else(|| "just now".to_owned(), |amount| format!("{amount} ago"))
}

/// One unit says enough; none for a moment. What is past has lasted at least so long.
fn past(distance: SignedDuration) -> Option<String> {
    let (seconds, minutes, hours) = (distance.as_secs(), distance.as_mins(), distance.as_hours());
    match (seconds, minutes, hours) {
        (0..=2, ..) => None,
        (3..=59, ..) => Some(format!("{seconds} s")),
        (_, 0..=59, _) => Some(format!("{minutes} min")),
        (_, _, 0..=47) => Some(format!("{hours} h")),
        (..) => Some(format!("{} d", hours / 24)),
    }
}

/// To the nearest: two hours less a moment are two hours.
fn ahead(distance: SignedDuration) -> Option<String> {
    let nearest = |unit: i128| (distance.as_millis() + unit / 2) / unit;
    let (seconds, minutes, hours) = (nearest(1_000), nearest(60_000), nearest(3_600_000));
    match (seconds, minutes, hours) {
        (..=2, ..) => None,
        (..=59, ..) => Some(format!("{seconds} s")),
        (_, ..=59, _) => Some(format!("{minutes} min")),
        (_, _, ..=47) => Some(format!("{hours} h")),
        (..) => Some(format!("{} d", nearest(86_400_000))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T19:50:28.5Z".parse().expect("a time")
    }

    #[test]
    fn times_ahead_are_absolute_or_from_now() {
        for (text, wire) in [
            ("2026-11-15T19:47:28Z", "2026-11-15T19:47:28.000000Z"),
            ("2026-11-16", "2026-11-16T00:00:00.000000Z"),
            ("in 5m", "2026-11-15T19:55:28.500000Z"),
            ("1h30m", "2026-11-15T21:20:28.500000Z"),
        ] {
            assert_eq!(parse_ahead_at(text, now()).map(Instant::to_wire), Ok(wire.to_owned()), "{text}");
        }
        for text in ["tomorrow", "in", "in 2026-11-16", "5", "-5m"] {
            assert!(parse_ahead_at(text, now()).is_err(), "{text}");
        }
        assert_eq!((parse_millis("1m"), parse_millis("soon").is_err()), (Ok(60_000), true));
    }

    #[test]
    fn times_are_absolute_or_ago() {
        for (text, wire) in [
            ("2026-11-15T19:47:28Z", "2026-11-15T19:47:28.000000Z"),
            ("2026-11-15T19:47:28.123456Z", "2026-11-15T19:47:28.123456Z"),
            ("2026-11-15 19:47:28Z", "2026-11-15T19:47:28.000000Z"),
            ("2026-11-15T20:47:28+01:00", "2026-11-15T19:47:28.000000Z"),
            ("2026-11-15", "2026-11-15T00:00:00.000000Z"),
            ("2h", "2026-11-15T17:50:28.500000Z"),
            ("7d", "2026-11-08T19:50:28.500000Z"),
            ("1h30m", "2026-11-15T18:20:28.500000Z"),
            ("90 minutes ago", "2026-11-15T18:20:28.500000Z"),
            ("1w", "2026-11-08T19:50:28.500000Z"),
        ] {
            assert_eq!(parse_at(text, now()).map(Instant::to_wire), Ok(wire.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_how_to_write_one() {
        for text in ["", "yesterday", "2026-13-01", "7", "19:47", "2026-11-15T19:47:28"] {
            assert!(parse_at(text, now()).is_err_and(|told| told.contains("2026-11-15T19:47:28Z")), "{text}");
        }
        assert!(parse_at("3mo", now()).is_err_and(|told| told.contains("days")));
        assert!(parse_at("19999y", now()).is_err());
    }

    #[test]
    fn times_are_shown_relative_and_absolute() {
        for (text, shown) in [
            ("2026-11-15T19:50:27.123456Z", "just now · 2026-11-15 19:50:27Z"),
            ("2026-11-15T19:50:10Z", "18 s ago · 2026-11-15 19:50:10Z"),
            ("2026-11-15T19:47:28.123456Z", "3 min ago · 2026-11-15 19:47:28Z"),
            ("2026-11-14T10:00:00Z", "33 h ago · 2026-11-14 10:00:00Z"),
            ("2026-11-01T10:00:00Z", "14 d ago · 2026-11-01 10:00:00Z"),
            ("2026-11-15T21:50:29Z", "in 2 h · 2026-11-15 21:50:29Z"),
            ("soon\u{7}", "soon\\u{7}"),
        ] {
            assert_eq!(when(text, now()), shown);
        }
    }

    #[test]
    fn times_ahead_are_shown_to_the_nearest() {
        for (text, shown, lasts) in [
            ("2026-11-15T19:50:30Z", "in a moment", "a moment left"),
            ("2026-11-15T19:50:58.1Z", "in 30 s", "30 s left"),
            ("2026-11-15T19:51:28.2Z", "in 1 min", "1 min left"),
            ("2026-11-15T21:50:28.4Z", "in 2 h", "2 h left"),
            ("2026-11-18T19:50:27.9Z", "in 3 d", "3 d left"),
            ("2026-11-15T19:50:20Z", "8 s ago", "ran out 8 s ago"),
        ] {
            assert_eq!((ago(text, now()), left(text, now())), (shown.to_owned(), lasts.to_owned()), "{text}");
        }
        assert!(is_past("2020-01-01T00:00:00Z", now()) && !is_past("2026-11-15T19:50:30Z", now()));
    }
}
