//! The order of checks: one pass over the bundle, records one at a time. The registry comes first and stays in memory;
//! of the processes only one is there at a time, and goes when its chain and its line of the stores were compared.

mod history;
mod rotations;
mod stores;
mod tail;

pub use history::{History, Stored, StoredContent};

use crate::archive::{self, Archive, Unreadable};
use crate::bytes::{Id, REGISTRY, sha256};
use crate::chain::ChainHead;
use crate::finding::{Claim, Code, Findings, Place};
use crate::governance::Governance;
use crate::identity::{self, Identity, Signing};
use crate::json::Value;
use crate::manifest::{self, Manifest, Scope};
use crate::note::{Checkpoint, VerifierKey};
use crate::origins::Origins;
use crate::permission::{self, Kind, Origin};
use crate::policy::Trust;
use crate::process::document::Documents;
use crate::process::{self, Names, Process};
use crate::record::{self, Action, Record};
use crate::registry::Registry;
use crate::replays::Replays;
use crate::retention::Retention;
use crate::run;
use crate::state;
use crate::story::Story;
use crate::tree;
use crate::verdict::Verdict;
use std::io::{Read, Seek};
use stores::Stores;
use tail::Heads;

/// How much is gathered besides the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Verdict,
    /// Timeline and gates, for a report.
    Report,
}

/// Checks a bundle against the keys and witnesses that the caller trusts.
pub fn verify<R: Read + Seek>(reader: R, trust: &Trust, detail: Detail) -> Result<Verdict, Unreadable> {
    let mut archive = Archive::open(reader)?;
    let mut findings = Findings::default();
    archive.check_files(&mut findings);
    // What it says proves nothing and is not looked at; that it can be read belongs to the form.
    archive.small(archive::LOG_KEY, &mut findings);
    let manifest = read_manifest(&mut archive, &mut findings);
    let checkpoint = read_checkpoint(&mut archive, manifest.as_ref(), &mut findings);
    let log_keys = rotations::follow(&mut archive, checkpoint.as_ref(), &trust.log_keys, &mut findings);
    if let Some(checkpoint) = &checkpoint {
        check_signatures(checkpoint, &log_keys, trust, &mut findings);
    }
    let mut run = Run::new(log_keys, manifest, checkpoint, findings);
    run.story.told = detail == Detail::Report;
    run.story.whole = run.manifest.as_ref().is_some_and(|manifest| matches!(manifest.scope, Scope::Instance(_)));
    run.read_documents(&mut archive);
    run.read_records(&mut archive);
    run.check_counts();
    run.check_tail();
    run.check_checkpoint_key();
    run.read_grants(&mut archive);
    Ok(run.into_verdict())
}

/// The key that the bundle itself names. It proves nothing; people compare it with the one they were given.
pub fn bundled_key<R: Read + Seek>(reader: R) -> Result<Option<String>, Unreadable> {
    let mut archive = Archive::open(reader)?;
    let bytes = archive.small(archive::LOG_KEY, &mut Findings::default());
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(|text| text.trim().to_owned()))
}

fn read_manifest<R: Read + Seek>(archive: &mut Archive<R>, findings: &mut Findings) -> Option<Manifest> {
    let bytes = archive.small(archive::MANIFEST, findings)?;
    match manifest::parse(&bytes) {
        Ok(manifest) => Some(manifest),
        Err(fault) => {
            findings.fault(&fault, Code::BundleForm, Place::bundle(), archive::MANIFEST);
            None
        }
    }
}

fn read_checkpoint<R: Read + Seek>(
    archive: &mut Archive<R>,
    manifest: Option<&Manifest>,
    findings: &mut Findings,
) -> Option<Checkpoint> {
    let bytes = archive.small(archive::CHECKPOINT, findings)?;
    let checkpoint = match Checkpoint::parse(&bytes) {
        Ok(checkpoint) => checkpoint,
        Err(problem) => {
            findings.find(Code::CheckpointInvalid, Place::bundle(), problem);
            return None;
        }
    };
    if let Some(manifest) = manifest {
        let stated = (manifest.origin.as_str(), manifest.tree_size);
        if stated != (checkpoint.origin.as_str(), checkpoint.size) {
            let detail = format!(
                "the manifest is of {}@{}, the checkpoint of {}@{}",
                stated.0, stated.1, checkpoint.origin, checkpoint.size
            );
            findings.find(Code::CheckpointInvalid, Place::bundle(), detail);
        }
    }
    Some(checkpoint)
}

fn check_signatures(checkpoint: &Checkpoint, log_keys: &[VerifierKey], trust: &Trust, findings: &mut Findings) {
    if !log_keys.iter().any(|key| checkpoint.signed_by(key)) {
        let detail =
            format!("no trusted log key signed it; it bears signatures of {}", checkpoint.signers().join(", "));
        findings.find(Code::CheckpointInvalid, Place::bundle(), detail);
    }
    if let Err(detail) = trust.witnessed(checkpoint) {
        findings.find(Code::WitnessQuorum, Place::bundle(), detail);
    }
}

/// The process whose records are arriving.
struct Instance {
    id: Id,
    chain: ChainHead,
    process: Process,
    /// Where it is a run: what its steps did.
    run: Option<run::Run>,
    /// Where it is the governance chain, which is neither.
    governance: Option<Governance>,
    retention: Retention,
    in_window: bool,
    export: Option<Export>,
}

/// The last record of a chain, where it is an export.
struct Export {
    sequence: u64,
    payload: Value,
}

impl Export {
    fn of(record: &Record) -> Option<Export> {
        let payload = record.payload().filter(|_| record.header.action == Action::EvidenceExported)?;
        Some(Export { sequence: record.header.sequence, payload: payload.clone() })
    }
}

struct Run {
    /// Trusted, or followed from a trusted one.
    log_keys: Vec<VerifierKey>,
    manifest: Option<Manifest>,
    checkpoint: Option<Checkpoint>,
    findings: Findings,
    documents: Documents,
    registry: Registry,
    registry_chain: ChainHead,
    registry_retention: Retention,
    registry_export: Option<Export>,
    /// Records of the very first command wait for its end: they register the keys that they are signed with.
    bootstrap: Vec<Record>,
    identity: Identity,
    names: Names,
    current: Option<Box<Instance>>,
    /// The last process that ended: they come in the order of their ids.
    last_id: Option<Id>,
    /// Over the heads of the processes so far.
    heads: Heads,
    /// The export that ends the process in scope.
    instance_export: Option<Export>,
    lines: u64,
    instances: u64,
    /// Each record comes with its place in the log.
    placed: bool,
    /// Callers inside the server's process need no credential.
    in_process: bool,
    story: Story,
    origins: Origins,
    replays: Replays,
}

impl Run {
    fn new(
        log_keys: Vec<VerifierKey>,
        manifest: Option<Manifest>,
        checkpoint: Option<Checkpoint>,
        findings: Findings,
    ) -> Self {
        Run {
            log_keys,
            manifest,
            checkpoint,
            findings,
            documents: Documents::default(),
            registry: Registry::default(),
            registry_chain: ChainHead::new(REGISTRY),
            registry_retention: Retention::default(),
            registry_export: None,
            bootstrap: vec![],
            identity: Identity::default(),
            names: Names::default(),
            current: None,
            last_id: None,
            heads: Heads::default(),
            instance_export: None,
            lines: 0,
            instances: 0,
            placed: true,
            in_process: false,
            story: Story::default(),
            origins: Origins::default(),
            replays: Replays::default(),
        }
    }

    fn read_documents<R: Read + Seek>(&mut self, archive: &mut Archive<R>) {
        let Some(mut lines) = archive.lines(archive::DOCUMENTS, &mut self.findings) else { return };
        while let Some(line) = lines.next(&mut self.findings) {
            if !self.documents.take(line, &mut self.findings) {
                lines.bad(&mut self.findings);
            }
        }
    }

    /// Records and stores side by side: both come process by process.
    fn read_records<R: Read + Seek>(&mut self, archive: &mut Archive<R>) {
        let mut twin = archive.twin();
        let mut stores = Stores::open(&mut twin, &mut self.findings);
        if let Some(mut lines) = archive.lines(archive::RECORDS, &mut self.findings) {
            while let Some(line) = lines.next(&mut self.findings) {
                self.lines += 1;
                if self.manifest.as_ref().is_some_and(|manifest| self.lines > manifest.records) {
                    break;
                }
                if !self.read_line(line, &mut stores) {
                    lines.bad(&mut self.findings);
                }
            }
        }
        self.end_bootstrap();
        self.end_instance(&mut stores);
        self.registry_chain.finish(&mut self.findings);
        self.registry_retention.finish(&mut self.findings);
        stores.finish(&mut self.findings);
        self.identity.finish(&mut self.findings);
    }

    /// False where the line cannot be read.
    fn read_line<R: Read + Seek>(&mut self, line: &[u8], stores: &mut Stores<'_, R>) -> bool {
        let line = match record::parse_line(line) {
            Ok(line) => line,
            Err(fault) => {
                let what = format!("records.jsonl, line {}", self.lines);
                self.findings.fault(&fault, Code::BundleForm, Place::bundle(), &what);
                return false;
            }
        };
        self.findings.checked(Claim::Integrity);
        let record = record::read_record(&line, &mut self.findings);
        self.check_inclusion(&line, record.as_ref());
        if let Some(record) = record {
            self.take(record, stores);
        }
        true
    }

    fn check_inclusion(&mut self, line: &record::Line, record: Option<&Record>) {
        let Some(checkpoint) = &self.checkpoint else { return };
        let leaf = sha256(&[&[0], line.header.as_bytes()]);
        if tree::root_of(&leaf, line.log_index, checkpoint.size, &line.proof) == Some(checkpoint.root) {
            return;
        }
        let place = record.map_or(Place::line(line.log_index), |record| Place::from(&record.header));
        let detail = format!(
            "the proof of {} hashes does not lead from this header at log_index {} to the root of the {} entries",
            line.proof.len(),
            line.log_index,
            checkpoint.size
        );
        self.findings.find(Code::InclusionInvalid, place, detail);
    }

    fn take<R: Read + Seek>(&mut self, record: Record, stores: &mut Stores<'_, R>) {
        if record.header.is_registry() {
            if self.current.is_some() {
                let detail =
                    "records.jsonl does not begin with the registry: this record of it stands after a process's";
                self.findings.find(Code::BundleForm, &record.header, detail);
            }
            return self.take_registry(record);
        }
        self.end_bootstrap();
        let id = record.header.instance_id;
        if self.current.as_ref().is_none_or(|current| current.id != id) {
            self.end_instance(stores);
            self.begin_instance(&record);
        }
        self.take_process(&record);
    }

    fn begin_instance(&mut self, record: &Record) {
        let id = record.header.instance_id;
        if self.last_id.is_some_and(|last| last >= id) {
            let detail = "records.jsonl is not in the order of `instance_id`";
            self.findings.find(Code::BundleForm, &record.header, detail);
        }
        self.current = Some(Box::new(Instance {
            id,
            chain: ChainHead::new(id),
            process: Process::new(id),
            governance: record.header.is_governance().then(Governance::default),
            run: (record.header.action == Action::RunStarted).then(run::Run::new),
            retention: Retention::default(),
            in_window: false,
            export: None,
        }));
    }

    /// After the last record of a process: what it still owes, and what the stores say of it. Then it goes.
    fn end_instance<R: Read + Seek>(&mut self, stores: &mut Stores<'_, R>) {
        let Some(instance) = self.finish_instance() else { return };
        if instance.governance.is_none() {
            stores.compare(&instance, &mut self.findings);
            self.story.process(&instance.process, instance.run.as_ref(), &instance.chain, &self.registry);
        }
        self.heads.add(instance.id, &instance.chain);
        self.instances += 1;
        self.last_id = Some(instance.id);
        self.check_scope(*instance);
    }

    /// What the records of the process that ends here still owe.
    fn finish_instance(&mut self) -> Option<Box<Instance>> {
        let mut instance = self.current.take()?;
        instance.chain.finish(&mut self.findings);
        instance.retention.finish(&mut self.findings);
        if let Some(governance) = &mut instance.governance {
            self.replays.chain(std::mem::take(&mut governance.asked), &mut self.findings);
            return Some(instance);
        }
        let mut ctx = process::Context {
            registry: &self.registry,
            documents: &self.documents,
            names: &mut self.names,
            findings: &mut self.findings,
        };
        if let Some(run) = &mut instance.run {
            run.finish(&instance.process, &mut ctx);
        }
        instance.process.finish(&mut ctx);
        self.origins.take(&instance.process, instance.run.as_ref(), &mut self.findings);
        if instance.process.is_replay() {
            let (replay, lost) = (&instance.process.replay, !instance.process.purged_events.is_empty());
            self.replays.request(instance.id, replay.letter(), replay.approved, lost, &mut self.findings);
        }
        for retry in instance.run.iter_mut().flat_map(|run| std::mem::take(&mut run.retries)) {
            self.replays.retry(retry, &mut self.findings);
        }
        self.names.forget();
        Some(instance)
    }

    fn take_registry(&mut self, record: Record) {
        let header = &record.header;
        if !self.registry_chain.append(header, &mut self.findings) {
            return;
        }
        let before = self.registry_chain.command_first - 1;
        if header.registry_seq != before {
            let detail =
                format!("it states registry record {}, the last before its command is {before}", header.registry_seq);
            self.findings.find(Code::RegistryOrder, header, detail);
        }
        self.registry.apply(&record, &mut self.findings);
        self.registry_retention.take(&record, &mut self.findings);
        self.registry_export = Export::of(&record);
        if self.registry.is_bootstrap(header) {
            self.bootstrap.push(record);
            return;
        }
        self.end_bootstrap();
        let signing = self.check_identity(&record, record.header.registry_seq, self.registry_chain.command_first);
        permission::check(&record, Origin::None, Kind::Process, &self.registry, &mut self.findings);
        self.story.record(&record, &signing);
    }

    fn end_bootstrap(&mut self) {
        for record in std::mem::take(&mut self.bootstrap) {
            self.story.count(&record.header);
            self.check_identity(&record, self.registry.bootstrap_end, 1);
        }
    }

    fn check_identity(&mut self, record: &Record, at: u64, command_first: u64) -> Signing {
        let is_run = self.current.as_ref().is_some_and(|current| current.run.is_some());
        let is_proposal = self.current.as_ref().is_some_and(|current| current.process.is_proposal());
        let is_replay = self.current.as_ref().is_some_and(|current| current.process.is_replay());
        let context = identity::Context {
            registry: &self.registry,
            at,
            command_first,
            documents: &self.documents,
            is_run,
            is_proposal,
            is_replay,
            in_process: self.in_process,
        };
        self.identity.check(record, &context, &mut self.findings)
    }

    fn take_process(&mut self, record: &Record) {
        let header = &record.header;
        if self.placed && !self.registry.in_force(header.registry_seq, header.log_index) {
            let detail =
                format!("registry record {} is not the last one that stands before it in the log", header.registry_seq);
            self.findings.find(Code::RegistryOrder, header, detail);
        }
        let within = self.is_in_window(header.recorded_at_us);
        let Some(instance) = &mut self.current else { return };
        if !instance.chain.append(header, &mut self.findings) {
            return;
        }
        instance.in_window |= within;
        instance.export = Export::of(record);
        instance.retention.take(record, &mut self.findings);
        if let Some(governance) = &mut instance.governance {
            governance.take(record, &self.registry, &mut self.findings);
            let first = instance.chain.command_first;
            let signing = self.check_identity(record, record.header.registry_seq, first);
            return self.story.record(record, &signing);
        }
        let mut ctx = process::Context {
            registry: &self.registry,
            documents: &self.documents,
            names: &mut self.names,
            findings: &mut self.findings,
        };
        if let Some(run) = &mut instance.run {
            run.before(&record.header, &instance.process, &mut ctx);
        }
        instance.process.take(record, &mut ctx);
        if let Some(run) = &mut instance.run {
            run.take(record, &instance.process, &mut ctx);
        }
        let origin = match instance.process.definition_name() {
            Some(name) => Origin::Definition(name),
            None if instance.process.is_start_purged() => Origin::Purged,
            None => Origin::None,
        };
        let kind = match &instance.run {
            None if instance.process.is_proposal() => Kind::Proposal,
            None if instance.process.is_replay() => Kind::Replay,
            None => Kind::Process,
            Some(run) if run.is_child() => Kind::Child,
            Some(_) => Kind::Run,
        };
        permission::check(record, origin, kind, &self.registry, &mut self.findings);
        let first = instance.chain.command_first;
        let signing = self.check_identity(record, record.header.registry_seq, first);
        self.story.record(record, &signing);
    }

    fn is_in_window(&self, at_us: i64) -> bool {
        match self.manifest.as_ref().map(|manifest| &manifest.scope) {
            Some(Scope::Window { after_us, before_us }) => {
                after_us.is_none_or(|after| after <= at_us) && before_us.is_none_or(|before| at_us <= before)
            }
            _ => true,
        }
    }

    fn read_grants<R: Read + Seek>(&mut self, archive: &mut Archive<R>) {
        let mut seen = state::GrantsSeen::default();
        if let Some(mut lines) = archive.lines(archive::GRANTS, &mut self.findings) {
            while let Some(line) = lines.next(&mut self.findings) {
                if !state::compare_grants(line, &self.registry, &mut seen, &mut self.findings) {
                    lines.bad(&mut self.findings);
                }
            }
        }
        state::finish_grants(&self.registry, &seen, &mut self.findings);
    }

    fn into_verdict(self) -> Verdict {
        let questions = self.story.questions(&self.registry);
        let uncovered = self.story.uncovered(&self.registry);
        Verdict::new(
            self.manifest,
            self.checkpoint,
            (self.lines, self.instances),
            &self.findings,
            (questions, uncovered),
            self.story,
        )
    }
}
