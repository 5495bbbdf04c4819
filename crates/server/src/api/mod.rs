//! The HTTP API: one file per resource, and what they share. Handlers translate between the wire and
//! the engine and do nothing else: every decision, permissions included, is the engine's.
//!
//! The order of checks is the same everywhere: credential ([`auth`]), shape ([`body`], [`json`],
//! [`query`]), and then what the engine says ([`problem`] renders its refusals). Extractors stand in a
//! handler's signature in this order.

mod actions;
mod actors;
mod approval_steps;
mod assignments;
pub mod auth;
mod body;
mod challenge;
mod compress;
mod dead_letters;
mod definitions;
mod delegations;
mod door;
mod export;
mod governance;
mod grants;
mod headers;
mod holds;
mod inbox;
mod json;
mod ledger;
mod me;
mod openapi;
mod ops;
mod outbox;
mod passkeys;
pub(crate) mod problem;
mod process_view;
mod processes;
mod proposals;
mod purge;
mod query;
mod registry;
mod replay_requests;
mod runs;
mod schedules;
pub mod session;
mod sessions;
mod signed;
mod start;
mod stream;
mod time;
mod timeline;
mod whoami;
mod workers;

pub use problem::Problem;
pub use stream::StreamLimits;
pub use time::format as format_time;

use crate::config::Secret;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use countersign_engine::{Engine, Outcome};
use countersign_executor::artifact::ArtifactStore;
use countersign_kernel::refusal::Code;
use session::Console;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Poll;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What every handler can reach.
#[derive(Clone)]
pub struct App {
    /// Weak, so that connections that linger do not keep the engine from being closed.
    engine: Weak<Engine>,
    store_kind: &'static str,
    /// The largest body that is read.
    body_bytes: usize,
    /// How many witnesses cosign the log.
    witnesses: usize,
    /// What `/metrics` asks for.
    metrics_token: Option<Secret>,
    /// Where the files are that steps have left.
    artifacts: ArtifactStore,
    console: Arc<Console>,
    streams: StreamLimits,
    /// The description of everything that is served, as JSON.
    openapi: Arc<str>,
}

impl App {
    fn engine(&self) -> Result<Arc<Engine>, Problem> {
        self.engine
            .upgrade()
            .ok_or_else(|| Problem::new(Code::RecordingFailure, "the server is stopping; nothing was written"))
    }
}

/// A list or a single thing that was read.
type Read<T> = Result<Json<T>, Problem>;
/// Something that was made or done, with its status.
type Done<T> = Result<(StatusCode, Json<T>), Problem>;

/// Everything that is served, over this engine. The caller keeps it: who wants to close it waits until no
/// request holds it any more.
pub fn router(
    engine: &Arc<Engine>,
    body_bytes: usize,
    witnesses: usize,
    metrics_token: Option<Secret>,
    artifacts: &ArtifactStore,
    console: Console,
    streams: StreamLimits,
) -> axum::Router {
    let (router, mut description) = routes().split_for_parts();
    openapi::complete(&mut description);
    // Plain maps of text always serialise.
    let openapi = description.to_pretty_json().unwrap_or_default().into();
    let (engine, store_kind, artifacts) = (Arc::downgrade(engine), engine.store_kind(), artifacts.clone());
    let console = Arc::new(console);
    let app = App { engine, store_kind, body_bytes, witnesses, metrics_token, artifacts, console, streams, openapi };
    router
        .fallback(not_served)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), answer))
        .with_state(app)
}

/// The routes with their descriptions: what is not here is neither served nor described.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(actors::register, actors::list))
        .routes(routes!(actors::register_key, actors::keys))
        .routes(routes!(actors::revoke_key))
        .routes(routes!(actors::issue_token))
        .routes(routes!(actors::revoke_token))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::end))
        .routes(routes!(whoami::whoami))
        .routes(routes!(session::sign_in, session::sign_out))
        .routes(routes!(passkeys::sign_in_options))
        .routes(routes!(passkeys::options))
        .routes(routes!(passkeys::register))
        .routes(routes!(me::read))
        .routes(routes!(me::names))
        .routes(routes!(delegations::make, delegations::list))
        .routes(routes!(delegations::revoke))
        .routes(routes!(grants::grant, grants::list))
        .routes(routes!(grants::revoke))
        .routes(routes!(definitions::publish, definitions::list))
        .routes(routes!(definitions::validate))
        .routes(routes!(definitions::retire))
        // Described as `/v1/definitions/{name}`, like every other definition.
        .route("/v1/definitions/validate", axum::routing::get(definitions::newest_validate))
        .routes(routes!(definitions::newest))
        .routes(routes!(definitions::versions))
        .routes(routes!(definitions::version))
        .routes(routes!(definitions::graph::graph))
        .routes(routes!(definitions::diff::diff))
        .routes(routes!(start::start, processes::list))
        .routes(routes!(processes::read))
        .routes(routes!(processes::open_gate))
        .routes(routes!(processes::decide_gate))
        .routes(routes!(processes::fire))
        .routes(routes!(proposals::make, proposals::view::list))
        .routes(routes!(proposals::view::one, proposals::edit))
        .routes(routes!(proposals::view::compare))
        .routes(routes!(proposals::submit))
        .routes(routes!(proposals::review))
        .routes(routes!(proposals::comment))
        .routes(routes!(proposals::merge))
        .routes(routes!(proposals::withdraw))
        .routes(routes!(runs::start::start, runs::view::list))
        .routes(routes!(runs::start::trigger))
        .routes(routes!(runs::view::counts))
        .routes(routes!(runs::view::read))
        .routes(routes!(runs::cells::read))
        .routes(routes!(runs::step::read))
        .routes(routes!(actions::of_run))
        .routes(routes!(actions::of_step))
        .routes(routes!(actions::of_process))
        .routes(routes!(runs::artifacts::read))
        .routes(routes!(runs::sidecar::read))
        .routes(routes!(runs::control::cancel))
        .routes(routes!(runs::control::pause))
        .routes(routes!(runs::control::resume))
        .routes(routes!(runs::control::stop))
        .routes(routes!(runs::control::void))
        .routes(routes!(runs::steps::claim))
        .routes(routes!(runs::steps::release))
        .routes(routes!(runs::steps::wait))
        .routes(routes!(runs::steps::block))
        .routes(routes!(runs::steps::unblock))
        .routes(routes!(runs::steps::reengage))
        .routes(routes!(runs::steps::complete))
        .routes(routes!(runs::steps::cannot_complete))
        .routes(routes!(runs::steps::escalate))
        .routes(routes!(runs::steps::retry))
        .routes(routes!(runs::steps::block_escalate))
        .routes(routes!(runs::steps::reopen))
        .routes(routes!(runs::steps::extend_deadline))
        .routes(routes!(runs::steps::transition))
        .routes(routes!(runs::history::read))
        .routes(routes!(runs::worklist::list))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::trigger))
        .routes(routes!(runs::control::declare_effect))
        .routes(routes!(runs::gates::open))
        .routes(routes!(runs::gates::decide))
        .routes(routes!(runs::events::send))
        .routes(routes!(governance::board))
        .routes(routes!(governance::list))
        .routes(routes!(workers::workers))
        .routes(routes!(workers::freeze))
        .routes(routes!(workers::thaw))
        .routes(routes!(workers::lag))
        .routes(routes!(workers::leave))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::read))
        .routes(routes!(outbox::list))
        .routes(routes!(replay_requests::make))
        .routes(routes!(replay_requests::list))
        .routes(routes!(runs::tasks::claim))
        .routes(routes!(runs::tasks::heartbeat))
        .routes(routes!(runs::tasks::complete))
        .routes(routes!(runs::tasks::wait))
        .routes(routes!(runs::tasks::retry))
        .routes(routes!(runs::tasks::dead))
        .routes(routes!(runs::tasks::cannot_complete))
        .routes(routes!(runs::tasks::block))
        .routes(routes!(timeline::list))
        .routes(routes!(registry::read))
        .routes(routes!(registry::one))
        .routes(routes!(inbox::list))
        .routes(routes!(inbox::count))
        .routes(routes!(stream::follow))
        .routes(routes!(approval_steps::list))
        .routes(routes!(assignments::list))
        .routes(routes!(ledger::records::list))
        .routes(routes!(ledger::records::read))
        .routes(routes!(ledger::log::proof))
        .routes(routes!(ledger::log::seal))
        .routes(routes!(ledger::log::checkpoint))
        .routes(routes!(ledger::log::key))
        .routes(routes!(ledger::log::rotations))
        .routes(routes!(ledger::log::consistency))
        .routes(routes!(ledger::verify::record))
        .routes(routes!(ledger::verify::log))
        .routes(routes!(ledger::verify::status))
        .routes(routes!(export::export))
        .routes(routes!(purge::purge))
        .routes(routes!(purge::purgeable))
        .routes(routes!(holds::place, holds::list))
        .routes(routes!(holds::release))
        .routes(routes!(ops::healthz))
        .routes(routes!(ops::readyz))
        .routes(routes!(ops::metrics))
        .routes(routes!(ops::explain))
        .routes(routes!(ops::openapi))
}

/// Everything else belongs to the console, or to nothing.
async fn not_served(request: Request) -> Response {
    let nothing = || Problem::new(Code::NotKnown, "nothing is served at this address; /openapi.json lists what is");
    crate::console::answer(&request).unwrap_or_else(|| nothing().into_response())
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} is not possible here; /openapi.json lists what is", request.method());
    Problem::invalid_request(detail).with_status(StatusCode::METHOD_NOT_ALLOWED)
}

/// What every request goes through, in one layer because each costs a box and a clone of the route: it is observed, it keeps
/// the engine open until it is answered, its handler may panic, and its answer is fit for a browser.
async fn answer(State(app): State<App>, request: Request, next: Next) -> Response {
    let allowed = |request: &Request| door::check(request, app.metrics_token.as_ref()).and_then(|()| app.engine());
    let gzip = compress::is_asked(request.headers());
    let observed = crate::telemetry::observe(request, async |request| match allowed(&request) {
        Ok(_held) => caught(next.run(request)).await,
        Err(problem) => problem.into_response(),
    });
    let mut response = observed.await;
    headers::protect(response.headers_mut(), app.console.speaks_tls());
    compress::encode(response, gzip).await
}

/// A handler that panics costs its own request and nothing else.
async fn caught(answer: impl Future<Output = Response>) -> Response {
    let mut answer = std::pin::pin!(answer);
    let caught =
        std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await;
    caught.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(panic = said.unwrap_or("(no message)"), "a handler panicked");
        Problem::internal().into_response()
    })
}

/// The engine answered a command with something that does not belong to it.
fn mismatched(outcome: &Outcome) -> Problem {
    tracing::error!(?outcome, "unexpected outcome");
    Problem::internal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt;

    async fn panics() -> &'static str {
        panic!("as asked")
    }

    #[test]
    fn no_list_takes_the_cursors_of_another() {
        use query::List;
        let tags = [
            actors::ActorList::TAG,
            approval_steps::StepList::TAG,
            assignments::AssignmentList::TAG,
            delegations::DelegationList::TAG,
            dead_letters::DeadLetterList::TAG,
            replay_requests::ReplayRequestList::TAG,
            definitions::DefinitionList::TAG,
            definitions::VersionList::TAG,
            definitions::diff::With::TAG,
            export::ExportScope::TAG,
            governance::ProblemList::TAG,
            grants::GrantList::TAG,
            holds::HoldList::TAG,
            inbox::InboxList::TAG,
            ledger::records::RecordList::TAG,
            outbox::OutboxList::TAG,
            processes::ProcessList::TAG,
            processes::HistoryOfProcess::TAG,
            proposals::view::ProposalList::TAG,
            purge::PurgeableList::TAG,
            runs::cells::CellsOfRun::TAG,
            runs::sidecar::SidecarAt::TAG,
            runs::view::RunList::TAG,
            runs::view::RunCount::TAG,
            runs::view::StepsOfRun::TAG,
            runs::worklist::Worklist::TAG,
            stream::StreamTopics::TAG,
            timeline::Timeline::TAG,
            workers::LagList::TAG,
        ];
        let different: std::collections::BTreeSet<u8> = tags.into_iter().collect();
        assert_eq!(different.len(), tags.len());
    }

    #[tokio::test]
    async fn a_panic_is_one_failed_request() {
        let router = axum::Router::new()
            .route("/panic", axum::routing::get(panics))
            .route("/fine", axum::routing::get(|| async { "fine" }))
            .layer(axum::middleware::from_fn(async |request, next: Next| caught(next.run(request)).await));
        for (path, status, content) in
            [("/panic", 500, "application/problem+json"), ("/fine", 200, "text/plain; charset=utf-8")]
        {
            let request = Request::builder().uri(path).body(axum::body::Body::empty()).expect("a request");
            let response = router.clone().oneshot(request).await.expect("an answer");
            assert_eq!(response.status().as_u16(), status, "{path}");
            assert_eq!(response.headers()["content-type"], content, "{path}");
        }
    }
}
