//! `state.jsonl`, read beside the records: one line per process, in the same order.

use super::Instance;
use crate::archive::{self, Archive, Lines};
use crate::bytes::Id;
use crate::finding::{Code, Findings, Place};
use crate::state::{self, StateLine};
use std::io::{Read, Seek};

pub struct Stores<'a, R: Read + Seek> {
    lines: Option<Lines<'a, R>>,
    /// Read, and not asked for yet.
    waiting: Option<StateLine>,
    last: Option<Id>,
}

impl<'a, R: Read + Seek> Stores<'a, R> {
    pub fn open(archive: &'a mut Archive<R>, findings: &mut Findings) -> Self {
        Stores { lines: archive.lines(archive::STATE, findings), waiting: None, last: None }
    }

    /// The stores' line of a process whose records were read, against them.
    pub fn compare(&mut self, instance: &Instance, findings: &mut Findings) {
        match self.take(instance.id, findings) {
            Some(line) => {
                let run = instance.run.as_ref();
                state::compare(&line, &instance.process, run, instance.chain.sequence, findings);
            }
            None => {
                let detail = "its records are here, and the stores do not hold it";
                findings.find(Code::RowMissing, Place::instance(instance.id), detail);
            }
        }
    }

    /// After the last process: lines that nobody asked for.
    pub fn finish(&mut self, findings: &mut Findings) {
        while let Some(line) = self.next(findings) {
            self.without_records(&line, findings);
        }
    }

    fn take(&mut self, id: Id, findings: &mut Findings) -> Option<StateLine> {
        loop {
            let line = self.next(findings)?;
            if line.instance_id == id {
                return Some(line);
            }
            if line.instance_id > id {
                self.waiting = Some(line);
                return None;
            }
            self.without_records(&line, findings);
        }
    }

    fn without_records(&mut self, line: &StateLine, findings: &mut Findings) {
        let detail = "the stores hold a process whose records are not in the bundle";
        findings.find(Code::RecordMissing, Place::instance(line.instance_id), detail);
        self.bad(findings);
    }

    fn bad(&mut self, findings: &mut Findings) {
        if let Some(lines) = &mut self.lines {
            lines.bad(findings);
        }
    }

    fn next(&mut self, findings: &mut Findings) -> Option<StateLine> {
        if let Some(line) = self.waiting.take() {
            return Some(line);
        }
        loop {
            let line = match state::parse(self.lines.as_mut()?.next(findings)?) {
                Ok(line) => line,
                Err(fault) => {
                    findings.fault(&fault, Code::BundleForm, Place::bundle(), archive::STATE);
                    self.bad(findings);
                    continue;
                }
            };
            if self.last.is_none_or(|last| last < line.instance_id) {
                self.last = Some(line.instance_id);
                return Some(line);
            }
            let detail = "state.jsonl is not in the order of `instance_id`, or holds it twice";
            findings.find(Code::BundleForm, Place::instance(line.instance_id), detail);
            self.bad(findings);
        }
    }
}
