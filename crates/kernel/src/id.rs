//! Ids are UUIDv7 whose order is the order of the times they were made for, to the microsecond, and
//! within one command the order in which it made them. So "by time, ties by id" is simply "by id".
//!
//! Layout: 48 bits milliseconds · version 7 · 12 bits (microseconds within the millisecond ‹‹ 2) ·
//! variant · 14 bits ordinal within the command · 48 bits entropy.

use crate::Time;
use std::fmt;
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// `None` for anything that is not the hyphenated lower-case form: an id is opaque, so
            /// text that we never gave out names nothing.
            pub fn parse(text: &str) -> Option<Self> {
                parse(text).map($name)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                $name(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

ids! {
    /// A process, or the registry itself.
    InstanceId,
    /// One approval step.
    StepId,
    /// A quorum of approval steps.
    ChainId,
    /// The entry of an approval step in somebody's in-tray.
    AssignmentId,
    /// An entry of a process's history.
    TransitionId,
    /// A ledger record.
    EventId,
    /// A grant of a scope to an actor.
    GrantId,
    /// A legal hold on a record.
    HoldId,
    /// What lets a substitute decide for an approver.
    DelegationId,
    /// Something that governance has to look into.
    ProblemId,
}

impl InstanceId {
    /// The registry chain: actors, grants and definitions are records of this instance.
    pub const REGISTRY: InstanceId = InstanceId(Uuid::nil());
    /// The governance chain: problems that open and resolve are records of this instance.
    pub const GOVERNANCE: InstanceId = InstanceId(Uuid::from_u128(1));
}

fn parse(text: &str) -> Option<Uuid> {
    let canonical =
        text.len() == 36 && text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if canonical { Uuid::try_parse(text).ok() } else { None }
}

/// Makes the ids of one command: time and entropy are given, so the same source gives the same ids.
#[derive(Clone, Debug)]
pub struct IdSource {
    time: Time,
    entropy: u64,
    ordinal: u64,
}

impl IdSource {
    pub fn new(time: Time, entropy: u64) -> Self {
        IdSource { time, entropy, ordinal: 0 }
    }

    pub fn make<I: From<Uuid>>(&mut self) -> I {
        let (round, ordinal) = (self.ordinal >> 14, self.ordinal & 0x3fff);
        self.ordinal += 1;
        // Beyond 16,384 ids of one command they stay unique, though no longer ordered among themselves.
        let entropy = self.entropy.wrapping_add(round) & 0xffff_ffff_ffff;
        I::from(make(self.time, (ordinal << 48) | entropy))
    }
}

fn make(time: Time, low: u64) -> Uuid {
    let micros = time.0.max(0).unsigned_abs();
    let (millis, rest) = (micros / 1000, micros % 1000);
    let high = (millis << 16) | 0x7000 | (rest << 2);
    Uuid::from_u64_pair(high, 0x8000_0000_0000_0000 | low)
}

/// The smallest id made for `time`: a time range over a table keyed by id is a range of ids.
pub fn first_at(time: Time) -> Uuid {
    make(time, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_then_by_order_of_making() {
        let mut earlier = IdSource::new(Time(1_700_000_000_000_001), u64::MAX);
        let mut later = IdSource::new(Time(1_700_000_000_000_002), 0);
        let ids: Vec<EventId> = vec![earlier.make(), earlier.make(), earlier.make(), later.make(), later.make()];
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(ids[0].0.get_version_num(), 7);
        assert!(ids[3].0 >= first_at(Time(1_700_000_000_000_002)));
        assert!(ids[2].0 < first_at(Time(1_700_000_000_000_002)));
    }

    #[test]
    fn only_the_form_we_give_out_is_an_id() {
        let id: EventId = IdSource::new(Time(1), 7).make();
        assert_eq!(EventId::parse(&id.to_string()), Some(id));
        for text in ["", " ", "x", &id.to_string().to_uppercase().replace('0', "A"), &id.0.simple().to_string()] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }
}
