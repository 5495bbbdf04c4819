//! A definition as the command that publishes it.

use crate::gates::GOVERNANCE;
use crate::{Body, Definition};
use countersign_kernel::process::PUBLISH;
use countersign_kernel::registry::{Machine, PublishDefinition, Workflow};
use countersign_kernel::run::shell_declaration;
use countersign_kernel::{Digest, PublishedGate, PublishedGates};
use std::sync::Arc;

impl Definition {
    /// `source` is the document that it was parsed from. How digests are made is the ledger's affair.
    pub fn published_as(self, source: impl Into<Arc<str>>, digest: impl Fn(&[u8]) -> Digest) -> PublishDefinition {
        let source = source.into();
        let (mut workflow, mut machine, mut publish) = (None, None, None);
        let (declaration, gate_spec) = match self.body {
            Body::Process { declaration, mut gate_spec } => {
                publish = gate_spec.0.get(PUBLISH).cloned();
                // What governs the definition is no gate of its processes.
                let guards = declaration.guard_labels();
                gate_spec
                    .0
                    .retain(|label, _| guards.contains(&label.as_str()) || !GOVERNANCE.contains(&label.as_str()));
                (declaration, gate_spec)
            }
            Body::Machine { machine: own, document } => {
                let (declaration, document_digest) = (own.declaration(), digest(&document));
                machine = Some(Machine { machine: Arc::new(own), document: Some(document.into()), document_digest });
                (declaration, PublishedGates::default())
            }
            Body::Workflow { plan, document } => {
                publish = plan.gate_spec.0.get(PUBLISH).cloned().map(PublishedGate::Fixed);
                let ((declaration, gate_spec), document_digest) = (shell_declaration(&plan), digest(&document));
                workflow = Some(Workflow::new(Arc::new(plan), document.into(), document_digest));
                (declaration, gate_spec.into())
            }
        };
        PublishDefinition {
            name: self.name,
            digest: digest(source.as_bytes()),
            source,
            declaration: Arc::new(declaration),
            gate_spec: Arc::new(gate_spec),
            workflow,
            machine,
            retention: self.retention,
            publish,
            merged: None,
        }
    }
}
