//! Machines of one's own (`spec/run.md`, sections 1 and 6): the one that a run was started under, and the transitions that
//! were made by it.

use super::follow::Made;
use super::read::Moves;
use super::{Run, Step};
use crate::finding::Code;
use crate::json::{Value, shortened};
use crate::process::Context;
use crate::record::{Action, Header};
use std::collections::HashMap;

const ENGINES: [&str; 3] = ["step", "task", "workflow_run"];

/// A machine's definition, as far as a verifier reads it.
#[derive(Debug)]
pub struct OwnMachine {
    scope: String,
    /// The states that are not of the floor, each with the one that stands for it.
    derived: HashMap<String, String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    id: String,
    from: String,
    to: String,
    class: String,
    trigger: String,
    proposed: bool,
}

impl OwnMachine {
    pub fn read(value: &Value) -> Result<OwnMachine, String> {
        if value.text("kind") != Some("machine") {
            return Err("it is no machine".to_owned());
        }
        let mut derived = HashMap::new();
        for state in value.get("states").and_then(Value::as_list).ok_or("`states` is not a list")? {
            if let (Some(code), Some(floor)) = (state.text("state_code"), state.text("floor_equivalent")) {
                derived.insert(code.to_owned(), floor.to_owned());
            }
        }
        // Two states of the engine itself are derived too; nothing lies over them.
        derived.retain(|code, _| code != "skipped" && code != "cancelled");
        let listed = match value.given("transitions") {
            None => &[][..],
            Some(list) => list.as_list().ok_or("`transitions` is not a list")?,
        };
        let rows = listed.iter().map(row).collect::<Option<Vec<Row>>>().ok_or("a transition is none")?;
        Ok(OwnMachine { scope: value.text("scope").ok_or("it has no scope")?.to_owned(), derived, rows })
    }

    fn floor_of<'a>(&'a self, code: &'a str) -> &'a str {
        self.derived.get(code).map_or(code, String::as_str)
    }
}

fn row(value: &Value) -> Option<Row> {
    let either = |short: &str, long: &str| value.text(short).or_else(|| value.text(long)).map(str::to_owned);
    let trigger = value.text("trigger_ref")?.to_owned();
    Some(Row {
        id: value.text("id").map_or_else(|| trigger.clone(), str::to_owned),
        from: either("from", "from_state")?,
        to: either("to", "to_state")?,
        class: value.text("actor_class")?.to_owned(),
        trigger,
        proposed: value.given("proposed").and_then(Value::as_bool).unwrap_or(false),
    })
}

impl Step {
    /// Its state, as its machine calls it.
    pub(super) fn shown(&self) -> String {
        self.derived.clone().unwrap_or_else(|| self.state.to_owned())
    }
}

impl Run {
    /// The machine that the definition names is the one that the run was bound to, and is there.
    pub(super) fn check_machine(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
        let Some(workflow) = &self.workflow else { return };
        let named = payload.texts("machines").unwrap_or_default();
        let of_engine = |named: &str| ENGINES.contains(&named.split('@').next().unwrap_or_default());
        let own: Vec<&str> = named.into_iter().filter(|named| !of_engine(named)).collect();
        let fault = match (workflow.machine.as_deref(), own.as_slice()) {
            (None, []) => return,
            (Some(wanted), [bound])
                if *bound == wanted || bound.rsplit_once('@').map(|(name, _)| name) == Some(wanted) =>
            {
                let published = ctx.registry.definition(bound, header.registry_seq);
                self.machine_digest = published.and_then(|definition| definition.document_digest);
                self.machine = self.machine_digest.and_then(|digest| ctx.documents.machine(digest));
                match &self.machine {
                    Some(_) => return,
                    None => format!(
                        "the machine {} is not published, or its document is not in the bundle",
                        shortened(bound)
                    ),
                }
            }
            (wanted, bound) => format!("bound to the machines {bound:?}, the definition names {wanted:?}"),
        };
        ctx.findings.find(Code::DocumentMismatch, header, shortened(&fault));
    }

    /// `shown` is the state that the step had before the record, as its machine calls it.
    pub(super) fn judge_own(
        &mut self,
        header: &Header,
        moves: &Moves<'_>,
        made: &[Made],
        shown: Option<&str>,
        ctx: &mut Context<'_>,
    ) {
        let alone = header.action == Action::StepTransitioned;
        let Some(own) = &moves.own else {
            if alone {
                let detail = "it makes no transition of one's own";
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
            return;
        };
        let machine = self.machine.clone();
        let step = moves.acted.and_then(|seq| Some((seq, self.steps.get_mut(seq)?)));
        let (Some((seq, step)), Some(machine)) = (step, machine) else {
            let detail = "a transition of one's own, of no step or in a run that is bound to no machine";
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
            return;
        };
        let declared = machine.rows.iter().any(|row| {
            !row.proposed
                && (row.id.as_str(), row.from.as_str(), row.to.as_str()) == (own.id, own.from, own.to)
                && (row.class.as_str(), row.trigger.as_str()) == (own.class, own.trigger)
        });
        let scope = if step.task_of.is_some() { "task" } else { "step" };
        let moved = made.iter().any(|made| made.seq == seq);
        let fault = if !declared {
            Some("the machine does not declare it")
        } else if machine.scope != scope || step.compensates.is_some() {
            Some("the machine is not for such a step")
        } else if shown != Some(own.from) {
            Some("it was in another state")
        } else if machine.floor_of(own.to) != step.state {
            Some("the state of the floor that stands for it is not the step's")
        } else if alone == moved {
            Some("what the floor did does not belong to it")
        } else {
            None
        };
        if let Some(fault) = fault {
            let told = format!("{} of step {seq} from {} to {}: {fault}", own.id, own.from, own.to);
            ctx.findings.find(Code::UndeclaredTransition, header, shortened(&told));
        }
        let person = matches!(own.class, "pic_human" | "task_pic_human");
        if person && step.charge.pic.as_deref() != Some(&*header.actor_ref) {
            let pic = step.charge.pic.as_deref().unwrap_or("nobody");
            let detail = format!("{} of step {seq} by `{}`, but in charge of it is `{pic}`", own.id, header.actor_ref);
            ctx.findings.find(Code::StatementMismatch, header, shortened(&detail));
        }
        step.derived = (own.to != step.state).then(|| own.to.to_owned());
    }
}
