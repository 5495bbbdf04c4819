//! Evidence bundles: `spec/bundle.md` in code. The engine reads what belongs into one; here it becomes a ZIP file.

mod lines;

use anyhow::Context;
use countersign_engine::Engine;
use countersign_engine::evidence::{Exporter, Heads, Scope, Sealed, View, lines as rows, run_lines};
use countersign_engine::port::{ProcessView, Range};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{Digest, EventId, InstanceId};
use countersign_ledger::Unwritable;
use countersign_ledger::document::{Document, published_gates_document};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::time::Duration;
use zip::write::{SimpleFileOptions, ZipWriter};

/// How long an export waits for the witnesses' cosignatures, where there are witnesses.
const COSIGNATURES: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the bundle could not be written: {0:#}")]
    Failed(#[from] anyhow::Error),
}

/// What was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub evidence_id: String,
    pub instances: u64,
    pub records: u64,
}

type Documents = BTreeMap<Digest, std::sync::Arc<[u8]>>;

/// Makes a bundle in a nameless temporary file and returns it from its beginning on. `cosignatures` are waited for.
pub async fn export(
    engine: &Engine,
    exporter: &Exporter,
    scope: &Scope,
    cosignatures: usize,
) -> Result<(File, Summary), ExportError> {
    engine.require_export(&exporter.actor_ref).await?;
    let mut taken = Taken::new()?;
    let event_id = match scope {
        Scope::Instance(instance_id) => {
            let (view, event_id) = engine.export_instance(exporter, *instance_id).await?;
            taken.take(engine, &view)?;
            event_id
        }
        Scope::Window(window) => {
            taken.take_window(engine, window).await?;
            engine.export_window(exporter, window, taken.heads.clone()).await?
        }
    };
    let sealed = cosigned(engine, event_id, cosignatures).await?;
    write_bundle(engine, exporter, scope, taken, &sealed).await
}

/// What is put aside until its place in the bundle comes: on disk, for there may be many instances.
struct Taken {
    state: BufWriter<File>,
    /// Where each chain ends, a line each.
    ends: BufWriter<File>,
    heads: Heads,
    documents: Documents,
}

fn temporary() -> anyhow::Result<File> {
    tempfile::tempfile().context("there is no room for a temporary file")
}

fn from_the_beginning(written: BufWriter<File>) -> anyhow::Result<BufReader<File>> {
    let mut file = written.into_inner().context("the temporary file cannot be written")?;
    file.rewind().context("the temporary file cannot be read")?;
    Ok(BufReader::new(file))
}

impl Taken {
    fn new() -> anyhow::Result<Taken> {
        let (state, ends) = (BufWriter::new(temporary()?), BufWriter::new(temporary()?));
        Ok(Taken { state, ends, heads: Heads::default(), documents: Documents::new() })
    }

    /// The state of an instance.
    fn take(&mut self, engine: &Engine, view: &View) -> anyhow::Result<()> {
        let documents = &mut self.documents;
        let line = match view {
            View::Governance(_) => String::new(),
            View::Process(view) => {
                documents.insert(view.row.declaration_digest, view.declaration.clone());
                documents.insert(view.row.gate_spec_digest, view.gate_spec.clone());
                if let Some(published) = published_gates(engine, view).transpose()? {
                    documents.insert(published.digest, published.bytes.into());
                }
                rows::state(view)
            }
            View::Run(run) => {
                documents.insert(run.view.row.document_digest, run.document.clone());
                if let (Some(machine), Some(document)) = (&run.view.row.machine, &run.machine) {
                    documents.insert(machine.digest, document.clone());
                }
                for document in [&run.declaration, &run.gate_spec] {
                    documents.insert(document.digest, document.bytes.as_slice().into());
                }
                run_lines::state(run)
            }
        };
        let end = self.heads.add(view.instance_id(), view.head());
        self.state.write_all(line.as_bytes()).context("the temporary file cannot be written")?;
        self.ends.write_all(end.as_bytes()).context("the temporary file cannot be written")
    }

    async fn take_window(&mut self, engine: &Engine, window: &Range) -> Result<(), ExportError> {
        let mut after = None;
        loop {
            let found = engine.instances_in(window, after).await?;
            let Some(last) = found.last() else { return Ok(()) };
            after = Some(*last);
            for instance_id in found {
                let view = engine.export_view(instance_id).await?;
                self.take(engine, &view)?;
            }
        }
    }
}

/// Who approves by the definition that the process was started from: what a start replaced is held against it.
fn published_gates(engine: &Engine, view: &ProcessView) -> Option<Result<Document, Unwritable>> {
    let (name, version) = view.row.definition.as_ref()?;
    let registry = engine.registry();
    registry.definition(name, Some(*version)).map(|definition| published_gates_document(&definition.gate_spec))
}

/// An instance, and the sequence at which its chain ends here.
fn end_of_chain(line: &str) -> Option<(InstanceId, u64)> {
    let mut words = line.split(' ');
    Some((InstanceId::parse(words.next()?)?, words.next()?.parse().ok()?))
}

/// The seal over this record, with as many cosignatures as come in time.
async fn cosigned(engine: &Engine, event_id: EventId, cosignatures: usize) -> Result<Sealed, Refusal> {
    let until = tokio::time::Instant::now() + COSIGNATURES;
    loop {
        let sealed = engine.seal_for_export(event_id).await?;
        // The log's own signature is one line, each witness another.
        let signatures = sealed.checkpoint.note.lines().filter(|line| line.starts_with('\u{2014}')).count();
        if signatures > cosignatures || tokio::time::Instant::now() > until {
            return Ok(sealed);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn write_bundle(
    engine: &Engine,
    exporter: &Exporter,
    scope: &Scope,
    taken: Taken,
    sealed: &Sealed,
) -> Result<(File, Summary), ExportError> {
    let Taken { state, ends, heads, documents } = taken;
    let mut bundle = Bundle { zip: ZipWriter::new(BufWriter::new(temporary()?)) };

    bundle.begin("records.jsonl")?;
    let mut records = bundle.chain(engine, InstanceId::REGISTRY, sealed.registry_sequence, sealed).await?;
    for line in from_the_beginning(ends)?.lines() {
        let line = line.context("the temporary file cannot be read")?;
        let (instance_id, sequence) = end_of_chain(&line).context("the temporary file has changed")?;
        records += bundle.chain(engine, instance_id, sequence, sealed).await?;
    }
    bundle.begin("state.jsonl")?;
    bundle.copy(from_the_beginning(state)?)?;
    bundle.begin("documents.jsonl")?;
    for (digest, body) in &documents {
        bundle.line(&lines::document(digest, body))?;
    }
    bundle.begin("grants.jsonl")?;
    for grant in engine.grants_at(sealed.registry_sequence) {
        bundle.line(&rows::grant(&grant))?;
    }
    bundle.begin("checkpoint")?;
    bundle.line(&sealed.checkpoint.note)?;
    bundle.begin("log.vkey")?;
    bundle.line(&format!("{}\n", sealed.verifier_key))?;
    let rotations: Vec<_> =
        engine.log_rotations().await?.into_iter().filter(|row| row.size <= sealed.checkpoint.size).collect();
    if !rotations.is_empty() {
        bundle.begin("rotations.jsonl")?;
        for row in rotations {
            let proof = engine.consistency(row.size, sealed.checkpoint.size).await?.proof;
            bundle.line(&lines::rotation(&row, &proof))?;
        }
    }
    bundle.begin("bundle.json")?;
    let made = lines::Made { by: &exporter.actor_ref, at: engine.now(), instances: heads.count, records };
    bundle.line(&lines::manifest(scope, sealed, &made))?;

    let mut file = bundle.finish()?;
    file.rewind().context("the temporary file cannot be read")?;
    let summary = Summary {
        evidence_id: format!("{}@{}", sealed.origin, sealed.checkpoint.size),
        instances: heads.count,
        records,
    };
    Ok((file, summary))
}

struct Bundle {
    zip: ZipWriter<BufWriter<File>>,
}

impl Bundle {
    fn begin(&mut self, name: &str) -> anyhow::Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .large_file(true)
            .unix_permissions(0o644);
        self.zip.start_file(name, options).with_context(|| format!("{name} cannot be begun"))
    }

    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        self.zip.write_all(text.as_bytes()).context("the bundle cannot be written")
    }

    fn copy(&mut self, mut from: impl Read) -> anyhow::Result<()> {
        std::io::copy(&mut from, &mut self.zip).context("the bundle cannot be written")?;
        Ok(())
    }

    /// The records of one chain up to its head; how many they are.
    async fn chain(
        &mut self,
        engine: &Engine,
        instance_id: InstanceId,
        through: u64,
        sealed: &Sealed,
    ) -> Result<u64, ExportError> {
        let (mut written, mut after) = (0, None);
        while written < through {
            let placed = engine.export_chain(instance_id, after, through, sealed.checkpoint.size).await?;
            let Some(last) = placed.last() else {
                return Err(anyhow::anyhow!("the chain of {instance_id} ends at {written}, not at {through}").into());
            };
            after = Some(last.row.event_id);
            for record in &placed {
                self.line(&lines::record(record)?)?;
            }
            written += placed.len() as u64;
        }
        Ok(written)
    }

    fn finish(self) -> anyhow::Result<File> {
        let buffered = self.zip.finish().context("the bundle cannot be finished")?;
        buffered.into_inner().context("the bundle cannot be written out")
    }
}
