//! What a new run can take over from an old one: the facts that `from_step` is decided on.

use crate::Engine;
use crate::port::{Page, RunQuery};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::retention::is_purged_value;
use countersign_kernel::run::FromStep;
use std::collections::{BTreeMap, BTreeSet};

/// How many steps are read at a time.
const PAGE: usize = 1000;

impl Engine {
    /// What the old run has finished and not undone, by name. Needs `runs:read`.
    pub async fn from_step(&self, actor_ref: &str, run_id: InstanceId, step: String) -> Result<FromStep, Refusal> {
        let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let run = self.read_runs(actor_ref, query, &page).await?.into_iter().next();
        let unknown = || Refusal::new(Code::NotKnown, "there is no run with this id").at("from_step.run_id");
        let run = run.ok_or_else(unknown)?;
        let (mut finished, mut undone, mut purged) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut from = 0;
        loop {
            let steps = self.read_run_steps(&run, from, PAGE).await?;
            let count = steps.len();
            for step in steps {
                from = step.step_seq + 1;
                let name = step.new.name.to_string();
                match (step.new.compensates, step.state.state) {
                    (Some(_), StepCode::NotStarted) => {}
                    (Some(_), _) => {
                        finished.remove(&name);
                        undone.insert(name);
                    }
                    (None, state @ (StepCode::Completed | StepCode::Skipped)) => {
                        if step.state.output.as_deref().is_some_and(is_purged_value) {
                            purged.insert(name.clone());
                        }
                        finished.insert(name, (state, step.state.output));
                    }
                    (None, _) => {}
                }
            }
            if count < PAGE {
                break;
            }
        }
        let has_ended = RunState::parse(&run.head.state).is_some_and(RunState::is_ended);
        Ok(FromStep { run_id, step, definition: run.row.definition_name, has_ended, finished, undone, purged })
    }
}
