//! Verification by the server itself: one record against its seal, or everything that is stored. Whoever does not trust
//! this server verifies proofs and bundles instead.

use crate::api::auth::Caller;
use crate::api::body::Posted;
use crate::api::openapi::Refused;
use crate::api::query::NoQuery;
use crate::api::{App, Problem, Read, time};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use countersign_client::wire;
use countersign_engine::Engine;
use countersign_engine::log::{Finding, LogReport, LogStatus, Strictness, Verification};
use countersign_engine::port::log::VerifiedRow;
use countersign_kernel::refusal::{Refusal, require_optional_text};
use countersign_kernel::registry::scopes;
use countersign_kernel::{EventId, InstanceId};
use http_body_util::channel::{Channel, Sender};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NDJSON: &str = "application/x-ndjson";
/// Whoever follows is told this often.
const TELL_EVERY: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
struct Presented<'b> {
    #[serde(borrow)]
    payload: &'b RawValue,
}

/// Whether a record is what was recorded, attested and sealed. Needs `audit:read`.
#[utoipa::path(post, path = "/v1/ledger/verify", tag = "ledger", request_body = wire::VerifyRecord,
    responses((status = 200, body = wire::RecordVerification), Refused))]
pub async fn record(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::VerifyRecord>,
) -> Read<wire::RecordVerification> {
    let wire::VerifyRecord { event_id, lenient, .. } = posted.body;
    // A number is what its digits say, which a parsed one no longer knows.
    let presented: Presented<'_> = serde_json::from_slice(&posted.bytes).map_err(|_| Problem::internal())?;
    let payload = presented.payload.get().as_bytes();
    let strictness = if lenient == Some(true) { Strictness::Lenient } else { Strictness::Strict };
    let event_id = EventId::parse(&event_id);
    let verified = app.engine()?.verify_record(&caller.actor_ref, event_id, payload, strictness).await?;
    Ok(Json(match verified {
        Verification::Verified => wire::RecordVerification { result: wire::VerificationResult::Verified, code: None },
        Verification::Failed(code) => wire::RecordVerification {
            result: wire::VerificationResult::FailedVerification,
            code: Some(code.to_owned()),
        },
    }))
}

/// Whether the caller wants to follow what takes long.
pub struct Follows(bool);

impl FromRequestParts<App> for Follows {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        let accepted = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        Ok(Follows(accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim() == NDJSON)))
    }
}

/// Reads everything that is stored again and makes every check of the offline verifiers (`spec/checks.md`). Instances with a
/// finding accept no command from then on. Answers 200 with all findings; what cannot be read is one. Needs `audit:read`. With
/// `Accept: application/x-ndjson` lines `{"verified", "of"}` come while it works; the last line is the answer.
#[utoipa::path(post, path = "/v1/ledger/verify-log", tag = "ledger", request_body = wire::VerifyLog,
    responses((status = 200, body = wire::LogVerification), Refused))]
pub async fn log(
    State(app): State<App>,
    caller: Caller,
    follows: Follows,
    posted: Posted<wire::VerifyLog>,
) -> Result<Response, Problem> {
    let engine = app.engine()?;
    require_optional_text("instance_id", posted.body.instance_id.as_deref())?;
    // A name that is no id of ours is an instance that nobody knows.
    let named = |id: &String| InstanceId::parse(id).unwrap_or(InstanceId(uuid::Uuid::max()));
    let instance_id = posted.body.instance_id.as_ref().map(named);
    if !follows.0 {
        let report = engine.verify_log(&caller.actor_ref, instance_id, &mut |_, _| {}).await?;
        keep(&engine, &caller, instance_id, &report).await;
        return Ok(Json(to_wire(report)).into_response());
    }
    engine.require_scope(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let (sender, body) = Channel::<Bytes, Infallible>::new(16);
    tokio::spawn(follow(engine, caller, instance_id, sender));
    Ok(([(CONTENT_TYPE, NDJSON)], Body::new(body)).into_response())
}

async fn follow(
    engine: Arc<Engine>,
    caller: Caller,
    instance_id: Option<InstanceId>,
    mut sender: Sender<Bytes, Infallible>,
) {
    let (tell, mut told) = tokio::sync::watch::channel(None);
    let mut last = Instant::now();
    let mut progress = |verified: u64, of: u64| {
        if verified == 0 || last.elapsed() >= TELL_EVERY {
            last = Instant::now();
            let _ = tell.send(Some(wire::Progress { verified, of }));
        }
    };
    let work = engine.verify_log(&caller.actor_ref, instance_id, &mut progress);
    tokio::pin!(work);
    let report = loop {
        tokio::select! {
            report = &mut work => break report,
            Ok(()) = told.changed() => {
                let line = *told.borrow_and_update();
                // Who went away is not waited for.
                if let Some(line) = line && sender.send_data(line_of(&line)).await.is_err() {
                    return;
                }
            }
        }
    };
    let line = match report {
        Ok(report) => {
            keep(&engine, &caller, instance_id, &report).await;
            line_of(&to_wire(report))
        }
        Err(refusal) => refused(refusal).await,
    };
    let _ = sender.send_data(line).await;
}

/// The page shows when all was last verified. What was found does not depend on whether that could be kept.
async fn keep(engine: &Engine, caller: &Caller, instance_id: Option<InstanceId>, report: &LogReport) {
    if instance_id.is_none()
        && let Err(refusal) = engine.keep_verification(&caller.actor_ref, report).await
    {
        tracing::warn!(%refusal, "a verification could not be kept");
    }
}

/// How far the log is sealed, how long records wait for that, and when all of it was last verified. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/status", tag = "ledger", responses((status = 200, body = wire::LedgerStatus), Refused))]
pub async fn status(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::LedgerStatus> {
    let status = app.engine()?.log_status(&caller.actor_ref).await?;
    let LogStatus { sealed, sealed_at, unsealed, unsealed_since, now, verified } = status;
    let lag_us = unsealed_since.map_or(0, |since| now.0.saturating_sub(since.0));
    let last_verification = verified.map(|VerifiedRow { at, by, records, size, findings }| wire::LastVerification {
        at: time::format(at),
        by,
        result: result(findings == 0),
        records,
        size,
        findings,
    });
    Ok(Json(wire::LedgerStatus {
        sealed,
        sealed_at: sealed_at.map(time::format),
        unsealed,
        seal_lag_ms: u64::try_from(lag_us / 1000).unwrap_or(0),
        last_verification,
    }))
}

fn result(good: bool) -> wire::VerificationResult {
    if good { wire::VerificationResult::Verified } else { wire::VerificationResult::FailedVerification }
}

fn line_of(value: &impl serde::Serialize) -> Bytes {
    // Plain structures always serialise.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

/// The answer has begun: the problem is its last line.
async fn refused(refusal: Refusal) -> Bytes {
    let body = Problem::from(refusal).into_response().into_body();
    let mut line = axum::body::to_bytes(body, 1 << 16).await.unwrap_or_default().to_vec();
    line.push(b'\n');
    line.into()
}

fn to_wire(report: LogReport) -> wire::LogVerification {
    let LogReport { records, size, root, findings, found } = report;
    let finding = |Finding { code, event_id, detail, .. }: Finding| wire::Finding {
        code: code.to_owned(),
        event_id: event_id.map(|id| id.to_string()),
        detail,
    };
    wire::LogVerification {
        result: result(found == 0),
        records,
        size,
        root: root.to_string(),
        findings: findings.into_iter().map(finding).collect(),
    }
}
