//! Which records a regulated deployment wants signed (`spec/record.md`, section 5.6).

use super::Context;
use crate::finding::{Code, Findings};
use crate::record::{Action, Assurance, Header, Record};
use crate::registry::Signatures;

pub(super) fn check(record: &Record, context: &Context<'_>, findings: &mut Findings) {
    let header = &record.header;
    if header.assurance == Assurance::ServerAttested && must_be_signed(record, context) {
        let detail = format!(
            "a `{}` like this one has to be signed by `{}`, and it is server_attested",
            header.action.as_str(),
            header.actor_ref
        );
        findings.find(Code::AssuranceTooLow, header, detail);
    }
}

fn must_be_signed(record: &Record, context: &Context<'_>) -> bool {
    let (header, registry) = (&record.header, context.registry);
    if header.action == Action::DelegationMade {
        return true;
    }
    let Some(configuration) = registry.configuration(context.at).filter(|configuration| configuration.regulated) else {
        return false;
    };
    if matches!(
        header.action,
        Action::GateDecided | Action::StepApproved | Action::StepRejected | Action::StepWithdrawn
    ) {
        return true;
    }
    let engines = [&configuration.application_actor_ref, &configuration.server_actor_ref];
    if engines.into_iter().any(|engine| **engine == *header.actor_ref)
        || matches!(header.action, Action::EvidenceExported | Action::AttemptRefused)
        || enrols(header, record, context)
    {
        return false;
    }
    match configuration.signatures {
        None => false,
        Some(Signatures::People) => !registry.is_service(&header.actor_ref),
        Some(Signatures::All) => true,
    }
}

/// An actor's own first key: nothing can sign for it.
fn enrols(header: &Header, record: &Record, context: &Context<'_>) -> bool {
    let whose = record.payload().and_then(|payload| payload.text("actor_ref"));
    header.action == Action::KeyRegistered
        && whose.is_none_or(|actor_ref| *actor_ref == *header.actor_ref)
        && !context.registry.has_key(&header.actor_ref, context.at)
}
