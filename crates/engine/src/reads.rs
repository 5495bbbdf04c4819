//! What actors may read: each read is a permission check and one query.

use crate::port::{AssignmentQuery, Page, ProcessQuery, ProcessView, RecordQuery, StepQuery};
use crate::rows::{AssignmentRow, RecordRow, StepRow};
use crate::{Engine, store_failure};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{Registry, scopes};

impl Engine {
    /// Asks the registry; before a "no" is given, the changes of other nodes are fetched.
    async fn allowed<T>(
        &self,
        ask: impl Fn(&Registry) -> Option<T>,
        actor_ref: &str,
        scope: &str,
    ) -> Result<T, Refusal> {
        if let Some(allowed) = ask(&self.registry()) {
            return Ok(allowed);
        }
        self.refresh_registry().await.map_err(|error| store_failure(&error))?;
        ask(&self.registry()).ok_or_else(|| {
            metrics::counter!("countersign_refused_authorisations_total", "command" => "read", "code" => "permission-denied").increment(1);
            Refusal::new(Code::PermissionDenied, format!("`{actor_ref}` holds no active grant of `{scope}`"))
        })
    }

    pub async fn require_scope(&self, actor_ref: &str, scope: &str) -> Result<(), Refusal> {
        self.allowed(|registry| registry.permitted(actor_ref, scope).then_some(()), actor_ref, scope).await
    }

    /// `read_workflow`. Whoever holds only `workflows:read:<definition>` sees the processes of those.
    pub async fn read_workflow(
        &self,
        actor_ref: &str,
        mut query: ProcessQuery,
        page: &Page,
    ) -> Result<Vec<ProcessView>, Refusal> {
        let finer = format!("{}:", scopes::WORKFLOWS_READ);
        query.definitions = self
            .allowed(
                |registry| {
                    if registry.permitted(actor_ref, scopes::WORKFLOWS_READ) {
                        return Some(None);
                    }
                    let names: Vec<String> = registry
                        .grants()
                        .active_scopes(actor_ref, &finer)
                        .map(|scope| scope[finer.len()..].to_owned())
                        .collect();
                    (!names.is_empty()).then_some(Some(names))
                },
                actor_ref,
                scopes::WORKFLOWS_READ,
            )
            .await?;
        self.reader.processes(&query, page).await.map_err(|error| store_failure(&error))
    }

    pub async fn read_approval_steps(
        &self,
        actor_ref: &str,
        query: &StepQuery,
        page: &Page,
    ) -> Result<Vec<StepRow>, Refusal> {
        self.require_scope(actor_ref, scopes::WORKFLOWS_READ).await?;
        self.reader.approval_steps(query, page).await.map_err(|error| store_failure(&error))
    }

    pub async fn read_assignments(
        &self,
        actor_ref: &str,
        query: &AssignmentQuery,
        page: &Page,
    ) -> Result<Vec<(AssignmentRow, StepRow)>, Refusal> {
        self.require_scope(actor_ref, scopes::WORKFLOWS_READ).await?;
        self.reader.assignments(query, page).await.map_err(|error| store_failure(&error))
    }

    /// What waits for this actor. Everybody may see their own.
    pub async fn inbox(&self, actor_ref: &str, page: &Page) -> Result<Vec<(AssignmentRow, StepRow)>, Refusal> {
        let query = AssignmentQuery {
            assignee_ref: Some(actor_ref.to_owned()),
            status: Some("Active".to_owned()),
            ..AssignmentQuery::default()
        };
        self.reader.assignments(&query, page).await.map_err(|error| store_failure(&error))
    }

    pub async fn read_records(
        &self,
        actor_ref: &str,
        query: &RecordQuery,
        page: &Page,
    ) -> Result<Vec<RecordRow>, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.reader.records(query, page).await.map_err(|error| store_failure(&error))
    }
}
