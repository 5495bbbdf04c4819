//! How long things took, in buckets whose width grows with the value: eight to a power of two, so a percentile is at most an
//! eighth too high. Histograms of several minutes or nodes are merged by adding them up.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(BTreeMap<u16, u64>);

impl Histogram {
    /// A negative time, which clocks of two nodes may yield, is none.
    pub fn add(&mut self, us: i64) {
        *self.0.entry(bucket(us)).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// So many in a hundred took no longer; `None` where there were none.
    pub fn percentile(&self, percent: u64) -> Option<i64> {
        let rank = self.count().saturating_mul(percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.0.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= rank).then(|| highest(*bucket))
        })
    }

    /// `bucket:count,…`
    pub fn to_text(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(bucket, count)| format!("{bucket}:{count}")).collect();
        parts.join(",")
    }

    pub fn parse(text: &str) -> Option<Histogram> {
        if text.is_empty() {
            return Some(Histogram::default());
        }
        let part = |part: &str| {
            let (bucket, count) = part.split_once(':')?;
            Some((bucket.parse().ok()?, count.parse().ok()?))
        };
        text.split(',').map(part).collect::<Option<BTreeMap<u16, u64>>>().map(Histogram)
    }
}

fn bucket(us: i64) -> u16 {
    let us = u64::try_from(us).unwrap_or(0);
    if us < 8 {
        return us as u16;
    }
    let power = us.ilog2();
    let within = (us >> (power - 3)) & 7;
    ((u64::from(power) - 2) * 8 + within) as u16
}

/// The longest time that is counted in this bucket.
fn highest(bucket: u16) -> i64 {
    let bucket = u64::from(bucket);
    if bucket < 8 {
        return bucket as i64;
    }
    let shift = (bucket / 8 - 1).min(59);
    i64::try_from(((9 + u128::from(bucket % 8)) << shift) - 1).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_counted_in_it() {
        for us in (0..64).map(|power| 1_i64.checked_shl(power).unwrap_or(0)).chain(0..5000).chain([i64::MAX]) {
            let (bucket, us) = (bucket(us), us.max(0));
            let above = highest(bucket);
            assert!(us <= above, "{us} is in {bucket}, which ends at {above}");
            assert!(bucket == 0 || us > highest(bucket - 1), "{us} is in {bucket}");
            assert!(above - us <= us / 8 + 1 || above == i64::MAX, "{us}: {above}");
        }
    }

    #[test]
    fn percentiles_come_from_all_minutes_together() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        assert_eq!(one.percentile(50), None);
        (1..=90).for_each(|_| one.add(5));
        (1..=10).for_each(|_| other.add(1_000_000));
        one.merge(&Histogram::parse(&other.to_text()).expect("text"));
        assert_eq!((one.count(), one.percentile(50), one.percentile(90)), (100, Some(5), Some(5)));
        assert!(one.percentile(95).is_some_and(|us| (1_000_000..1_130_000).contains(&us)));
        (0..2).for_each(|_| one.add(-5));
        assert_eq!(one.percentile(1), Some(0));
        assert_eq!(Histogram::parse("1:x"), None);
        assert_eq!(Histogram::parse(""), Some(Histogram::default()));
    }
}
