//! By when approvers are asked to decide: what the definition says of a gate's label, counted from its opening. Nobody is refused
//! for being late, so no record says it; in-trays show it and are sorted by it.

use super::Committer;
pub use crate::known::Dues;
use crate::rows::Write;
use countersign_kernel::process::{DefinitionRef, Event, EventBody};
use countersign_kernel::registry::Registry;

impl Committer {
    /// How long the approvers have, by label of the definition's gate_spec.
    pub(super) fn dues_of(&self, definition: Option<&DefinitionRef>, registry: &Registry) -> Dues {
        let found = definition.and_then(|named| registry.definition(&named.name, Some(named.version)));
        found.map_or_else(Dues::default, |definition| self.registry.dues(&definition.digest))
    }
}

pub fn opens_gate(event: &Event) -> bool {
    matches!(event.body, EventBody::GateOpened { .. })
}

/// What is noted beside the assignments of a gate that was opened.
pub fn due_writes(event: &Event, dues: &Dues, writes: &mut Vec<Write>) {
    let EventBody::GateOpened { gate, .. } = &event.body else { return };
    let Some(due) = dues.get(&gate.guard) else { return };
    let due_at = gate.opened_at.after(*due);
    let assignments = gate.steps.iter().filter_map(|step| step.assignment);
    writes.extend(assignments.map(|assignment_id| Write::AssignmentDue { assignment_id, due_at }));
}
