//! When a schedule comes next. The pattern is matched against the wall clock of its time zone: a local time that does
//! not exist is skipped, and one that comes twice fires once, the first time.

use countersign_kernel::plan::Schedule;
use croner::Cron;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use std::sync::LazyLock;

/// A whole day of minutes may not exist, where a country has changed sides of the date line.
const MAX_SKIPPED: usize = 2 * 24 * 60;

/// The database that comes with the program: the same answers on every machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The first time strictly after `time_us` at which the schedule fires, in microseconds since 1970. `None` when
/// there is none, or when the schedule itself is not one.
pub fn next_after(schedule: &Schedule, time_us: i64) -> Option<i64> {
    let cron = crate::cron::parse(&schedule.cron).ok()?;
    let zone = time_zone(&schedule.time_zone)?;
    next(&cron, &zone, Timestamp::from_microsecond(time_us).ok()?).map(Timestamp::as_microsecond)
}

pub(crate) fn time_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    ZONES.get(name).ok()
}

/// The names that there are, for a guess at what was meant.
pub(crate) fn time_zone_names() -> Vec<String> {
    ZONES.available().map(|name| name.to_string()).collect()
}

/// Whether the pattern ever comes; 30 February does not. A search ends with the year 5000, and each day of a leap
/// year falls on each day of the week within the forty years before.
pub(crate) fn ever_comes(cron: &Cron) -> bool {
    cron.find_next_occurrence(&jiff::civil::datetime(4960, 1, 1, 0, 0, 0, 0), true).is_ok()
}

fn next(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut local: DateTime = zone.to_datetime(after);
    for _ in 0..MAX_SKIPPED {
        local = cron.find_next_occurrence(&local, false).ok()?;
        let ambiguous = zone.to_ambiguous_timestamp(local);
        if matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. }) {
            continue;
        }
        let fires = ambiguous.earlier().ok()?;
        // In the second of two equal hours, what the clock shows has fired already.
        if fires > after {
            return Some(fires);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_kernel::plan::Overlap;

    /// The next `count` times after `start`, in UTC.
    fn times(cron: &str, zone: &str, start: &str, count: usize) -> Vec<String> {
        let schedule =
            Schedule { cron: cron.into(), time_zone: zone.into(), input: None, overlap: Overlap::Skip, catch_up: 0 };
        let mut at = start.parse::<Timestamp>().unwrap().as_microsecond();
        let mut found = Vec::new();
        for _ in 0..count {
            at = next_after(&schedule, at).unwrap();
            found.push(Timestamp::from_microsecond(at).unwrap().to_string());
        }
        found
    }

    #[test]
    fn a_schedule_follows_the_clock_of_its_zone() {
        assert_eq!(
            times("0 6 * * MON-FRI", "Europe/Berlin", "2026-03-26T12:00:00Z", 4),
            ["2026-03-27T05:00:00Z", "2026-03-30T04:00:00Z", "2026-03-31T04:00:00Z", "2026-04-01T04:00:00Z"]
        );
        assert_eq!(
            times("*/15 * * * *", "UTC", "2026-01-01T00:00:00Z", 2),
            ["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]
        );
        assert_eq!(times("@daily", "UTC", "2026-01-01T00:00:00.5Z", 1), ["2026-01-02T00:00:00Z"]);
    }

    #[test]
    fn a_local_time_that_does_not_exist_is_skipped() {
        // Berlin has no 02:30 on 29 March 2026, New York none on 8 March.
        assert_eq!(
            times("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3),
            ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]
        );
        assert_eq!(
            times("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 2),
            ["2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]
        );
        // From 01:50 to 03:00, with nothing in between.
        assert_eq!(
            times("*/10 * * * *", "Europe/Berlin", "2026-03-29T00:45:00Z", 2),
            ["2026-03-29T00:50:00Z", "2026-03-29T01:00:00Z"]
        );
    }

    #[test]
    fn a_local_time_that_comes_twice_fires_once() {
        // 02:30 comes twice in Berlin on 25 October 2026, 01:30 in New York on 1 November.
        assert_eq!(
            times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        assert_eq!(
            times("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2),
            ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]
        );
        // The same for what comes several times an hour, also when asked in the second of the two hours.
        assert_eq!(
            times("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"]
        );
        assert_eq!(times("*/30 * * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1), ["2026-10-25T02:00:00Z"]);
    }

    #[test]
    fn a_day_that_a_country_left_out_is_left_out() {
        // Samoa went from 29 to 31 December 2011.
        assert_eq!(
            times("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 2),
            ["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"]
        );
    }

    #[test]
    fn what_comes_seldom_comes_all_the_same() {
        for (pattern, comes) in
            [("0 0 29 2 *", true), ("0 0 29 2 +MON", true), ("0 0 31 12 *", true), ("0 0 31 4 *", false)]
        {
            assert_eq!(ever_comes(&crate::cron::parse(pattern).unwrap()), comes, "{pattern}");
        }
    }

    #[test]
    fn what_never_comes_has_no_next() {
        let schedule = |cron: &str, zone: &str| Schedule {
            cron: cron.into(),
            time_zone: zone.into(),
            input: None,
            overlap: Overlap::Skip,
            catch_up: 0,
        };
        for (cron, zone) in
            [("0 0 30 2 *", "UTC"), ("nonsense", "UTC"), ("0 0 * * *", "Mars/Olympus"), ("0 0 0 * * *", "UTC")]
        {
            assert_eq!(next_after(&schedule(cron, zone), 0), None, "{cron} {zone}");
        }
        for time in [i64::MIN, -1, 0, i64::MAX] {
            next_after(&schedule("0 0 * * *", "UTC"), time);
        }
    }
}
