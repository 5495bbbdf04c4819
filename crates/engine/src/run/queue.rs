//! The steps of one queue that workers may claim now, in the order in which they are handed out. Those of a limited queue
//! (`queues:` of a definition) stand apart, in a lane for each limit: while there is no room, the lane is shut, and nobody is
//! offered what could not be given to them.

use countersign_kernel::plan::{QueueLimit, StepSeq};
use countersign_kernel::{InstanceId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// In the order in which they are handed out: higher priority first, then who has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ready {
    pub behind: u8,
    pub since: Time,
    pub run_id: InstanceId,
    pub step_seq: StepSeq,
    pub definition: u32,
    /// The lane that it stands in, if its queue is limited.
    pub lane: Option<LaneId>,
}

/// Steps of a queue that no limit holds up, or of one lane, at most.
pub const LINE: usize = 100_000;

/// Lanes are numbered in the order in which they were first needed.
pub type LaneId = std::num::NonZeroU32;

#[derive(Default)]
pub struct Queue {
    /// Those that no limit holds up.
    free: BTreeSet<Ready>,
    lanes: BTreeMap<LaneId, Lane>,
    /// There have been steps in it: it is no mere word of somebody who asked.
    pub used: bool,
    /// Steps of lower rank were left to the store.
    more: bool,
    /// Claims that wait for work, or are being served.
    pub waiting: usize,
    pub waiters: Arc<Notify>,
    /// Claims that wait for steps of certain definitions only. Each looks for itself whether what came is for it.
    pub choosy: usize,
    pub choosers: Arc<Notify>,
}

/// The steps of one definition in this queue, under one limit.
struct Lane {
    definition: u32,
    limit: QueueLimit,
    ready: BTreeSet<Ready>,
    /// There was no room when it was last tried; it is tried again at this time, or once somebody leaves.
    shut_until: Option<Time>,
}

impl Lane {
    /// More than this many at a time there is never room for.
    fn width(&self) -> usize {
        let widths = self.limit.limit.into_iter().chain(self.limit.rate.map(|rate| rate.count));
        widths.min().map_or(usize::MAX, |width| width as usize)
    }
}

/// Which lanes somebody is offered steps of, besides those that no limit holds up.
#[derive(Clone, Copy)]
pub enum Lanes {
    Open,
    /// Who brings room along has it in one lane, shut or not.
    Only(Option<LaneId>),
}

impl Queue {
    /// Whether it can be taken at once; and which step, perhaps this one, is left to the store for it.
    pub fn insert(&mut self, ready: Ready, limit: QueueLimit) -> (bool, Option<Ready>) {
        self.used = true;
        let (line, open) = match ready.lane {
            None => (&mut self.free, true),
            Some(id) => {
                let definition = ready.definition;
                let new = || Lane { definition, limit, ready: BTreeSet::new(), shut_until: None };
                let lane = self.lanes.entry(id).or_insert_with(new);
                let open = lane.shut_until.is_none();
                (&mut lane.ready, open)
            }
        };
        line.insert(ready);
        let left_out = if line.len() > LINE { line.pop_last() } else { None };
        self.more |= left_out.is_some();
        (open && left_out != Some(ready), left_out)
    }

    /// True once when half of its room is free and the store holds more.
    pub fn is_drained(&mut self) -> bool {
        let drained = self.more && self.len() < LINE / 2;
        self.more &= !drained;
        drained
    }

    pub fn remove(&mut self, ready: &Ready) {
        match ready.lane {
            None => self.free.remove(ready),
            Some(id) => self.lanes.get_mut(&id).is_some_and(|lane| lane.ready.remove(ready)),
        };
    }

    /// Takes out the first that are offered; of these definitions only, if any are named.
    pub fn take(&mut self, max: usize, definitions: Option<&[u32]>, lanes: Lanes) -> Vec<Ready> {
        let mut taken = Vec::new();
        if definitions.is_none() && self.lanes.is_empty() {
            while taken.len() < max
                && let Some(ready) = self.free.pop_first()
            {
                taken.push(ready);
            }
            return taken;
        }
        taken.extend(self.offered(definitions, lanes).take(max));
        for ready in &taken {
            self.remove(ready);
        }
        taken
    }

    /// Everything that is offered, in order.
    fn offered<'q>(&'q self, definitions: Option<&'q [u32]>, lanes: Lanes) -> impl Iterator<Item = Ready> + 'q {
        let named = move |definition: u32| definitions.is_none_or(|named| named.contains(&definition));
        let offers = move |id: LaneId, lane: &Lane| match lanes {
            Lanes::Open => lane.shut_until.is_none(),
            Lanes::Only(only) => only == Some(id),
        };
        let open = self.lanes.iter().filter(move |(id, lane)| offers(**id, lane) && named(lane.definition));
        let open = open.map(|(_, lane)| lane.ready.iter().take(lane.width()));
        let all = std::iter::once(self.free.iter().take(usize::MAX)).chain(open);
        let mut heads: Vec<_> = all.map(|line| line.filter(move |ready| named(ready.definition)).peekable()).collect();
        std::iter::from_fn(move || {
            let firsts = heads.iter_mut().enumerate().filter_map(|(at, line)| Some((**line.peek()?, at)));
            let (_, at) = firsts.min()?;
            heads[at].next().copied()
        })
    }

    /// Whether anything can be taken.
    pub fn has_any(&self, definitions: Option<&[u32]>) -> bool {
        match definitions {
            None if self.lanes.is_empty() => !self.free.is_empty(),
            _ => self.offered(definitions, Lanes::Open).next().is_some(),
        }
    }

    /// How many there are, also behind a limit.
    pub fn len(&self) -> usize {
        self.free.len() + self.lanes.values().map(|lane| lane.ready.len()).sum::<usize>()
    }

    /// Shuts a lane until this time. Returns until when it was shut before.
    pub fn shut(&mut self, id: LaneId, until: Time) -> Option<Time> {
        self.lanes.get_mut(&id)?.shut_until.replace(until)
    }

    /// Opens the lane again. Returns until when it was shut.
    pub fn open(&mut self, id: LaneId) -> Option<Time> {
        self.lanes.get_mut(&id)?.shut_until.take()
    }

    /// The lanes of a definition that are shut.
    pub fn shut_lanes(&self, definition: u32) -> Vec<LaneId> {
        let own = self.lanes.iter().filter(|(_, lane)| lane.definition == definition && lane.shut_until.is_some());
        own.map(|(id, _)| *id).collect()
    }
}
