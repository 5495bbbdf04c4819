//! Instances in memory, the most recently used ones, up to so many bytes. How large one is, is an estimate: it is measured
//! when the instance comes in, grows with what is written to it, and is measured again when that has doubled it, so that
//! keeping count costs as much as the changes and no more.

use super::Instance;
use crate::port::Unit;
use countersign_kernel::InstanceId;
use countersign_kernel::run::{Cell, Run};
use hashlink::LruCache;
use std::collections::HashSet;

/// What an instance takes besides what is counted: maps, heads, names.
const BASE: usize = 2048;
/// What a step that is under way, an approval step or an event takes besides its texts.
const PART: usize = 512;

pub struct Cache {
    entries: LruCache<InstanceId, Entry>,
    bytes: usize,
    most_bytes: usize,
    most: usize,
}

struct Entry {
    instance: Instance,
    measured: usize,
    /// Since then.
    written: usize,
}

impl Cache {
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Cache { entries: LruCache::new_unbounded(), bytes: 0, most_bytes, most }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn contains_key(&self, id: &InstanceId) -> bool {
        self.entries.contains_key(id)
    }

    pub fn peek(&self, id: &InstanceId) -> Option<&Instance> {
        self.entries.peek(id).map(|entry| &entry.instance)
    }

    pub fn get(&mut self, id: &InstanceId) -> Option<&Instance> {
        self.entries.get(id).map(|entry| &entry.instance)
    }

    pub fn get_mut(&mut self, id: &InstanceId) -> Option<&mut Instance> {
        self.entries.get_mut(id).map(|entry| &mut entry.instance)
    }

    pub fn insert(&mut self, id: InstanceId, instance: Instance) {
        let measured = size(&instance);
        self.bytes += measured;
        if let Some(old) = self.entries.insert(id, Entry { instance, measured, written: 0 }) {
            self.bytes -= old.measured + old.written;
        }
    }

    pub fn remove(&mut self, id: &InstanceId) {
        if let Some(old) = self.entries.remove(id) {
            self.bytes -= old.measured + old.written;
        }
    }

    /// This was written to an instance.
    pub fn wrote(&mut self, unit: &Unit) {
        let Some(entry) = self.entries.peek_mut(&unit.instance_id) else { return };
        let payloads: usize = unit.records.iter().map(|row| row.record.payload().map_or(0, <[u8]>::len)).sum();
        let outputs = unit.steps.values().map(|step| step.state.output.as_ref().map_or(0, |output| output.len()));
        let written = payloads + outputs.sum::<usize>();
        entry.written += written;
        self.bytes += written;
        if entry.written > entry.measured {
            self.bytes -= entry.measured + entry.written;
            (entry.measured, entry.written) = (size(&entry.instance), 0);
            self.bytes += entry.measured;
        }
    }

    /// How many more instances may be loaded at once, by what these took. None, where the room is used up.
    pub fn room_for(&self, loaded: usize, bytes: usize) -> usize {
        let average = (bytes / loaded.max(1)).max(1);
        (self.most_bytes.saturating_sub(self.bytes) / average).min(2 * loaded)
    }

    /// Lets go of those that have not been used for longest and that are not among these, while there are too many bytes.
    pub fn trim_besides(&mut self, needed: &HashSet<InstanceId>) {
        let mut excess = self.bytes.saturating_sub(self.most_bytes);
        let mut old = Vec::new();
        for (id, entry) in self.entries.iter().filter(|(id, _)| !needed.contains(id)) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(entry.measured + entry.written);
            old.push(*id);
        }
        old.iter().for_each(|id| self.remove(id));
    }

    /// Lets go of those that have not been used for longest. Only between batches: what a batch has loaded it needs.
    pub fn trim(&mut self) {
        while self.bytes > self.most_bytes || self.entries.len() > self.most {
            let Some((_, old)) = self.entries.remove_lru() else { break };
            self.bytes -= old.measured + old.written;
        }
    }
}

/// Documents and plans are shared, and counted elsewhere.
fn size(instance: &Instance) -> usize {
    let approvals: usize = instance.process.gates.iter().map(|gate| gate.steps.len()).sum();
    BASE + PART * approvals + instance.run.as_deref().map_or(0, size_of_run)
}

fn size_of_run(run: &Run) -> usize {
    let outputs: usize = run.outputs.values().map(|output| output.len() + PART).sum();
    let kept: usize = run.kept.iter().map(|event| event.data.len() + PART).sum();
    let texts = run.input.len() + run.head.last_error.as_ref().map_or(0, |error| error.len());
    texts + outputs + kept + run.live.len() * PART + run.cells.len() * size_of::<Cell>()
}
