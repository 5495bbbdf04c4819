//! Every command × both forms of failure × with and without an idempotency key, as a table: the caller's answer, the
//! content of the store, and the answer to the same call the second time.

use super::NOTHING_WRITTEN;
use crate::load::client::{granted, let_do, opened, started};
use crate::load::shapes::{quorum, shape, single};
use crate::load::{Design, calls};
use crate::place::{ADMIN, Place, close, engine_on};
use crate::store_audit;
use anyhow::{Context, ensure};
use async_trait::async_trait;
use countersign_engine::port::{Batch, Committed, Page, Reader, RecordQuery, StoreError, Writer};
use countersign_engine::{Call, Command, Config, Engine};
use countersign_kernel::process::Decision;
use countersign_kernel::registry::{self, ActorKind, RegisterActor};
use countersign_kernel::{Code, QuorumRule};
use countersign_ledger::sha256;
use countersign_store::tap::{Tap, Tapped};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    NotPersisted,
    Persisted,
}

/// Fails the next commit, if a test asks for it.
#[derive(Default)]
struct Failing(Mutex<Option<Form>>);

impl Failing {
    fn set(&self, form: Option<Form>) -> Option<Form> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), form)
    }
}

#[async_trait]
impl Tap for Failing {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        if batch.units.is_empty() {
            return writer.commit(batch).await;
        }
        match self.set(None) {
            None => writer.commit(batch).await,
            Some(Form::NotPersisted) => Err(StoreError::Transient("as asked".to_owned())),
            Some(Form::Persisted) => {
                writer.commit(batch).await?;
                Err(StoreError::Unknown("the answer was lost, as asked".to_owned()))
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Start,
    Open,
    OpenQuorum,
    Decide,
    DecideQuorum,
    Fire,
    FireAndMoot,
    Grant,
    Revoke,
    Publish,
    Register,
}

/// The command, how many records it writes, and what it is told when it has taken effect and comes again.
const TABLE: &[(Kind, usize, &str)] = &[
    (Kind::Start, 1, "ok"),
    (Kind::Open, 1, "already-open"),
    (Kind::OpenQuorum, 2, "already-open"),
    (Kind::Decide, 1, "not-pending"),
    (Kind::DecideQuorum, 3, "not-pending"),
    (Kind::Fire, 1, "terminal"),
    (Kind::FireAndMoot, 2, "terminal"),
    (Kind::Grant, 1, "ok"),
    (Kind::Revoke, 1, "not-active"),
    (Kind::Publish, 1, "ok"),
    (Kind::Register, 1, "conflict"),
];

fn design(name: &str) -> Design {
    let gates = [("sign", single("bea")), ("two", quorum(QuorumRule::OneOfN, &["bea", "cleo"]))];
    shape(name, &["a go b sign", "a both b two", "a skip b"], &gates)
}

/// Makes everything ready for the command, and the command itself.
async fn prepare(kind: Kind, engine: &Engine, n: usize) -> anyhow::Result<Call> {
    let design = design(&format!("design {n}"));
    let ready = async |action: Option<&str>| {
        let process = started(engine, "ines", &design).await?;
        if let Some(action) = action {
            opened(engine, "ines", process, action).await?;
        }
        anyhow::Ok(process)
    };
    let approve = |process, action| calls::decide("bea", process, action, Decision::Approve, None, None);
    Ok(match kind {
        Kind::Start => calls::start("ines", &design, "subject", None),
        Kind::Open => calls::open("ines", ready(None).await?, "go", None),
        Kind::OpenQuorum => calls::open("ines", ready(None).await?, "both", None),
        Kind::Decide => approve(ready(Some("go")).await?, "go"),
        Kind::DecideQuorum => approve(ready(Some("both")).await?, "both"),
        Kind::Fire => calls::fire("ines", ready(None).await?, "skip", None),
        Kind::FireAndMoot => calls::fire("ines", ready(Some("go")).await?, "skip", None),
        Kind::Grant => calls::grant("bea", "workflows:read"),
        Kind::Revoke => calls::revoke(Some(granted(engine, "bea", "workflows:read").await?)),
        Kind::Publish => calls::publish(&design),
        Kind::Register => {
            let register = RegisterActor {
                actor_ref: format!("actor {n}"),
                kind: ActorKind::Human,
                display_name: None,
                key: None,
                token_hash: sha256(&[&n.to_le_bytes()]),
            };
            calls::by(ADMIN, Command::Registry(registry::Command::RegisterActor(register)))
        }
    })
}

async fn count(reader: &dyn Reader) -> anyhow::Result<usize> {
    let page = Page { after: None, limit: 1_000_000, descending: false };
    Ok(reader.records(&RecordQuery::default(), &page).await?.len())
}

pub async fn every_command_in_both_forms(place: &Place) -> anyhow::Result<()> {
    let tap = Arc::new(Failing::default());
    let store = Tapped { inner: place.store().await?, tap: tap.clone() };
    let engine = engine_on(Box::new(store), Config::default()).await?;
    let (_, reader) = place.store().await?.into_parts();
    let_do(&engine, &["ines"]).await?;
    let mut n = 0;
    for (kind, records, again) in TABLE {
        for (form, keyed) in
            [(Form::NotPersisted, false), (Form::NotPersisted, true), (Form::Persisted, false), (Form::Persisted, true)]
        {
            n += 1;
            let case = format!("{kind:?}, {form:?}, keyed {keyed}");
            let mut call = prepare(*kind, &engine, n).await.with_context(|| case.clone())?;
            if keyed {
                call = calls::with_key(call, &format!("key {n}"));
            }
            let before = count(&*reader).await?;
            tap.set(Some(form));
            let refusal = engine.execute(call.clone()).await.err().with_context(|| format!("{case}: accepted"))?;
            ensure!(tap.set(None).is_none(), "{case}: nothing was committed");
            ensure!(refusal.code == Code::RecordingFailure, "{case}: {refusal}");
            let says_nothing = refusal.detail.contains(NOTHING_WRITTEN);
            ensure!(says_nothing == (form == Form::NotPersisted), "{case}: {refusal}");
            let written = count(&*reader).await? - before;
            ensure!(written == if form == Form::Persisted { *records } else { 0 }, "{case}: {written} records");

            // Once more: as if it had never been, or from its key, or refused by what it did.
            let told = crate::load::client::told(&engine, call).await;
            let expected = if form == Form::Persisted && !keyed { *again } else { "ok" };
            ensure!(told == expected, "{case}: the second time it was told {told}");
            if keyed || form == Form::NotPersisted {
                let written = count(&*reader).await? - before;
                ensure!(written == *records, "{case}: {written} records after the second time");
            }
        }
    }
    close(engine).await?;
    drop(reader);
    store_audit::require_sound(&place.url).await?;
    Ok(())
}
