//! One instance's chain of records: dense sequences, links, time, and the order in the log. Records arrive in the
//! order of `sequence`; nothing but the chain's end is kept.

use crate::bytes::{Digest, Id};
use crate::finding::{Code, Findings, Place};
use crate::record::Header;

/// So many holes are remembered; a chain with more is beyond telling apart.
const MOST_HOLES: usize = 1000;

#[derive(Clone, Debug)]
pub struct ChainHead {
    instance_id: Id,
    pub sequence: u64,
    pub hash: Digest,
    pub recorded_at_us: i64,
    event_id: Option<Id>,
    log_index: Option<u64>,
    /// Where the command began whose records are arriving: records of one command share their time.
    pub command_first: u64,
    /// Sequences that were skipped so far: first and last.
    holes: Vec<(u64, u64)>,
}

impl ChainHead {
    pub fn new(instance_id: Id) -> Self {
        ChainHead {
            instance_id,
            sequence: 0,
            hash: Digest::ZERO,
            recorded_at_us: i64::MIN,
            event_id: None,
            log_index: None,
            command_first: 1,
            holes: Vec::new(),
        }
    }

    /// Takes the next record. False where it is not the next of its chain.
    pub fn append(&mut self, header: &Header, findings: &mut Findings) -> bool {
        if header.sequence <= self.sequence {
            self.late(header, findings);
            return false;
        }
        let next = header.sequence == self.sequence + 1;
        if next {
            self.check_next(header, findings);
        } else if self.holes.len() < MOST_HOLES {
            self.holes.push((self.sequence + 1, header.sequence - 1));
        }
        if self.log_index.is_some_and(|before| before >= header.log_index) {
            let detail = format!("log_index {} does not ascend with the sequence", header.log_index);
            findings.find(Code::LogOrder, header, detail);
        }
        self.log_index = Some(header.log_index);
        if header.recorded_at_us != self.recorded_at_us || !next {
            self.command_first = header.sequence;
        }
        self.sequence = header.sequence;
        self.hash = header.record_hash;
        self.recorded_at_us = self.recorded_at_us.max(header.recorded_at_us);
        self.event_id = Some(header.event_id);
        true
    }

    fn check_next(&self, header: &Header, findings: &mut Findings) {
        if header.prev != self.hash {
            let detail = format!("`prev` is {}, the record before it has the hash {}", header.prev, self.hash);
            findings.find(Code::LinkBroken, header, detail);
        }
        if header.recorded_at_us < self.recorded_at_us {
            let detail =
                format!("recorded at {} µs, after a record of {} µs", header.recorded_at_us, self.recorded_at_us);
            findings.find(Code::TimeOrder, header, detail);
        }
        if self.event_id.is_some_and(|before| before >= header.event_id) {
            findings.find(Code::HeaderInvalid, header, "`event_id` does not sort after that of the record before it");
        }
    }

    /// A sequence at or below the head: it fills a hole, or it was there before.
    fn late(&mut self, header: &Header, findings: &mut Findings) {
        let sequence = header.sequence;
        let detail = format!("sequence {sequence} stands in records.jsonl after sequence {}", self.sequence);
        findings.find(Code::BundleForm, header, detail);
        let hole = self.holes.iter().position(|(first, last)| (*first..=*last).contains(&sequence));
        let Some(hole) = hole else {
            let detail = format!("sequence {sequence} of this instance appears a second time");
            return findings.find(Code::SequenceGap, header, detail);
        };
        let (first, last) = self.holes.swap_remove(hole);
        let rest = [(first, sequence.saturating_sub(1)), (sequence + 1, last)];
        self.holes.extend(rest.into_iter().filter(|(first, last)| first <= last));
    }

    /// At the end: what was never seen is missing.
    pub fn finish(&self, findings: &mut Findings) {
        for (first, last) in &self.holes {
            let what =
                if first == last { format!("sequence {first} is") } else { format!("sequences {first} to {last} are") };
            findings.find(Code::SequenceGap, Place::instance(self.instance_id), format!("{what} missing"));
        }
    }
}
