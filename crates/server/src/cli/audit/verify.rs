//! `countersign audit verify`: one record against its seal, one process, a sidecar's file, or the whole log.

use super::super::connection::Context;
use super::super::failure::Failure;
use super::super::output::{self, printable};
use super::super::table::{Table, Tint, tint};
use anyhow::Context as _;
use clap::Args;
use countersign_client::wire::{LogVerification, Progress, VerificationResult, VerifyLog, VerifyRecord};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Verify the whole log, one process or run, or one record
#[derive(Args)]
pub struct VerifyArgs {
    /// Verify only this record
    #[arg(long, value_name = "EVENT_ID", conflicts_with = "instance")]
    record: Option<String>,
    /// Verify only the records of this process or run
    #[arg(long, value_name = "INSTANCE")]
    instance: Option<String>,
    /// Compare a runbook's state.json with the ledger, and verify the records of its run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "instance"])]
    sidecar: Option<PathBuf>,
    /// With --record: compare the record with this payload, a JSON file [default: the server's payload]
    #[arg(long, value_name = "FILE", requires = "record")]
    payload: Option<PathBuf>,
    /// With --record: accept a record that is not sealed yet
    #[arg(long, requires = "record")]
    lenient: bool,
}

pub async fn run(context: &Context, args: VerifyArgs) -> anyhow::Result<()> {
    match (&args.record, &args.sidecar) {
        (Some(event_id), _) => one_record(context, event_id, &args).await,
        (None, Some(file)) => super::sidecar::verify(context, file).await,
        (None, None) => log(context, args.instance).await,
    }
}

async fn one_record(context: &Context, event_id: &str, args: &VerifyArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let payload = match &args.payload {
        Some(file) => {
            let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))?
        }
        None => client.record(event_id).await?.body.payload,
    };
    let request = VerifyRecord { event_id: event_id.to_owned(), payload, lenient: args.lenient.then_some(true) };
    let answer = client.verify_record(&request).await?;
    let verified = answer.body.result == VerificationResult::Verified;
    if context.json() {
        output::json(&answer.json)?;
    } else if verified {
        let what = "attested, unchanged, and under a signed checkpoint.";
        output::say(&format!("{} {what}", tint(Tint::Good, "Verified:")))?;
    } else {
        let code = answer.body.code.as_deref().unwrap_or("no reason given");
        output::say(&format!("{} {}", tint(Tint::Bad, "Failed verification:"), printable(code)))?;
    }
    if verified { Ok(()) } else { Err(Failure::Reported.into()) }
}

async fn log(context: &Context, instance_id: Option<String>) -> anyhow::Result<()> {
    let mut bar = Bar::new(context);
    let answer = context.client()?.verify_log(&VerifyLog { instance_id }, |progress| bar.draw(progress)).await;
    bar.clear();
    let answer = answer?;
    if context.json() {
        output::json(&answer.json)?;
    } else {
        output::say(&told(&answer.body))?;
    }
    match answer.body.result {
        VerificationResult::Verified => Ok(()),
        VerificationResult::FailedVerification => Err(Failure::Reported.into()),
    }
}

pub(super) fn told(verified: &LogVerification) -> String {
    if verified.result == VerificationResult::Verified {
        return format!(
            "{} {} records are as they were recorded; {} of the log are under a signed checkpoint.\n  {} {}",
            tint(Tint::Good, "Verified:"),
            verified.records,
            verified.size,
            tint(Tint::Dim, "root"),
            printable(&verified.root)
        );
    }
    let mut table = Table::new(["finding", "record", "what"]);
    for finding in &verified.findings {
        let event_id = finding.event_id.as_deref().unwrap_or("–");
        table.row([tint(Tint::Bad, &finding.code), printable(event_id), printable(&finding.detail)]);
    }
    let count = verified.findings.len();
    format!("{} {count} findings in {} records.\n{table}", tint(Tint::Bad, "Failed verification:"), verified.records)
}

/// How far it is, on one line of a terminal.
pub(super) struct Bar {
    shown: bool,
    drawn: bool,
}

impl Bar {
    const WIDTH: u64 = 40;

    pub(super) fn new(context: &Context) -> Self {
        Bar { shown: std::io::stderr().is_terminal() && !context.json(), drawn: false }
    }

    pub(super) fn draw(&mut self, progress: Progress) {
        if !self.shown || progress.of == 0 {
            return;
        }
        self.drawn = true;
        let Progress { verified, of } = progress;
        let filled = verified.saturating_mul(Self::WIDTH) / of;
        let line: String = (0..Self::WIDTH).map(|at| if at < filled { '█' } else { '░' }).collect();
        let _ = write!(std::io::stderr(), "\r{line} {verified} of {of}");
    }

    pub(super) fn clear(&self) {
        if self.drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}
