//! One method per route, in the order of the contract.

use crate::client::{Answer, Body, Client, Format};
use crate::error::Error;
use crate::wire::*;
use std::time::Duration;

type Reply<T> = Result<Answer<T>, Error>;

/// Actors and grants.
impl Client {
    /// `POST /v1/actors`
    pub async fn register_actor(&self, request: &RegisterActor) -> Reply<ActorRegistered> {
        self.post(&["v1", "actors"], Body::json(request)?).await
    }

    /// `GET /v1/actors`
    pub async fn actors(&self, query: &ActorQuery) -> Reply<Page<Actor>> {
        self.get(&["v1", "actors"], query).await
    }

    /// `POST /v1/actors/{actor_ref}/keys`
    pub async fn register_key(&self, actor_ref: &str, request: &RegisterKey) -> Reply<KeyRegistered> {
        self.post(&["v1", "actors", actor_ref, "keys"], Body::json(request)?).await
    }

    /// `POST /v1/actors/{actor_ref}/keys/{key_id}/revoke`
    pub async fn revoke_key(&self, actor_ref: &str, key_id: &str, request: &RevokeKey) -> Reply<Ended> {
        self.post(&["v1", "actors", actor_ref, "keys", key_id, "revoke"], Body::json(request)?).await
    }

    /// `GET /v1/actors/{actor_ref}/keys`
    pub async fn keys(&self, actor_ref: &str) -> Reply<ActorKeys> {
        self.get(&["v1", "actors", actor_ref, "keys"], &()).await
    }

    /// `GET /v1/whoami`
    pub async fn whoami(&self) -> Reply<Whoami> {
        self.get(&["v1", "whoami"], &()).await
    }

    /// `POST /v1/actors/{actor_ref}/tokens`
    pub async fn issue_token(&self, actor_ref: &str) -> Reply<TokenIssued> {
        self.post(&["v1", "actors", actor_ref, "tokens"], Body::json(&Empty {})?).await
    }

    /// `POST /v1/actors/{actor_ref}/tokens/{credential_id}/revoke`
    pub async fn revoke_token(&self, actor_ref: &str, credential_id: &str) -> Reply<Ended> {
        self.post(&["v1", "actors", actor_ref, "tokens", credential_id, "revoke"], Body::json(&Empty {})?).await
    }

    /// `POST /v1/actors/{actor_ref}/delegations`
    pub async fn make_delegation(&self, actor_ref: &str, request: &MakeDelegation) -> Reply<DelegationMade> {
        self.post(&["v1", "actors", actor_ref, "delegations"], Body::json(request)?).await
    }

    /// `GET /v1/actors/{actor_ref}/delegations`
    pub async fn delegations(&self, actor_ref: &str, query: &DelegationQuery) -> Reply<Page<Delegation>> {
        self.get(&["v1", "actors", actor_ref, "delegations"], query).await
    }

    /// `DELETE /v1/actors/{actor_ref}/delegations/{delegation_id}`
    pub async fn revoke_delegation(&self, actor_ref: &str, delegation_id: &str) -> Reply<Ended> {
        self.delete(&["v1", "actors", actor_ref, "delegations", delegation_id]).await
    }

    /// `POST /v1/grants`
    pub async fn grant(&self, request: &GrantScope) -> Reply<ScopeGranted> {
        self.post(&["v1", "grants"], Body::json(request)?).await
    }

    /// `POST /v1/grants/{grant_id}/revoke`
    pub async fn revoke(&self, grant_id: &str) -> Reply<GrantRevoked> {
        self.post(&["v1", "grants", grant_id, "revoke"], Body::json(&Empty {})?).await
    }

    /// `GET /v1/grants`
    pub async fn grants(&self, query: &GrantQuery) -> Reply<Page<Grant>> {
        self.get(&["v1", "grants"], query).await
    }
}

/// Definitions.
impl Client {
    /// `POST /v1/definitions`: 201 for a new version, 200 when the newest is identical.
    pub async fn publish_definition(&self, format: Format, document: &[u8]) -> Reply<DefinitionPublished> {
        self.post(&["v1", "definitions"], Body::Document(format, document)).await
    }

    /// `POST /v1/definitions/validate`: publishes nothing.
    pub async fn validate_definition(&self, format: Format, document: &[u8]) -> Reply<Validation> {
        self.post(&["v1", "definitions", "validate"], Body::Document(format, document)).await
    }

    /// `GET /v1/definitions`: the newest version of each.
    pub async fn definitions(&self, query: &DefinitionQuery) -> Reply<Page<DefinitionSummary>> {
        self.get(&["v1", "definitions"], query).await
    }

    /// `GET /v1/definitions/{name}`: the newest version.
    pub async fn definition(&self, name: &str) -> Reply<DefinitionView> {
        self.get(&["v1", "definitions", name], &()).await
    }

    /// `GET /v1/definitions/{name}/versions/{n}`
    pub async fn definition_version(&self, name: &str, version: u32) -> Reply<DefinitionView> {
        self.get(&["v1", "definitions", name, "versions", &version.to_string()], &()).await
    }
}

/// Proposals.
impl Client {
    /// `POST /v1/proposals`
    pub async fn propose(&self, request: &NewProposal) -> Reply<ProposalMade> {
        self.post(&["v1", "proposals"], Body::json(request)?).await
    }

    /// `GET /v1/proposals`
    pub async fn proposals(&self, query: &ProposalQuery) -> Reply<Page<ProposalSummary>> {
        self.get(&["v1", "proposals"], query).await
    }

    /// `GET /v1/proposals/{id}`
    pub async fn proposal(&self, id: &str) -> Reply<ProposalView> {
        self.get(&["v1", "proposals", id], &()).await
    }

    /// `PUT /v1/proposals/{id}`
    pub async fn edit_proposal(&self, id: &str, request: &EditProposal) -> Reply<ProposalMoved> {
        self.put(&["v1", "proposals", id], Body::json(request)?).await
    }

    /// `GET /v1/proposals/{id}/diff`
    pub async fn proposal_diff(&self, id: &str) -> Reply<ProposalDiff> {
        self.get(&["v1", "proposals", id, "diff"], &()).await
    }

    /// `POST /v1/proposals/{id}/submit`, `/review` or `/withdraw`
    pub async fn move_proposal(&self, id: &str, how: &str, request: &MoveProposal) -> Reply<ProposalMoved> {
        self.post(&["v1", "proposals", id, how], Body::json(request)?).await
    }

    /// `POST /v1/proposals/{id}/comments`
    pub async fn comment_on_proposal(&self, id: &str, request: &CommentOnProposal) -> Reply<ProposalMoved> {
        self.post(&["v1", "proposals", id, "comments"], Body::json(request)?).await
    }

    /// `POST /v1/proposals/{id}/merge`
    pub async fn merge_proposal(&self, id: &str, request: &MergeProposal) -> Reply<ProposalMerged> {
        self.post(&["v1", "proposals", id, "merge"], Body::json(request)?).await
    }
}

/// Processes and their gates.
impl Client {
    /// `POST /v1/processes`
    pub async fn start(&self, request: &StartProcess) -> Reply<ProcessStarted> {
        self.post(&["v1", "processes"], Body::json(request)?).await
    }

    /// `POST /v1/processes/{instance_id}/gates`
    pub async fn open_gate(&self, instance_id: &str, request: &OpenGate) -> Reply<GateOpened> {
        self.post(&["v1", "processes", instance_id, "gates"], Body::json(request)?).await
    }

    /// `POST /v1/processes/{instance_id}/gates/{action}/decision`
    pub async fn decide_gate(&self, instance_id: &str, action: &str, request: &DecideGate) -> Reply<GateDecided> {
        self.post(&["v1", "processes", instance_id, "gates", action, "decision"], Body::json(request)?).await
    }

    /// `POST /v1/processes/{instance_id}/transitions`
    pub async fn fire(&self, instance_id: &str, request: &FireTransition) -> Reply<TransitionFired> {
        self.post(&["v1", "processes", instance_id, "transitions"], Body::json(request)?).await
    }

    /// `GET /v1/processes`
    pub async fn processes(&self, query: &ProcessQuery) -> Reply<Page<WorkflowView>> {
        self.get(&["v1", "processes"], query).await
    }

    /// `GET /v1/processes/{instance_id}`, with all pages of its history.
    pub async fn process(&self, instance_id: &str) -> Reply<WorkflowView> {
        let path = ["v1", "processes", instance_id];
        let mut whole: Answer<WorkflowView> = self.get(&path, &HistoryQuery::default()).await?;
        while let Some(history_cursor) = whole.body.history_next.take() {
            let query = HistoryQuery { history_cursor: Some(history_cursor) };
            let more: Answer<WorkflowView> = self.get(&path, &query).await?;
            whole.body.transition_history.extend(more.body.transition_history);
            whole.body.history_next = more.body.history_next;
            whole.json = serde_json::to_value(&whole.body).unwrap_or_default();
        }
        Ok(whole)
    }

    /// `GET /v1/inbox`: what waits for the caller.
    pub async fn inbox(&self, query: &InboxQuery) -> Reply<Page<InboxItem>> {
        self.get(&["v1", "inbox"], query).await
    }

    /// `GET /v1/approval-steps`
    pub async fn approval_steps(&self, query: &ApprovalStepQuery) -> Reply<Page<ApprovalStep>> {
        self.get(&["v1", "approval-steps"], query).await
    }

    /// `GET /v1/assignments`
    pub async fn assignments(&self, query: &AssignmentQuery) -> Reply<Page<Assignment>> {
        self.get(&["v1", "assignments"], query).await
    }
}

/// The ledger.
impl Client {
    /// `GET /v1/ledger/records`
    pub async fn records(&self, query: &RecordQuery) -> Reply<Page<LedgerRecord>> {
        self.get(&["v1", "ledger", "records"], query).await
    }

    /// `GET /v1/ledger/records/{event_id}`
    pub async fn record(&self, event_id: &str) -> Reply<LedgerRecord> {
        self.get(&["v1", "ledger", "records", event_id], &()).await
    }

    /// `POST /v1/ledger/records/{event_id}/purge`
    pub async fn purge_record(&self, event_id: &str) -> Reply<RecordPurged> {
        self.post(&["v1", "ledger", "records", event_id, "purge"], Body::json(&Empty {})?).await
    }

    /// `GET /v1/ledger/purgeable`: records whose retention has elapsed.
    pub async fn purgeable(&self, query: &PurgeableQuery) -> Reply<Page<PurgeableRecord>> {
        self.get(&["v1", "ledger", "purgeable"], query).await
    }

    /// `POST /v1/ledger/holds`
    pub async fn place_hold(&self, request: &PlaceHold) -> Reply<HoldPlaced> {
        self.post(&["v1", "ledger", "holds"], Body::json(request)?).await
    }

    /// `POST /v1/ledger/holds/{hold_id}/release`
    pub async fn release_hold(&self, hold_id: &str, request: &ReleaseHold) -> Reply<HoldReleased> {
        self.post(&["v1", "ledger", "holds", hold_id, "release"], Body::json(request)?).await
    }

    /// `GET /v1/ledger/holds`: released ones are included.
    pub async fn holds(&self, query: &HoldQuery) -> Reply<Page<Hold>> {
        self.get(&["v1", "ledger", "holds"], query).await
    }

    /// `POST /v1/ledger/verify`
    pub async fn verify_record(&self, request: &VerifyRecord) -> Reply<RecordVerification> {
        self.post(&["v1", "ledger", "verify"], Body::json(request)?).await
    }

    /// `POST /v1/ledger/seal`
    pub async fn seal(&self) -> Reply<Seal> {
        self.post(&["v1", "ledger", "seal"], Body::json(&Empty {})?).await
    }

    /// `POST /v1/ledger/verify-log`, followed line by line: it takes as long as the log is.
    pub async fn verify_log(&self, request: &VerifyLog, progress: impl FnMut(Progress)) -> Reply<LogVerification> {
        self.post_followed(&["v1", "ledger", "verify-log"], Body::json(request)?, progress).await
    }

    /// `GET /v1/ledger/checkpoint`: the newest signed note.
    pub async fn checkpoint(&self) -> Result<String, Error> {
        self.get_text(&["v1", "ledger", "checkpoint"]).await
    }

    /// `GET /v1/ledger/key`: the log's verifier key.
    pub async fn log_key(&self) -> Result<String, Error> {
        self.get_text(&["v1", "ledger", "key"]).await
    }

    /// `GET /v1/ledger/rotations`: where other keys took over the log.
    pub async fn rotations(&self) -> Reply<LogRotations> {
        self.get(&["v1", "ledger", "rotations"], &()).await
    }

    /// `GET /v1/ledger/records/{event_id}/proof`
    pub async fn record_proof(&self, event_id: &str) -> Reply<RecordProof> {
        self.get(&["v1", "ledger", "records", event_id, "proof"], &()).await
    }

    /// `GET /v1/ledger/export`: a ZIP file, piece by piece. The answer's evidence id.
    pub async fn export(
        &self,
        query: &ExportQuery,
        take: impl FnMut(&[u8], Option<u64>) -> std::io::Result<()>,
    ) -> Result<Option<String>, Error> {
        let headers = self.get_file(&["v1", "ledger", "export"], query, take).await?;
        let evidence = headers.get("countersign-evidence").and_then(|value| value.to_str().ok());
        Ok(evidence.map(str::to_owned))
    }

    /// `GET /v1/ledger/consistency`
    pub async fn consistency(&self, query: &ConsistencyQuery) -> Reply<ConsistencyProof> {
        self.get(&["v1", "ledger", "consistency"], query).await
    }
}

/// Runs and the events that move them.
impl Client {
    /// `POST /v1/runs`
    pub async fn start_run(&self, request: &StartRun) -> Reply<RunStarted> {
        self.post(&["v1", "runs"], Body::json(request)?).await
    }

    /// `POST /v1/runs/trigger`
    pub async fn trigger_runs(&self, request: &TriggerRuns) -> Reply<RunsTriggered> {
        self.post(&["v1", "runs", "trigger"], Body::json(request)?).await
    }

    /// `GET /v1/runs`
    pub async fn runs(&self, query: &RunQuery) -> Reply<Page<RunSummary>> {
        self.get(&["v1", "runs"], query).await
    }

    /// `GET /v1/runs?state=idle`: what waits for its next tick or event
    pub async fn idle_runs(&self, definition: Option<&str>) -> Reply<RunPage> {
        let (state, definition) = (Some("idle".to_owned()), definition.map(str::to_owned));
        self.get(&["v1", "runs"], &RunQuery { state, definition, ..RunQuery::default() }).await
    }

    /// `GET /v1/schedules`
    pub async fn schedules(&self) -> Reply<Page<ScheduleView>> {
        self.get(&["v1", "schedules"], &()).await
    }

    /// `POST /v1/schedules/{definition}/pause|resume`
    pub async fn control_schedule(
        &self,
        definition: &str,
        action: &str,
        request: &ControlSchedule,
    ) -> Reply<ScheduleMoved> {
        self.post(&["v1", "schedules", definition, action], Body::json(request)?).await
    }

    /// `POST /v1/schedules/{definition}/trigger`
    pub async fn trigger_schedule(&self, definition: &str, request: &TriggerSchedule) -> Reply<RunStarted> {
        self.post(&["v1", "schedules", definition, "trigger"], Body::json(request)?).await
    }

    /// `POST /v1/definitions/{name}/retire`
    pub async fn retire_definition(&self, name: &str, request: &RetireDefinition) -> Reply<DefinitionRetired> {
        self.post(&["v1", "definitions", name, "retire"], Body::json(request)?).await
    }

    /// `GET /v1/runs/{run_id}`
    pub async fn run(&self, run_id: &str) -> Reply<RunView> {
        self.get(&["v1", "runs", run_id], &()).await
    }

    /// `GET /v1/runs/{run_id}`, from this step on.
    pub async fn run_steps(&self, run_id: &str, steps_cursor: &str) -> Reply<RunView> {
        self.get(&["v1", "runs", run_id], &[("steps_cursor", steps_cursor)]).await
    }

    /// `GET /v1/runs/{run_id}/sidecar`, as it is now or was at this record.
    pub async fn sidecar(&self, run_id: &str, sequence: Option<u64>) -> Reply<Sidecar> {
        match sequence {
            None => self.get(&["v1", "runs", run_id, "sidecar"], &()).await,
            Some(sequence) => self.get(&["v1", "runs", run_id, "sidecar"], &[("sequence", sequence)]).await,
        }
    }

    /// `POST /v1/runs/{run_id}/{cancel|pause|resume|stop|void}`
    pub async fn control_run(&self, run_id: &str, action: &str, request: &ControlRun) -> Reply<RunMoved> {
        self.post(&["v1", "runs", run_id, action], Body::json(request)?).await
    }

    /// `POST /v1/runs/{run_id}/gates`
    pub async fn open_run_gate(&self, run_id: &str, request: &OpenGate) -> Reply<GateOpened> {
        self.post(&["v1", "runs", run_id, "gates"], Body::json(request)?).await
    }

    /// `POST /v1/runs/{run_id}/gates/{action}/decision`
    pub async fn decide_run_gate(&self, run_id: &str, action: &str, request: &DecideGate) -> Reply<GateDecided> {
        self.post(&["v1", "runs", run_id, "gates", action, "decision"], Body::json(request)?).await
    }

    /// `POST /v1/runs/{run_id}/steps/{step}/{claim|release|wait|…}`
    pub async fn act_on_step(
        &self,
        run_id: &str,
        step: &str,
        act: &str,
        request: &impl serde::Serialize,
    ) -> Reply<StepActed> {
        self.post(&["v1", "runs", run_id, "steps", step, act], Body::json(request)?).await
    }

    /// `GET /v1/runs/{run_id}/steps/{step}`
    pub async fn run_step(&self, run_id: &str, step: &str) -> Reply<StepDetail> {
        self.get(&["v1", "runs", run_id, "steps", step], &()).await
    }

    /// `GET /v1/runs/{run_id}/steps/{step}/history`
    pub async fn step_history(&self, run_id: &str, step: &str) -> Reply<StepHistory> {
        self.get(&["v1", "runs", run_id, "steps", step, "history"], &()).await
    }

    /// The same with `?preview=true`: what would happen.
    pub async fn preview_step(
        &self,
        run_id: &str,
        step: &str,
        act: &str,
        request: &impl serde::Serialize,
    ) -> Reply<Preview> {
        let path = ["v1", "runs", run_id, "steps", step, act];
        self.post_query(&path, &[("preview", "true")], Body::json(request)?).await
    }

    /// `POST /v1/runs/{run_id}/{action}?preview=true`: what would happen.
    pub async fn preview_run(&self, run_id: &str, action: &str, request: &ControlRun) -> Reply<Preview> {
        self.post_query(&["v1", "runs", run_id, action], &[("preview", "true")], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/{report}?preview=true`: what would happen.
    pub async fn preview_task(&self, task_id: &str, report: &str, request: &impl serde::Serialize) -> Reply<Preview> {
        self.post_query(&["v1", "tasks", task_id, report], &[("preview", "true")], Body::json(request)?).await
    }

    /// `GET /v1/worklist`
    pub async fn worklist(&self, query: &InboxQuery) -> Reply<Page<WorklistItem>> {
        self.get(&["v1", "worklist"], query).await
    }

    /// `POST /v1/runs/{run_id}/steps/{step}/declare-effect`
    pub async fn declare_effect(&self, run_id: &str, step: &str, request: &DeclareEffect) -> Reply<RunMoved> {
        self.post(&["v1", "runs", run_id, "steps", step, "declare-effect"], Body::json(request)?).await
    }

    /// `POST /v1/events`
    pub async fn send_event(&self, request: &SendEvent) -> Reply<EventSent> {
        self.post(&["v1", "events"], Body::json(request)?).await
    }
}

/// What happened, and the machines that everything moves by.
impl Client {
    /// `GET /v1/timeline`
    pub async fn timeline(&self, query: &TimelineQuery) -> Reply<Page<TimelineEntry>> {
        self.get(&["v1", "timeline"], query).await
    }

    /// `GET /v1/registry`
    pub async fn registry(&self) -> Reply<Registry> {
        self.get(&["v1", "registry"], &()).await
    }

    /// `GET /v1/registry/{machine}`
    pub async fn machine(&self, machine: &str) -> Reply<Machine> {
        self.get(&["v1", "registry", machine], &()).await
    }
}

/// What is sent to webhooks.
impl Client {
    /// `GET /v1/governance/problems`
    pub async fn problem_board(&self) -> Reply<ProblemBoard> {
        self.get(&["v1", "governance", "problems"], &()).await
    }

    /// `GET /v1/governance/problems/{category}`
    pub async fn problems(&self, category: &str, query: &ProblemsQuery) -> Reply<Page<ProblemItem>> {
        self.get(&["v1", "governance", "problems", category], query).await
    }

    /// `GET /v1/governance/workers`
    pub async fn worker_classes(&self) -> Reply<WorkerClasses> {
        self.get(&["v1", "governance", "workers"], &()).await
    }

    /// `POST /v1/governance/workers/{worker_class}/freeze|thaw`
    pub async fn control_workers(
        &self,
        worker_class: &str,
        action: &str,
        request: &ControlWorkers,
    ) -> Reply<WorkersMoved> {
        self.post(&["v1", "governance", "workers", worker_class, action], Body::json(request)?).await
    }

    /// `GET /v1/governance/lag`
    pub async fn lag(&self, query: &LagQuery) -> Reply<LagReport> {
        self.get(&["v1", "governance", "lag"], query).await
    }

    /// `GET /v1/dead-letters`
    pub async fn dead_letters(&self, query: &ProblemsQuery) -> Reply<Page<DeadLetter>> {
        self.get(&["v1", "dead-letters"], query).await
    }

    /// `GET /v1/dead-letters/{dead_letter_id}`
    pub async fn dead_letter(&self, dead_letter_id: &str) -> Reply<DeadLetterView> {
        self.get(&["v1", "dead-letters", dead_letter_id], &()).await
    }

    /// `GET /v1/outbox`
    pub async fn outbox(&self, query: &OutboxQuery) -> Reply<Page<OutboxEvent>> {
        self.get(&["v1", "outbox"], query).await
    }

    /// `POST /v1/dead-letters/{dead_letter_id}/replay-requests`
    pub async fn request_replay(&self, dead_letter_id: &str, request: &RequestReplay) -> Reply<ReplayRequested> {
        self.post(&["v1", "dead-letters", dead_letter_id, "replay-requests"], Body::json(request)?).await
    }

    /// `GET /v1/replay-requests`
    pub async fn replay_requests(&self, query: &ReplayRequestsQuery) -> Reply<Page<ReplayRequest>> {
        self.get(&["v1", "replay-requests"], query).await
    }
}

/// The worker protocol.
impl Client {
    /// `POST /v1/queues/{queue}/claim`
    pub async fn claim_tasks(&self, queue: &str, request: &ClaimTasks) -> Reply<TasksClaimed> {
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(0).min(MAX_WAIT_MS));
        self.post_waiting(&["v1", "queues", queue, "claim"], Body::json(request)?, wait).await
    }

    /// `POST /v1/queues/{queue}/leave`
    pub async fn leave_queue(&self, queue: &str, request: &LeaveQueue) -> Reply<QueueLeft> {
        self.post(&["v1", "queues", queue, "leave"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/heartbeat`
    pub async fn heartbeat_task(&self, task_id: &str, request: &HeartbeatTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "heartbeat"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/complete`
    pub async fn complete_task(&self, task_id: &str, request: &CompleteTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "complete"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/wait`
    pub async fn wait_task(&self, task_id: &str, request: &WaitTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "wait"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/retry`
    pub async fn retry_task(&self, task_id: &str, request: &RetryTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "retry"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/cannot-complete`
    pub async fn cannot_complete_task(&self, task_id: &str, request: &CannotCompleteTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "cannot-complete"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/block`
    pub async fn block_task(&self, task_id: &str, request: &BlockTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "block"], Body::json(request)?).await
    }

    /// `POST /v1/tasks/{task_id}/dead`
    pub async fn dead_task(&self, task_id: &str, request: &DeadTask) -> Reply<TaskReported> {
        self.post(&["v1", "tasks", task_id, "dead"], Body::json(request)?).await
    }
}
