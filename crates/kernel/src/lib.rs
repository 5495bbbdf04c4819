//! The kernel decides. Given what is known and what somebody asks for, it answers with the events
//! that follow, or with a refusal. It is plain synchronous code: no I/O, no clock, no randomness, no
//! serialisation. Time, ids, the acting actor and the grants arrive as arguments, so the same
//! functions that serve production are model-checked, replayed and simulated as they are.
//!
//! Read in this order: [`declaration`] (what a process may do), [`machine`] (`fire`, the one way a
//! state changes), [`registry`] (who may do what), [`process`] (the gated process itself).

pub mod budget;
pub mod declaration;
pub mod gate_spec;
pub mod governance;
pub mod id;
mod json_mark;
pub mod lifecycle;
pub mod machine;
pub mod offer;
pub mod plan;
pub mod process;
pub mod published_gates;
pub mod refusal;
pub mod registry;
pub mod retention;
pub mod rollup;
pub mod run;
pub mod text;

pub use budget::Budget;
pub use declaration::{Declaration, Effect, Transition};
pub use gate_spec::{GateEntry, GateSpec, QuorumRule};
pub use id::{
    AssignmentId, ChainId, DelegationId, EventId, GrantId, HoldId, IdSource, InstanceId, ProblemId, StepId,
    TransitionId,
};
pub use published_gates::{PublishedGate, PublishedGates};
pub use refusal::{Code, Refusal};

/// A point in time in microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// SHA-256 of exact bytes; the kernel compares digests, it never computes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text::hex(&self.0))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
