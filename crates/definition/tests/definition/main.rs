//! The format as its authors meet it: what a document must look like, and what they are told when it
//! does not. The expectations come from the format's description.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

mod advice;
mod bounds;
mod corpus;
mod documents;
mod hostile;
mod language;
mod machines;
mod messages;
mod problems;
mod reference;
mod reference_fields;
mod rendering;
mod schema;
mod workflow_problems;
mod workflows;

use countersign_definition::{Body, Definition, Problem, parse};
use countersign_kernel::{Declaration, GateSpec};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Every definition that is shipped, by file name.
pub const SHIPPED: &[(&str, &str)] = &[
    ("batch-release", include_str!("../../../../definitions/batch-release.yaml")),
    ("capa", include_str!("../../../../definitions/capa.yaml")),
    ("change-request", include_str!("../../../../definitions/change-request.yaml")),
    ("db-migrate", include_str!("../../../../definitions/db-migrate.yaml")),
    ("document-cut", include_str!("../../../../definitions/document-cut.yaml")),
    ("journal-entry", include_str!("../../../../definitions/journal-entry.yaml")),
    ("nightly-report", include_str!("../../../../definitions/nightly-report.yaml")),
    ("order-process", include_str!("../../../../definitions/order-process.yaml")),
    ("order-saga", include_str!("../../../../definitions/order-saga.yaml")),
    ("protocol-amendment", include_str!("../../../../definitions/protocol-amendment.yaml")),
    ("reviewed-step", include_str!("../../../../definitions/reviewed-step.yaml")),
    ("purchase-order", include_str!("../../../../definitions/purchase-order.yaml")),
];

/// What this thread has worked: however busy the machine is, its neighbours do not count.
pub struct Effort(Duration);

impl Effort {
    fn so_far() -> Duration {
        let worked = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(worked.tv_sec.unsigned_abs(), u32::try_from(worked.tv_nsec).expect("less than a second"))
    }

    pub fn begun() -> Effort {
        Effort(Effort::so_far())
    }

    pub fn spent(&self) -> Duration {
        Effort::so_far() - self.0
    }
}

pub fn parsed(text: &str) -> Definition {
    parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{text}\n{}", listed(&problems)))
}

pub fn problems_of(text: impl AsRef<[u8]>) -> Vec<Problem> {
    parse(text.as_ref()).expect_err("a document with problems")
}

pub fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{}: {problem}\n", problem.path)).collect()
}

/// What a process comes to.
pub fn process(definition: &Definition) -> (&Declaration, GateSpec) {
    match &definition.body {
        Body::Process { declaration, gate_spec } => {
            let (gate_spec, replaced) = gate_spec.started_with(&GateSpec::default(), "nobody").expect("approvers");
            assert!(replaced.is_empty());
            (declaration, gate_spec)
        }
        Body::Workflow { .. } | Body::Machine { .. } => panic!("{} is no process", definition.name),
    }
}
