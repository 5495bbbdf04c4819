//! Replays of dead letters across instances (`spec/replay.md`, section 4): the governance chain says what was requested and what
//! became of it, the process of a request how it was decided, and a run what it took up again. Instances come one by one, in any
//! order; two of them are compared when the second one has arrived.

use crate::bytes::Id;
use crate::finding::{Code, Findings};
use crate::record::Header;
use std::collections::HashMap;

/// What the governance chain says of a request.
#[derive(Debug)]
pub struct Asked {
    pub letter: Id,
    pub key: String,
    /// The approval that it was completed under, and the record that says so.
    pub completed: Option<(Id, Header)>,
}

/// What the process of a request says.
#[derive(Clone, Copy, Debug)]
struct Decided {
    letter: Option<Id>,
    /// The gate of its approval, and the record that followed it.
    approved: Option<(Id, Id)>,
    /// A record of it was purged.
    lost: bool,
}

/// A step that was taken up again.
#[derive(Debug)]
pub struct Retry {
    pub header: Header,
    pub request: Id,
    pub approval: Id,
    /// The letter's key: the run, the step and its cycle.
    pub key: String,
}

#[derive(Debug, Default)]
pub struct Replays {
    /// `None` until the chain has passed by.
    asked: Option<HashMap<Id, Asked>>,
    decided: HashMap<Id, Decided>,
    retries: HashMap<Id, Vec<Retry>>,
}

impl Replays {
    pub fn chain(&mut self, asked: HashMap<Id, Asked>, findings: &mut Findings) {
        for (request, asked) in &asked {
            if let Some(decided) = self.decided.get(request) {
                check_completed(asked, *decided, findings);
            }
        }
        for retry in self.retries.values().flatten() {
            check_asked(retry, &asked, findings);
        }
        self.asked = Some(asked);
    }

    pub fn request(
        &mut self,
        request: Id,
        letter: Option<Id>,
        approved: Option<(Id, Id)>,
        lost: bool,
        findings: &mut Findings,
    ) {
        let decided = Decided { letter, approved, lost };
        if let Some(asked) = self.asked.as_ref().and_then(|asked| asked.get(&request)) {
            check_completed(asked, decided, findings);
        }
        for retry in self.retries.get(&request).into_iter().flatten() {
            check_retry(retry, decided, findings);
        }
        self.decided.insert(request, decided);
    }

    pub fn retry(&mut self, retry: Retry, findings: &mut Findings) {
        if let Some(asked) = &self.asked {
            check_asked(&retry, asked, findings);
        }
        if let Some(decided) = self.decided.get(&retry.request) {
            check_retry(&retry, *decided, findings);
        }
        let known = self.retries.entry(retry.request).or_default();
        if !known.is_empty() {
            let detail = format!("request {} is replayed a second time", retry.request);
            findings.find(Code::GovernanceInvalid, &retry.header, detail);
        }
        known.push(retry);
    }
}

fn check_completed(asked: &Asked, decided: Decided, findings: &mut Findings) {
    let Some((approval, header)) = &asked.completed else { return };
    let letter = decided.letter.is_none_or(|letter| letter == asked.letter);
    if let Err(detail) = approved_before(*approval, header.event_id, decided) {
        findings.find(Code::GovernanceInvalid, header, detail);
    } else if !letter {
        let detail = format!("what was approved is not a replay of dead letter {}", asked.letter);
        findings.find(Code::GovernanceInvalid, header, detail);
    }
}

fn check_retry(retry: &Retry, decided: Decided, findings: &mut Findings) {
    if let Err(detail) = approved_before(retry.approval, retry.header.event_id, decided) {
        findings.find(Code::GovernanceInvalid, &retry.header, detail);
    }
}

fn approved_before(approval: Id, at: Id, decided: Decided) -> Result<(), String> {
    match decided.approved {
        Some((gate, followed)) if gate == approval && followed < at => Ok(()),
        None if decided.lost => Ok(()),
        _ => Err(format!("replayed, and its request was not approved by {approval} before")),
    }
}

fn check_asked(retry: &Retry, asked: &HashMap<Id, Asked>, findings: &mut Findings) {
    if asked.get(&retry.request).is_none_or(|asked| asked.key != retry.key) {
        let detail = format!("request {} is not about {}", retry.request, retry.key);
        findings.find(Code::GovernanceInvalid, &retry.header, detail);
    }
}
