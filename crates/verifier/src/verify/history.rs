//! The checks of `verify` for a server that verifies its own store: it feeds the registry and then each instance, record by
//! record, with what its tables say of it. The log's tree, its checkpoints and the order in it are the server's to check,
//! because here no record brings a proof.

use super::Run;
use crate::bytes::Id;
use crate::finding::{Code, Finding, Findings, Place};
use crate::note::{Checkpoint, VerifierKey};
use crate::record::{self, Line, RawContent, Record};
use crate::state;

/// Documents are parsed again where more than so many are kept.
const MOST_DOCUMENTS: usize = 1000;

/// A record as a store holds it.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    pub event_id: [u8; 16],
    pub header: &'a [u8],
    /// None: it was purged, or somebody deleted it.
    pub content: Option<StoredContent<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct StoredContent<'a> {
    pub payload: &'a [u8],
    pub attestation: &'a [u8],
    pub salt: [u8; 32],
}

/// A store's history on its way through the checks. Memory: the registry, one instance, and a hash for each signed command.
pub struct History {
    run: Run,
    records: u64,
}

impl History {
    /// `in_process`: callers inside the server's process are known without a credential.
    pub fn new(in_process: bool) -> History {
        let mut run = Run::new(vec![], None, None, Findings::default());
        run.placed = false;
        run.in_process = in_process;
        History { run, records: 0 }
    }

    /// A document that the records which follow name by its digest.
    pub fn document(&mut self, body: &[u8]) {
        self.run.documents.add(body);
    }

    /// The next record of the registry. It may come between two instances.
    pub fn registry(&mut self, stored: &Stored<'_>) {
        if let Some(record) = self.read(stored) {
            if record.header.is_registry() {
                self.run.take_registry(record);
            } else {
                self.misplaced(&record);
            }
        }
    }

    /// Ends what belongs to the registry alone. `checkpoint`: the newest note, and the key that signed it.
    pub fn end_registry(&mut self, checkpoint: Option<(&str, &str)>) {
        self.run.end_bootstrap();
        self.run.registry_chain.finish(&mut self.run.findings);
        self.run.registry_retention.finish(&mut self.run.findings);
        self.run.identity.finish(&mut self.run.findings);
        let Some((note, key)) = checkpoint else { return };
        let (Ok(checkpoint), Ok(key)) = (Checkpoint::parse(note.as_bytes()), VerifierKey::parse(key)) else { return };
        self.run.checkpoint = Some(checkpoint);
        self.run.log_keys = vec![key];
        self.run.check_checkpoint_key();
    }

    /// One instance: its records by sequence, and the line of its rows as `state.jsonl` has it.
    pub fn instance<'s>(
        &mut self,
        instance_id: [u8; 16],
        records: impl Iterator<Item = Stored<'s>>,
        state: Option<&[u8]>,
    ) {
        self.run.end_bootstrap();
        for stored in records {
            let Some(record) = self.read(&stored) else { continue };
            if record.header.instance_id.0 != instance_id {
                self.misplaced(&record);
                continue;
            }
            if self.run.current.is_none() {
                self.run.begin_instance(&record);
            }
            self.run.take_process(&record);
        }
        let instance = self.run.finish_instance();
        self.run.identity.finish(&mut self.run.findings);
        self.run.documents.keep_at_most(MOST_DOCUMENTS);
        let Some(line) = state else { return };
        let findings = &mut self.run.findings;
        match (state::parse(line), instance) {
            (Err(fault), _) => findings.fault(&fault, Code::BundleForm, Place::instance(Id(instance_id)), "its rows"),
            (Ok(_), Some(instance)) if instance.governance.is_some() => {}
            (Ok(line), Some(instance)) => {
                let run = instance.run.as_ref();
                state::compare(&line, &instance.process, run, instance.chain.sequence, findings);
            }
            (Ok(_), None) => {
                let detail = "the stores hold an instance that has no records";
                findings.find(Code::RecordMissing, Place::instance(Id(instance_id)), detail);
            }
        }
    }

    /// A grant as its row says, in the form of `grants.jsonl`; all of them, then `end_grants`.
    pub fn grants<'l>(&mut self, lines: impl Iterator<Item = &'l [u8]>) {
        let mut seen = state::GrantsSeen::default();
        for line in lines {
            state::compare_grants(line, &self.run.registry, &mut seen, &mut self.run.findings);
        }
        state::finish_grants(&self.run.registry, &seen, &mut self.run.findings);
    }

    /// What was found since the last time, and how many more there were than are kept.
    pub fn findings(&mut self) -> (Vec<Finding>, u64) {
        self.run.findings.drain()
    }

    fn read(&mut self, stored: &Stored<'_>) -> Option<Record> {
        // Stands in for the place in the log: it only has to ascend.
        self.records += 1;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let content = stored.content.map(|content| {
            let parts = text(content.payload).zip(text(content.attestation));
            parts.map(|(payload, attestation)| RawContent { payload, attestation, salt: content.salt })
        });
        let place = || Place { event_id: Some(Id(stored.event_id)), ..Place::default() };
        let (Some(header), content @ (None | Some(Some(_)))) = (text(stored.header), content) else {
            self.run.findings.find(Code::HeaderInvalid, place(), "a part of the record is no UTF-8");
            return None;
        };
        let line = Line { log_index: self.records, header, content: content.flatten(), proof: vec![] };
        let record = record::read_record(&line, &mut self.run.findings)?;
        if record.header.event_id.0 != stored.event_id {
            self.run.findings.find(Code::HeaderInvalid, place(), "its header is of another record");
        }
        Some(record)
    }

    fn misplaced(&mut self, record: &Record) {
        self.run.findings.find(Code::HeaderInvalid, &record.header, "its header is of another instance");
    }
}
