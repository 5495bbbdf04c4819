//! The verifier's answer, before it is shown to anybody.

use crate::finding::{Claim, Finding, Findings, Note};
use crate::manifest::{Manifest, Scope};
use crate::note::Checkpoint;
use crate::story::{Question, Story};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Verified,
    Failed,
    /// Not refuted, and not provable: content that it needs was destroyed, or cannot be checked here.
    Unverifiable,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Verified => "verified",
            Outcome::Failed => "failed",
            Outcome::Unverifiable => "unverifiable",
        }
    }
}

#[derive(Clone, Debug)]
pub struct ClaimVerdict {
    pub claim: Claim,
    pub outcome: Outcome,
    pub checked: u64,
    pub findings: Vec<Finding>,
}

#[derive(Debug)]
pub struct Verdict {
    pub origin: Option<String>,
    pub tree_size: Option<u64>,
    /// Base64, as the checkpoint writes it.
    pub root: Option<String>,
    pub records: u64,
    pub instances: u64,
    pub claims: Vec<ClaimVerdict>,
    pub notes: Vec<Note>,
    pub(crate) questions: Vec<Question>,
    /// What the checks do not cover; gathered for a report.
    pub(crate) uncovered: Vec<String>,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) story: Story,
}

impl Verdict {
    pub(crate) fn new(
        manifest: Option<Manifest>,
        checkpoint: Option<Checkpoint>,
        (records, instances): (u64, u64),
        findings: &Findings,
        (questions, uncovered): (Vec<Question>, Vec<String>),
        story: Story,
    ) -> Self {
        let claim = |claim: &Claim| {
            let found = findings.of(*claim);
            let outcome = match (found.is_empty(), findings.is_unverifiable(*claim)) {
                (false, _) => Outcome::Failed,
                (true, true) => Outcome::Unverifiable,
                (true, false) => Outcome::Verified,
            };
            ClaimVerdict { claim: *claim, outcome, checked: findings.count_checked(*claim), findings: found }
        };
        Verdict {
            origin: checkpoint.as_ref().map(|checkpoint| checkpoint.origin.clone()),
            tree_size: checkpoint.as_ref().map(|checkpoint| checkpoint.size),
            root: checkpoint.as_ref().map(Checkpoint::root_text),
            records,
            instances,
            claims: Claim::ALL.iter().map(claim).collect(),
            notes: findings.notes(),
            questions,
            uncovered,
            manifest,
            story,
        }
    }

    /// A bundle passes when there is no finding.
    pub fn passed(&self) -> bool {
        self.claims.iter().all(|claim| claim.findings.is_empty())
    }

    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.claims.iter().flat_map(|claim| &claim.findings)
    }

    /// What the bundle is about, in words.
    /// How much was verified.
    pub(crate) fn counted(&self) -> String {
        let instances = match self.instances {
            1 => format!("1 {}", self.story.kind()),
            n => format!("{n} processes and runs"),
        };
        format!("{} records of {instances} and of the registry", self.records)
    }

    pub(crate) fn subject(&self) -> String {
        let end = |time: Option<i64>| time.map_or("open".to_owned(), crate::time::utc);
        match self.manifest.as_ref().map(|manifest| &manifest.scope) {
            None => "a bundle without a readable manifest".to_owned(),
            Some(Scope::Instance(id)) => format!("{} {id}", self.story.kind()),
            Some(Scope::Window { after_us, before_us }) => {
                format!("every process and run with a record from {} to {}", end(*after_us), end(*before_us))
            }
        }
    }
}
