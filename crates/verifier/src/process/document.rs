//! Declarations and gate_specs (`spec/record.md`, section 6) by their digest.

use super::quorum::Rule;
use crate::bytes::{Digest, sha256};
use crate::finding::{Code, Findings, Place};
use crate::json::{self, Value};
use crate::record::{require_members, require_text};
use crate::run::definition::Workflow;
use crate::run::own::OwnMachine;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    pub states: Vec<String>,
    pub transitions: Vec<Transition>,
    pub initial_state: String,
    pub terminal_states: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: String,
    pub action: String,
    pub to: String,
    pub guard: Option<String>,
    /// What its firing causes, in order.
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `name@2`
    Start(String),
    /// Its type.
    Event(String),
}

impl Effect {
    /// As a declaration and a record have it: both name what is started, or the type of what is sent.
    pub fn read(value: &Value) -> Result<Effect, String> {
        let (start, event) = (value.given("start"), value.given("event"));
        let effect = match (start, event) {
            (Some(start), None) => start.text("definition").map(|definition| Effect::Start(definition.to_owned())),
            (None, Some(event)) => event.text("type").map(|of| Effect::Event(of.to_owned())),
            _ => None,
        };
        effect.ok_or_else(|| "an effect is a `start` with a definition or an `event` with a type".to_owned())
    }

    pub fn read_all(value: Option<&Value>) -> Result<Vec<Effect>, String> {
        let Some(value) = value else { return Ok(vec![]) };
        value.as_list().ok_or("`effects` is not a list")?.iter().map(Effect::read).collect()
    }
}

/// Guard label → who must approve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateSpec(pub BTreeMap<String, GateEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateEntry {
    pub approvers: Vec<String>,
    /// None: one named approver.
    pub rule: Option<Rule>,
    pub scope: String,
    /// An approver may name a substitute.
    pub delegable: bool,
}

/// Guard label → who must approve by the definition, and whether a start may say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedGates(pub BTreeMap<String, PublishedGate>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedGate {
    /// None: a start has to name them.
    pub preset: Option<GateEntry>,
    pub scope: String,
    pub delegable: bool,
    pub replaceable: bool,
    pub self_approval: bool,
}

impl PublishedGates {
    pub fn read(value: &Value) -> Result<PublishedGates, String> {
        let members = value.members().ok_or("a gate_spec is an object")?;
        let gate = |(label, value): &(String, Value)| match published_gate(value) {
            Ok(gate) => Ok((label.clone(), gate)),
            Err(problem) => Err(format!("gate `{}`: {problem}", json::shortened(label))),
        };
        members.iter().map(gate).collect::<Result<_, _>>().map(PublishedGates)
    }

    /// Labels whose entry is not the published one.
    pub fn replaced_in<'s>(&self, spec: &'s GateSpec) -> Vec<&'s str> {
        let preset = |label: &str| self.0.get(label).and_then(|gate| gate.preset.as_ref());
        spec.0.iter().filter(|(label, entry)| preset(label) != Some(entry)).map(|(label, _)| label.as_str()).collect()
    }
}

impl Declaration {
    pub fn read(value: &Value) -> Result<Declaration, String> {
        let members = ["states", "transitions", "initial_state", "terminal_states"];
        require_members(value, &members, &[]).map_err(|fault| fault.detail)?;
        let texts = |name: &str| {
            let texts = value.texts(name).ok_or_else(|| format!("`{name}` is not a list of texts"))?;
            Ok::<Vec<String>, String>(texts.into_iter().map(str::to_owned).collect())
        };
        let transitions = value.get("transitions").and_then(Value::as_list).ok_or("`transitions` is not a list")?;
        let declaration = Declaration {
            states: texts("states")?,
            transitions: transitions.iter().map(transition).collect::<Result<_, _>>()?,
            initial_state: require_text(value, "initial_state").map_err(|fault| fault.detail)?.to_owned(),
            terminal_states: texts("terminal_states")?,
        };
        declaration.check()?;
        Ok(declaration)
    }

    /// What would let two readers follow different paths.
    fn check(&self) -> Result<(), String> {
        let states: HashSet<&str> = self.states.iter().map(String::as_str).collect();
        let ends = self.transitions.iter().flat_map(|t| [&t.from, &t.to]);
        let named = ends.chain(&self.terminal_states).chain([&self.initial_state]);
        if let Some(unknown) = named.into_iter().find(|state| !states.contains(state.as_str())) {
            return Err(format!("the state `{unknown}` is not declared"));
        }
        let mut pairs = HashSet::new();
        match self.transitions.iter().find(|t| !pairs.insert((&t.from, &t.action))) {
            None => Ok(()),
            Some(t) => Err(format!("`{}` from `{}` is declared twice", t.action, t.from)),
        }
    }

    pub fn transition(&self, state: &str, action: &str) -> Option<&Transition> {
        self.transitions.iter().find(|t| t.from == state && t.action == action)
    }

    pub fn is_terminal(&self, state: &str) -> bool {
        self.terminal_states.iter().any(|terminal| terminal == state)
    }

    /// Guard labels, each once.
    pub fn guards(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        self.transitions.iter().filter_map(|t| t.guard.as_deref()).filter(|guard| seen.insert(*guard)).collect()
    }
}

fn transition(value: &Value) -> Result<Transition, String> {
    require_members(value, &["from", "action", "to"], &["guard", "effects"]).map_err(|fault| fault.detail)?;
    let text = |name| require_text(value, name).map(str::to_owned).map_err(|fault| fault.detail);
    let guard = match value.given("guard") {
        None => None,
        Some(guard) => Some(guard.as_text().ok_or("`guard` is not text")?.to_owned()),
    };
    let effects = Effect::read_all(value.given("effects"))?;
    Ok(Transition { from: text("from")?, action: text("action")?, to: text("to")?, guard, effects })
}

impl GateSpec {
    pub fn read(value: &Value) -> Result<GateSpec, String> {
        let members = value.members().ok_or("a gate_spec is an object")?;
        let entry = |(label, value): &(String, Value)| match gate_entry(value) {
            Ok(entry) => Ok((label.clone(), entry)),
            Err(problem) => Err(format!("gate `{}`: {problem}", json::shortened(label))),
        };
        members.iter().map(entry).collect::<Result<_, _>>().map(GateSpec)
    }
}

/// One entry of a definition's gate_spec.
pub fn published_gate(value: &Value) -> Result<PublishedGate, String> {
    const NAMED: [&str; 3] = ["approver_ref", "approvers", "quorum"];
    let optional = ["approver_ref", "approvers", "quorum", "delegable", "replaceable", "selfApproval"];
    require_members(value, &["scope"], &optional).map_err(|fault| fault.detail)?;
    let (replaceable, self_approval) = (flag(value, "replaceable")?, flag(value, "selfApproval")?);
    let scope = require_text(value, "scope").map_err(|fault| fault.detail)?.to_owned();
    let open = NAMED.iter().all(|name| value.given(name).is_none());
    if (open || self_approval) && !replaceable {
        return Err("it names no approver, or lets the starter approve, and is not replaceable".to_owned());
    }
    let preset = if open { None } else { Some(named_entry(value, scope.clone())?) };
    Ok(PublishedGate { preset, scope, delegable: flag(value, "delegable")?, replaceable, self_approval })
}

/// Absent is false.
fn flag(value: &Value, name: &str) -> Result<bool, String> {
    match value.given(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| format!("`{name}` is not true or false")),
    }
}

fn gate_entry(value: &Value) -> Result<GateEntry, String> {
    require_members(value, &["scope"], &["approver_ref", "approvers", "quorum", "delegable"])
        .map_err(|fault| fault.detail)?;
    let scope = require_text(value, "scope").map_err(|fault| fault.detail)?.to_owned();
    named_entry(value, scope)
}

fn named_entry(value: &Value, scope: String) -> Result<GateEntry, String> {
    let delegable = flag(value, "delegable")?;
    match (value.given("approver_ref"), value.given("approvers"), value.given("quorum")) {
        (Some(Value::Text(approver)), None, None) => {
            Ok(GateEntry { approvers: vec![approver.clone()], rule: None, scope, delegable })
        }
        (None, Some(_), Some(quorum)) => {
            require_members(quorum, &["rule"], &["m"]).map_err(|fault| fault.detail)?;
            let rule = Rule::read(quorum.text("rule"), quorum.given("m")).ok_or("the quorum has no known rule")?;
            let approvers = value.texts("approvers").ok_or("`approvers` is not a list of texts")?;
            let approvers = approvers.into_iter().map(str::to_owned).collect();
            Ok(GateEntry { approvers, rule: Some(rule), scope, delegable })
        }
        _ => Err("it names neither one approver nor approvers with a quorum".to_owned()),
    }
}

/// The documents of a bundle. A document that is not what its digest says is not taken.
#[derive(Debug, Default)]
pub struct Documents {
    known: HashMap<Digest, Document>,
}

#[derive(Debug, Default)]
struct Document {
    declaration: Option<Rc<Declaration>>,
    gate_spec: Option<Rc<GateSpec>>,
    published: Option<Rc<PublishedGates>>,
    workflow: Option<Rc<Workflow>>,
    machine: Option<Rc<OwnMachine>>,
}

impl Document {
    fn read(body: &[u8]) -> Result<Document, json::Fault> {
        let value = json::parse(body)?;
        Ok(Document {
            declaration: Declaration::read(&value).ok().map(Rc::new),
            gate_spec: GateSpec::read(&value).ok().map(Rc::new),
            published: PublishedGates::read(&value).ok().map(Rc::new),
            workflow: Workflow::read(&value).ok().map(Rc::new),
            machine: OwnMachine::read(&value).ok().map(Rc::new),
        })
    }
}

impl Documents {
    /// Takes a line of `documents.jsonl`. False where it cannot be read.
    pub fn take(&mut self, line: &[u8], findings: &mut Findings) -> bool {
        let read = json::parse(line).and_then(|value| {
            require_members(&value, &["digest", "body"], &[])?;
            Ok((require_text(&value, "digest")?.to_owned(), require_text(&value, "body")?.to_owned()))
        });
        let (stated, body) = match read {
            Ok(read) => read,
            Err(fault) => {
                findings.fault(&fault, Code::BundleForm, Place::bundle(), "documents.jsonl");
                return false;
            }
        };
        let digest = sha256(&[body.as_bytes()]);
        if Digest::parse(&stated) != Some(digest) {
            let detail =
                format!("a document is stated to have the digest {}, it has {digest}", json::shortened(&stated));
            findings.find(Code::DocumentMismatch, Place::bundle(), detail);
            return true;
        }
        match Document::read(body.as_bytes()) {
            Ok(document) => {
                if self.known.insert(digest, document).is_some() {
                    let detail = format!("the document {digest} appears twice");
                    findings.find(Code::BundleForm, Place::bundle(), detail);
                }
            }
            Err(fault) => findings.fault(&fault, Code::DocumentMismatch, Place::bundle(), "document"),
        }
        true
    }

    /// Takes a document of a store. One that is no JSON is not taken, so that whoever needs it finds it missing.
    pub fn add(&mut self, body: &[u8]) {
        let digest = sha256(&[body]);
        if !self.known.contains_key(&digest)
            && let Ok(document) = Document::read(body)
        {
            self.known.insert(digest, document);
        }
    }

    /// Forgets all where there are more than so many.
    pub fn keep_at_most(&mut self, most: usize) {
        if self.known.len() > most {
            self.known.clear();
        }
    }

    pub fn declaration(&self, digest: Option<Digest>) -> Option<Rc<Declaration>> {
        self.known.get(&digest?)?.declaration.clone()
    }

    pub fn workflow(&self, digest: Digest) -> Option<Rc<Workflow>> {
        self.known.get(&digest)?.workflow.clone()
    }

    pub fn machine(&self, digest: Digest) -> Option<Rc<OwnMachine>> {
        self.known.get(&digest)?.machine.clone()
    }

    /// The gate_spec of a definition.
    pub fn published(&self, digest: Digest) -> Option<Rc<PublishedGates>> {
        self.known.get(&digest)?.published.clone()
    }

    pub fn gate_spec(&self, digest: Option<Digest>) -> Option<Rc<GateSpec>> {
        self.known.get(&digest?)?.gate_spec.clone()
    }
}
