//! How long things wait on their way from a producer to a consumer, and whether that is too long.

use super::histogram::Histogram;
use super::{LagThresholds, READY, minute_of};
use crate::port::StoreError;
use crate::port::monitor::LagMinute;
use crate::{Engine, store_failure};
use countersign_kernel::Time;
use countersign_kernel::governance::{Category, Signal, Subject};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest window, and the points of a trend.
pub const LONGEST_WINDOW_US: i64 = 31 * 24 * 3_600_000_000;
const POINTS: i64 = 60;
const MINUTE_US: i64 = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    pub p50_us: i64,
    pub p95_us: i64,
    pub p99_us: i64,
}

/// A part of the window in which something arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagPoint {
    pub at: Time,
    pub count: u64,
    pub percentiles: Percentiles,
}

#[derive(Clone, Debug)]
pub struct LagPair {
    pub producer: Arc<str>,
    pub consumer: Arc<str>,
    pub count: u64,
    pub percentiles: Percentiles,
    pub thresholds: LagThresholds,
    /// A problem is open.
    pub is_open: bool,
    pub points: Vec<LagPoint>,
}

#[derive(Clone, Debug)]
pub struct Lag {
    pub from: Time,
    pub until: Time,
    pub pairs: Vec<LagPair>,
}

impl LagPair {
    /// Whether a percentile is above its threshold.
    pub fn is_late(&self) -> bool {
        breach(&self.percentiles, &self.thresholds).is_some()
    }
}

type Pairs = BTreeMap<(Arc<str>, Arc<str>), BTreeMap<i64, Histogram>>;

pub fn pair_name(producer: &str, consumer: &str) -> String {
    format!("{producer}->{consumer}")
}

fn percentiles(histogram: &Histogram) -> Option<Percentiles> {
    Some(Percentiles {
        p50_us: histogram.percentile(50)?,
        p95_us: histogram.percentile(95)?,
        p99_us: histogram.percentile(99)?,
    })
}

/// The first percentile that is above its threshold: its name, its value and the threshold.
fn breach(found: &Percentiles, thresholds: &LagThresholds) -> Option<(&'static str, i64, i64)> {
    let of = [
        ("p50", found.p50_us, thresholds.p50_us),
        ("p95", found.p95_us, thresholds.p95_us),
        ("p99", found.p99_us, thresholds.p99_us),
    ];
    of.into_iter().find_map(|(name, value, threshold)| Some((name, value, threshold.filter(|most| value > *most)?)))
}

fn seconds(us: i64) -> String {
    format!("{:.1} s", us as f64 / 1e6)
}

impl Engine {
    /// The lag of every pair in the window that ends now. Needs `governance:read`.
    pub async fn read_lag(&self, actor_ref: &str, window_us: i64) -> Result<Lag, Refusal> {
        self.require_scope(actor_ref, scopes::GOVERNANCE_READ).await?;
        if !(MINUTE_US..=LONGEST_WINDOW_US).contains(&window_us) {
            let detail = "`window` must lie between 1m and 31d, such as 1h";
            return Err(Refusal::new(Code::InvalidQuery, detail).at("window"));
        }
        let until = self.now();
        let from = Time(until.0 - window_us);
        let failed = |error: StoreError| store_failure(&error);
        let open = self.open_of(Category::EventLag).await.map_err(failed)?;
        let step = (window_us / MINUTE_US).div_euclid(POINTS).max(1);
        let pairs = self.pairs_since(minute_of(from), step).await.map_err(failed)?;
        let pairs = pairs.into_iter().filter_map(|((producer, consumer), minutes)| {
            let name = pair_name(&producer, &consumer);
            let mut all = Histogram::default();
            minutes.values().for_each(|histogram| all.merge(histogram));
            let point = |(minute, histogram): (&i64, &Histogram)| {
                let at = Time(minute.saturating_mul(MINUTE_US));
                Some(LagPoint { at, count: histogram.count(), percentiles: percentiles(histogram)? })
            };
            Some(LagPair {
                producer,
                consumer,
                count: all.count(),
                percentiles: percentiles(&all)?,
                thresholds: self.config.thresholds.lag(&name),
                is_open: open.contains_key(&name),
                points: minutes.iter().filter_map(point).collect(),
            })
        });
        Ok(Lag { from, until, pairs: pairs.collect() })
    }

    /// Histograms by pair and by so many minutes.
    async fn pairs_since(&self, minute: i64, step: i64) -> Result<Pairs, StoreError> {
        let stored = self.monitor_store.lag_since(minute).await?;
        let mut pairs = Pairs::new();
        for row in stored.iter().chain(&self.monitor.minutes_since(minute).1) {
            let LagMinute { minute, producer, consumer, histogram } = row;
            let of = pairs.entry((producer.clone(), consumer.clone())).or_default();
            of.entry(minute.div_euclid(step) * step).or_default().merge(histogram);
        }
        Ok(pairs)
    }

    /// How long steps waited to be claimed, by queue.
    pub(super) async fn lag_of_queues(&self, minute: i64) -> Result<BTreeMap<Arc<str>, Histogram>, StoreError> {
        let pairs = self.pairs_since(minute, i64::MAX).await?;
        let ready = pairs.into_iter().filter(|((producer, _), _)| **producer == *READY);
        let merged = ready.map(|((_, queue), minutes)| {
            let mut all = Histogram::default();
            minutes.values().for_each(|histogram| all.merge(histogram));
            (queue, all)
        });
        Ok(merged.collect())
    }

    /// Opens what is above a threshold, and resolves what arrived in time since. Where nothing arrived, nothing is known.
    pub(super) async fn observe_lag(&self) -> Result<(), StoreError> {
        let now = self.now();
        let window_us = self.config.thresholds.lag_window_us;
        let pairs = self.pairs_since(minute_of(Time(now.0 - window_us)), 1).await?;
        let open = self.open_of(Category::EventLag).await?;
        let mut signals = vec![];
        for ((producer, consumer), minutes) in pairs {
            let key = pair_name(&producer, &consumer);
            let mut all = Histogram::default();
            minutes.values().for_each(|histogram| all.merge(histogram));
            let Some(found) = percentiles(&all) else { continue };
            let breach = breach(&found, &self.config.thresholds.lag(&key));
            let (opens, detail) = match (breach, open.contains_key(&key)) {
                (Some((name, value, most)), false) => {
                    let (value, most) = (seconds(value), seconds(most));
                    (true, format!("{name} is {value}, above {most}, of {} that arrived", all.count()))
                }
                (None, true) => (false, format!("p95 is {} of {} that arrived", seconds(found.p95_us), all.count())),
                _ => continue,
            };
            let subject = Subject { category: Category::EventLag, key, run_id: None, step: None, worker_class: None };
            signals.push(Signal { subject, at: now, event_id: None, opens, detail, replay: None });
        }
        self.observed(signals).await
    }

    /// The lag of the last minutes, for `/metrics`: pair and percentiles.
    pub async fn lag_now(&self) -> Result<Vec<(Arc<str>, Arc<str>, Percentiles)>, StoreError> {
        let window_us = self.config.thresholds.lag_window_us;
        let pairs = self.pairs_since(minute_of(Time(self.now().0 - window_us)), i64::MAX).await?;
        let of = |((producer, consumer), minutes): ((Arc<str>, Arc<str>), BTreeMap<i64, Histogram>)| {
            let found = minutes.values().next().and_then(percentiles)?;
            Some((producer, consumer, found))
        };
        Ok(pairs.into_iter().filter_map(of).collect())
    }
}
