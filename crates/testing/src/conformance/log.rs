//! The log: records get their places once, in one order that the specification allows, and only under a lease.

use super::{Bench, older};
use crate::place::{Kind, Place};
use anyhow::{Context, ensure};
use countersign_engine::port::log::{
    Append, CheckpointRow, LeaseToken, LogIdentity, LogReader, LogWriter, Node, RotationRow, Span, Unsealed, Written,
};
use countersign_engine::port::{RecordQuery, StoreError};
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use countersign_ledger::record::Header;
use countersign_ledger::sha256;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

struct Log {
    writer: Box<dyn LogWriter>,
    reader: Arc<dyn LogReader>,
    lease: LeaseToken,
}

impl Log {
    async fn lead(place: &Place) -> anyhow::Result<Log> {
        let (mut writer, reader) = place.store().await?.log()?;
        let lease = writer.take_lease("leader", LONG).await?.context("the lease is free")?;
        Ok(Log { writer, reader, lease })
    }

    fn append(&self, from_index: u64, entries: Vec<Unsealed>) -> Append {
        Append { lease: self.lease, from_index, entries, nodes: vec![] }
    }

    /// What comes next, at most `limit`. Transactions anywhere in a shared database may hold records back for a moment.
    async fn unsealed(&mut self, limit: usize) -> anyhow::Result<Vec<Unsealed>> {
        loop {
            let found = self.writer.unsealed(limit).await?;
            let waiting = usize::try_from(self.reader.count_unsealed(100_000).await?)?;
            if found.len() >= limit.min(waiting) {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Takes everything into the log, a few at a time.
    async fn seal_all(&mut self, at_a_time: usize) -> anyhow::Result<Vec<Unsealed>> {
        let mut all = vec![];
        loop {
            let found = self.unsealed(at_a_time).await?;
            if found.is_empty() {
                return Ok(all);
            }
            ensure!(found.len() <= at_a_time, "more than asked for");
            let append = self.append(self.reader.size().await?, found.clone());
            ensure!(self.writer.append(&append).await? == Written::Done);
            all.extend(found);
        }
    }
}

pub async fn an_empty_log_says_so(place: &Place) -> anyhow::Result<()> {
    let mut log = Log::lead(place).await?;
    ensure!(log.reader.identity().await?.is_none());
    ensure!(log.reader.size().await? == 0);
    ensure!(log.reader.newest().await?.is_none());
    ensure!(log.reader.count_unsealed(10).await? == 0);
    ensure!(log.writer.unsealed(10).await?.is_empty());
    ensure!(log.reader.entries(0, 10).await?.is_empty());
    ensure!(log.reader.skipped(10).await?.is_empty());
    ensure!(log.reader.latest_checkpoint().await?.is_none());
    let id = EventId(uuid::Uuid::nil());
    ensure!(log.reader.index_of(&[id]).await? == [None]);
    // The rows of the registry and of the governance chain are there from the start.
    let heads = log.reader.heads(None, 10).await?;
    let ids: Vec<InstanceId> = heads.iter().map(|(instance_id, _)| *instance_id).collect();
    ensure!(ids == [InstanceId::REGISTRY, InstanceId::GOVERNANCE], "{ids:?}");
    ensure!(heads.iter().all(|(_, head)| head.sequence == 0), "{heads:?}");
    Ok(())
}

pub async fn a_log_is_named_once(place: &Place) -> anyhow::Result<()> {
    let mut log = Log::lead(place).await?;
    let first = LogIdentity { origin: "a".into(), verifier_key: "a+1".into() };
    ensure!(log.writer.begin(&first).await? == first);
    let second = LogIdentity { origin: "b".into(), verifier_key: "b+2".into() };
    ensure!(log.writer.begin(&second).await? == first, "renamed");
    ensure!(log.reader.identity().await? == Some(first));
    Ok(())
}

/// `spec/checkpoint.md`, section 1, for records in the order of the log.
pub fn require_order(headers: &[Header]) -> anyhow::Result<()> {
    let registry = InstanceId::REGISTRY.to_string();
    let mut heads: HashMap<&str, u64> = HashMap::new();
    for (i, header) in headers.iter().enumerate() {
        let head = heads.entry(&header.instance_id).or_default();
        ensure!(header.sequence == *head + 1, "entry {i}: sequence {} follows {head}", header.sequence);
        *head = header.sequence;
        if header.instance_id != registry {
            let reached = heads.get(registry.as_str()).copied().unwrap_or(0);
            ensure!(
                header.registry_seq == reached,
                "entry {i}: decided under {}, after {reached}",
                header.registry_seq
            );
        }
    }
    Ok(())
}

/// The headers of the log's entries, which must be the records themselves.
pub async fn headers(reader: &dyn LogReader) -> anyhow::Result<Vec<Header>> {
    let mut headers: Vec<Header> = vec![];
    loop {
        let page = reader.entries(headers.len() as u64, 7).await?;
        if page.is_empty() {
            return Ok(headers);
        }
        for entry in page {
            ensure!(entry.log_index == headers.len() as u64, "entry {} out of turn", entry.log_index);
            let record = entry.record.with_context(|| format!("entry {} has no record", entry.log_index))?;
            ensure!(record.event_id == entry.event_id && record.record.record_hash == entry.record_hash);
            headers.push(Header::parse(&record.record.header)?);
        }
    }
}

pub async fn every_record_gets_one_place_in_an_order_that_the_spec_allows(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let mut log = Log::lead(place).await?;
    let page = super::Page { after: None, limit: 100_000, descending: false };
    let records = bench.reader.records(&RecordQuery::default(), &page).await?;
    ensure!(log.reader.count_unsealed(1_000_000).await? == records.len() as u64);
    ensure!(log.reader.count_unsealed(3).await? == 3, "counted further than asked");
    let newest = log.reader.newest().await?;

    let sealed = log.seal_all(10).await?;
    ensure!(sealed.len() == records.len(), "{} of {} records", sealed.len(), records.len());
    ensure!(sealed.last().map(|entry| entry.event_id) == newest, "the newest one is not the last");
    ensure!(log.reader.size().await? == records.len() as u64);
    ensure!(log.reader.count_unsealed(10).await? == 0 && log.reader.skipped(10).await?.is_empty());
    require_order(&headers(&*log.reader).await?)?;

    let ids: Vec<EventId> = sealed.iter().map(|entry| entry.event_id).collect();
    let expected: Vec<Option<u64>> = (0..ids.len() as u64).map(Some).collect();
    ensure!(log.reader.index_of(&ids).await? == expected);
    let span = Span { level: 0, from: 2, to: 9 };
    let hashes = log.reader.hashes(&[span]).await?;
    ensure!(hashes[0] == sealed[2..9].iter().map(|entry| entry.record_hash).collect::<Vec<_>>());

    let mut heads = vec![];
    loop {
        let page = log.reader.heads(heads.last().map(|(id, _)| *id), 3).await?;
        if page.is_empty() {
            break;
        }
        heads.extend(page);
    }
    let total: u64 = heads.iter().map(|(_, head)| head.sequence).sum();
    ensure!(total == records.len() as u64, "heads do not add up");
    ensure!(heads.windows(2).all(|pair| pair[0].0 < pair[1].0));
    drop(bench);
    Ok(())
}

pub async fn an_append_continues_the_log_or_writes_nothing(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let mut log = Log::lead(place).await?;
    let found = log.unsealed(6).await?;
    let first = log.append(0, found[..3].to_vec());
    ensure!(log.writer.append(&log.append(1, found[..3].to_vec())).await? == Written::Overtaken, "a gap");
    ensure!(log.writer.append(&first).await? == Written::Done);
    // Another leader, who believes the same.
    ensure!(log.writer.append(&first).await? == Written::Overtaken, "the same again");
    ensure!(log.writer.append(&log.append(2, found[3..].to_vec())).await? == Written::Overtaken, "an overlap");
    ensure!(log.writer.append(&log.append(3, found[2..5].to_vec())).await? == Written::Overtaken, "a record twice");
    ensure!(log.reader.size().await? == 3, "a refused append left something");
    let next = log.unsealed(3).await?;
    ensure!(next == found[3..], "the next ones are the next ones");
    let node = Node { level: 8, index: 0, hash: Digest([7; 32]) };
    let append = Append { nodes: vec![node.clone()], ..log.append(3, next) };
    ensure!(log.writer.append(&append).await? == Written::Done);
    let next = log.unsealed(1).await?;
    let twice = Append { nodes: vec![node], ..log.append(6, next) };
    ensure!(log.writer.append(&twice).await? == Written::Overtaken, "a node twice");
    ensure!(log.reader.size().await? == 6);
    ensure!(log.reader.hashes(&[Span { level: 8, from: 0, to: 1 }]).await? == [[Digest([7; 32])]]);
    let beyond = log.reader.hashes(&[Span { level: 0, from: 4, to: 9 }]).await;
    ensure!(matches!(beyond, Err(StoreError::Corrupt(_))), "{beyond:?}");
    drop(bench);
    Ok(())
}

pub async fn a_lease_ends_by_release_or_in_time_and_fences(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_registry(place).await?;
    let store = place.store().await?;
    let ((mut one, reader), (mut two, _)) = (store.log()?, store.log()?);
    let lease = one.take_lease("one", LONG).await?.context("free")?;
    ensure!(one.take_lease("one", LONG).await?.is_none(), "taken twice by its holder");
    ensure!(two.take_lease("two", LONG).await?.is_none(), "taken from its holder");
    ensure!(one.renew_lease(lease, LONG).await?);
    ensure!(one.release_lease(lease).await? && !one.release_lease(lease).await?);

    // On a database server whose other clients have transactions open, what was just written waits for them.
    let mut entries = one.unsealed(2).await?;
    for _ in 0..2000 {
        if entries.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        entries = one.unsealed(2).await?;
    }
    let append = |lease, from_index| Append { lease, from_index, entries: entries.clone(), nodes: vec![] };
    ensure!(one.append(&append(lease, 0)).await? == Written::LeaseLost, "written without a lease");
    let second = two.take_lease("two", Duration::from_millis(1)).await?.context("released")?;
    ensure!(second != lease);
    tokio::time::sleep(Duration::from_millis(5)).await;
    ensure!(!two.renew_lease(second, LONG).await?, "an ended lease was renewed");
    let third = one.take_lease("one", LONG).await?.context("ended")?;
    ensure!(two.append(&append(second, 0)).await? == Written::LeaseLost, "written under an ended lease");
    let row = CheckpointRow { size: 2, root: Digest([1; 32]), note: "n".into(), signed_at: Time(1) };
    ensure!(two.put_checkpoint(second, &row).await? == Written::LeaseLost);
    ensure!(one.append(&append(third, 0)).await? == Written::Done);
    ensure!(reader.size().await? == 2);
    drop(bench);
    Ok(())
}

pub async fn checkpoints_are_kept_and_only_their_notes_grow(place: &Place) -> anyhow::Result<()> {
    let mut log = Log::lead(place).await?;
    let row = |size: u64| CheckpointRow {
        size,
        root: sha256(&[&size.to_be_bytes()]),
        note: format!("note of {size}\n"),
        signed_at: Time(1_800_000_000_000_000),
    };
    for size in [3, 5, 9] {
        ensure!(log.writer.put_checkpoint(log.lease, &row(size)).await? == Written::Done);
    }
    ensure!(log.writer.put_checkpoint(log.lease, &row(5)).await? == Written::Overtaken);
    ensure!(log.reader.latest_checkpoint().await? == Some(row(9)));
    ensure!(log.reader.checkpoints(4, 10).await? == [row(5), row(9)]);
    ensure!(log.reader.checkpoints(5, 1).await? == [row(5)]);
    ensure!(log.reader.checkpoints(10, 1).await?.is_empty());
    ensure!(log.writer.extend_note(5, "note of 5\nwitnessed\n").await?);
    ensure!(!log.writer.extend_note(6, "nothing").await?);
    let extended = CheckpointRow { note: "note of 5\nwitnessed\n".into(), ..row(5) };
    ensure!(log.reader.checkpoints(5, 1).await? == [extended]);
    Ok(())
}

pub async fn a_log_changes_its_key_with_a_note_or_not_at_all(place: &Place) -> anyhow::Result<()> {
    let mut log = Log::lead(place).await?;
    let key = |key: &str| LogIdentity { origin: "a".into(), verifier_key: key.into() };
    log.writer.begin(&key("one")).await?;
    let row =
        |size: u64| RotationRow { size, note: format!("note at {size}\n"), rotated_at: Time(1_800_000_000_000_000) };
    ensure!(log.writer.rotate(LeaseToken(log.lease.0 + 7), &key("one"), "two", &row(3)).await? == Written::LeaseLost);
    ensure!(log.writer.rotate(log.lease, &key("other"), "two", &row(3)).await? == Written::Overtaken);
    ensure!(log.reader.rotations().await?.is_empty() && log.reader.identity().await? == Some(key("one")));
    ensure!(log.writer.rotate(log.lease, &key("one"), "two", &row(3)).await? == Written::Done);
    // A note of the same size is there: neither the note nor the key changes.
    ensure!(log.writer.rotate(log.lease, &key("two"), "three", &row(3)).await? == Written::Overtaken);
    ensure!(log.reader.identity().await? == Some(key("two")));
    ensure!(log.writer.rotate(log.lease, &key("two"), "three", &row(9)).await? == Written::Done);
    ensure!(log.reader.rotations().await? == [row(3), row(9)]);
    ensure!(log.reader.identity().await? == Some(key("three")));
    Ok(())
}

pub async fn what_was_taken_out_of_the_log_shows(place: &Place) -> anyhow::Result<()> {
    let bench = Bench::with_everything(place).await?;
    let mut log = Log::lead(place).await?;
    let sealed = log.seal_all(50).await?;
    drop((bench, log));
    place.sql("DELETE FROM log_entries WHERE log_index = 4").await?;
    let log = Log::lead_by_force(place).await?;
    ensure!(log.reader.skipped(10).await? == [sealed[4].event_id]);
    let page = log.reader.entries(3, 2).await?;
    ensure!(page.iter().map(|entry| entry.log_index).eq([3, 5]));
    Ok(())
}

/// A store from before there was a log: what it holds gets its place like everything else.
pub async fn an_older_store_is_sealed_in_order(place: &Place) -> anyhow::Result<()> {
    drop(Bench::with_everything(place).await?);
    older::as_the_first_schema_left_it(place).await?;
    let mut log = Log::lead(place).await?;
    let waiting = log.reader.count_unsealed(100_000).await?;
    let newest = log.reader.newest().await?;
    let sealed = log.seal_all(7).await?;
    ensure!(sealed.len() as u64 == waiting && waiting > 20);
    ensure!(sealed.last().map(|entry| entry.event_id) == newest);
    require_order(&headers(&*log.reader).await?)
}

impl Log {
    /// Whoever held the lease is gone.
    async fn lead_by_force(place: &Place) -> anyhow::Result<Log> {
        if place.kind == Kind::Postgres {
            place.sql("UPDATE log_lease SET expires_at_us = 0").await?;
        }
        Log::lead(place).await
    }
}
