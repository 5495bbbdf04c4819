//! Declarations and gate_specs as documents (`spec/record.md`, section 6): written once, stored by
//! digest, read back as they were.

use crate::{Unwritable, sha256, written};
use countersign_kernel::plan::Template;
use countersign_kernel::{
    Declaration, Digest, Effect, GateEntry, GateSpec, PublishedGate, PublishedGates, QuorumRule, Transition,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub digest: Digest,
    pub bytes: Vec<u8>,
}

impl Document {
    fn of<T: Serialize>(value: &T) -> Result<Document, Unwritable> {
        let bytes = written(value)?;
        Ok(Document { digest: sha256(&[&bytes]), bytes })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclarationDocument {
    states: Vec<String>,
    transitions: Vec<TransitionDocument>,
    initial_state: String,
    terminal_states: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransitionDocument {
    from: String,
    action: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    effects: Vec<EffectDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum EffectDocument {
    Start(StartDocument),
    Event(EventDocument),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartDocument {
    /// `name@2`
    definition: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    input: Option<Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventDocument {
    #[serde(rename = "type")]
    event_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    data: Option<Value>,
}

/// A null that is written is a value.
fn present<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(given).map(Some)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GateDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    approver_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approvers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quorum: Option<QuorumDocument>,
    scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    delegable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaceable: Option<bool>,
    #[serde(rename = "selfApproval", skip_serializing_if = "Option::is_none")]
    self_approval: Option<bool>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuorumDocument {
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    m: Option<u32>,
}

pub fn declaration_document(declaration: &Declaration) -> Result<Document, Unwritable> {
    Document::of(&DeclarationDocument {
        states: declaration.states.clone(),
        transitions: declaration
            .transitions
            .iter()
            .map(|t| TransitionDocument {
                from: t.from_state.clone(),
                action: t.action.clone(),
                to: t.to_state.clone(),
                guard: t.guard.clone(),
                effects: t.effects.iter().map(effect_document).collect(),
            })
            .collect(),
        initial_state: declaration.initial_state.clone(),
        terminal_states: declaration.terminal_states.clone(),
    })
}

fn effect_document(effect: &Effect) -> EffectDocument {
    let value = |template: &Option<Template>| {
        template.as_ref().map(|template| serde_json::from_str(&template.0).unwrap_or(Value::Null))
    };
    match effect {
        Effect::Start { definition, version, input } => {
            let definition = version.map_or_else(|| definition.clone(), |version| format!("{definition}@{version}"));
            EffectDocument::Start(StartDocument { definition, input: value(input) })
        }
        Effect::Event { event_type, data } => {
            EffectDocument::Event(EventDocument { event_type: event_type.clone(), data: value(data) })
        }
    }
}

fn parse_effect(document: EffectDocument) -> Result<Effect, String> {
    let template = |value: Option<Value>| value.map(|value| Template(value.to_string().into()));
    Ok(match document {
        EffectDocument::Start(StartDocument { definition, input }) => {
            let (name, version) = match definition.rsplit_once('@') {
                None => (definition.as_str(), None),
                Some((name, version)) => {
                    (name, Some(version.parse().map_err(|_| format!("`{definition}` names no version"))?))
                }
            };
            Effect::Start { definition: name.to_owned(), version, input: template(input) }
        }
        EffectDocument::Event(EventDocument { event_type, data }) => Effect::Event { event_type, data: template(data) },
    })
}

fn gate_document(entry: &GateEntry) -> GateDocument {
    let open = open_document(entry.scope(), entry.is_delegable());
    match entry {
        GateEntry::Single { approver_ref, .. } => GateDocument { approver_ref: Some(approver_ref.clone()), ..open },
        GateEntry::Quorum { approvers, rule, .. } => GateDocument {
            approvers: Some(approvers.clone()),
            quorum: Some(QuorumDocument { rule: rule.as_str().into(), m: rule.m() }),
            ..open
        },
    }
}

fn open_document(scope: &str, delegable: bool) -> GateDocument {
    GateDocument {
        approver_ref: None,
        approvers: None,
        quorum: None,
        scope: scope.to_owned(),
        delegable: delegable.then_some(true),
        replaceable: None,
        self_approval: None,
    }
}

pub fn gate_spec_document(gate_spec: &GateSpec) -> Result<Document, Unwritable> {
    let entries: BTreeMap<&str, GateDocument> =
        gate_spec.0.iter().map(|(label, entry)| (label.as_str(), gate_document(entry))).collect();
    Document::of(&entries)
}

/// The gate_spec of a definition. Where every entry is fixed, it is that of its processes, byte for byte.
pub fn published_gates_document(gates: &PublishedGates) -> Result<Document, Unwritable> {
    let entries: BTreeMap<&str, GateDocument> =
        gates.0.iter().map(|(label, gate)| (label.as_str(), published_document(gate))).collect();
    Document::of(&entries)
}

fn published_document(gate: &PublishedGate) -> GateDocument {
    let document = gate.preset().map_or_else(|| open_document(gate.scope(), gate.is_delegable()), gate_document);
    let replaceable = gate.self_approval().map(|_| true);
    GateDocument { replaceable, self_approval: gate.self_approval().filter(|allowed| *allowed), ..document }
}

/// One entry of such a gate_spec.
pub fn published_gate_document(gate: &PublishedGate) -> Result<Document, Unwritable> {
    Document::of(&published_document(gate))
}

/// Reads back what [`declaration_document`] wrote.
pub fn parse_declaration(bytes: &[u8]) -> Result<Declaration, String> {
    let document: DeclarationDocument = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    Ok(Declaration {
        states: document.states,
        transitions: document.transitions.into_iter().map(parse_transition).collect::<Result<_, _>>()?,
        initial_state: document.initial_state,
        terminal_states: document.terminal_states,
    })
}

fn parse_transition(document: TransitionDocument) -> Result<Transition, String> {
    let TransitionDocument { from, action, to, guard, effects } = document;
    let effects = effects.into_iter().map(parse_effect).collect::<Result<_, _>>()?;
    Ok(Transition { from_state: from, action, to_state: to, guard, effects })
}

/// Reads back what [`gate_spec_document`] wrote.
pub fn parse_gate_spec(bytes: &[u8]) -> Result<GateSpec, String> {
    let PublishedGates(gates) = parse_published_gates(bytes)?;
    let fixed = |(label, gate)| match gate {
        PublishedGate::Fixed(entry) => Ok((label, entry)),
        PublishedGate::Replaceable { .. } | PublishedGate::Open { .. } => {
            Err(format!("`{label}`: only a definition's entry can be replaceable"))
        }
    };
    gates.into_iter().map(fixed).collect::<Result<_, String>>().map(GateSpec)
}

/// Reads back what [`published_gates_document`] wrote.
pub fn parse_published_gates(bytes: &[u8]) -> Result<PublishedGates, String> {
    let entries: BTreeMap<String, GateDocument> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let read = |(label, document)| read_gate(document).map(|gate| (label, gate));
    entries.into_iter().map(read).collect::<Result<_, String>>().map(PublishedGates)
}

/// Reads back what [`published_gate_document`] wrote.
pub fn parse_published_gate(bytes: &[u8]) -> Result<PublishedGate, String> {
    read_gate(serde_json::from_slice(bytes).map_err(|e| e.to_string())?)
}

fn read_gate(document: GateDocument) -> Result<PublishedGate, String> {
    let delegable = |document: &GateDocument| document.delegable.unwrap_or_default();
    let named = |document: GateDocument| match (&document.approver_ref, &document.approvers, &document.quorum) {
        (Some(approver_ref), None, None) => {
            let (approver_ref, delegable) = (approver_ref.clone(), delegable(&document));
            Ok(Some(GateEntry::Single { approver_ref, scope: document.scope, delegable }))
        }
        (None, Some(approvers), Some(quorum)) => {
            let rule = parse_rule(&quorum.rule, quorum.m)
                .ok_or_else(|| format!("quorum rule `{}` is not known", quorum.rule))?;
            let (approvers, delegable) = (approvers.clone(), delegable(&document));
            Ok(Some(GateEntry::Quorum { approvers, rule, scope: document.scope, delegable }))
        }
        (None, None, None) => Ok(None),
        _ => Err("a gate names either an approver or a quorum".to_owned()),
    };
    let (replaceable, scope) = (document.replaceable.unwrap_or_default(), document.scope.clone());
    let (self_approval, delegable) = (document.self_approval.unwrap_or_default(), delegable(&document));
    match (named(document)?, replaceable) {
        (Some(entry), false) if !self_approval => Ok(PublishedGate::Fixed(entry)),
        (Some(preset), true) => Ok(PublishedGate::Replaceable { preset, self_approval }),
        (None, true) => Ok(PublishedGate::Open { scope, self_approval, delegable }),
        (_, false) => Err("a gate that nobody may replace names its approvers".to_owned()),
    }
}

/// A rule and its `m` as they are written: `m` belongs to m-of-n and to no other rule.
pub fn parse_rule(rule: &str, m: Option<u32>) -> Option<QuorumRule> {
    match (rule, m) {
        ("all-of-n", None) => Some(QuorumRule::AllOfN),
        ("one-of-n", None) => Some(QuorumRule::OneOfN),
        ("m-of-n", Some(m)) => Some(QuorumRule::MOfN { m }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_read_back_as_they_were_written() {
        let declaration = Declaration {
            states: vec!["b".into(), "a".into()],
            transitions: vec![Transition {
                from_state: "b".into(),
                action: "go".into(),
                to_state: "a".into(),
                guard: Some("g".into()),
                effects: vec![
                    Effect::Start {
                        definition: "w".into(),
                        version: Some(2),
                        input: Some(Template("{\"a\":\"${event.action}\"}".into())),
                    },
                    Effect::Event { event_type: "t".into(), data: None },
                ],
            }],
            initial_state: "b".into(),
            terminal_states: vec!["a".into()],
        };
        let document = declaration_document(&declaration).unwrap();
        assert_eq!(
            String::from_utf8(document.bytes.clone()).unwrap(),
            r#"{"states":["b","a"],"transitions":[{"from":"b","action":"go","to":"a","guard":"g","effects":[{"start":{"definition":"w@2","input":{"a":"${event.action}"}}},{"event":{"type":"t"}}]}],"initial_state":"b","terminal_states":["a"]}"#
        );
        assert_eq!(parse_declaration(&document.bytes), Ok(declaration));

        let mut entries = BTreeMap::new();
        entries.insert(
            "two".to_owned(),
            GateEntry::Quorum {
                delegable: true,
                approvers: vec!["x".into(), "y".into()],
                rule: QuorumRule::MOfN { m: 2 },
                scope: "s".into(),
            },
        );
        entries.insert(
            "one".to_owned(),
            GateEntry::Single { approver_ref: "x".into(), scope: "s".into(), delegable: true },
        );
        let spec = GateSpec(entries);
        let document = gate_spec_document(&spec).unwrap();
        assert_eq!(
            String::from_utf8(document.bytes.clone()).unwrap(),
            r#"{"one":{"approver_ref":"x","scope":"s","delegable":true},"two":{"approvers":["x","y"],"quorum":{"rule":"m-of-n","m":2},"scope":"s","delegable":true}}"#
        );
        assert_eq!(parse_gate_spec(&document.bytes), Ok(spec));
    }

    #[test]
    fn published_gates_read_back_as_they_were_written() {
        let boss = || GateEntry::Single { approver_ref: "boss".into(), scope: "s".into(), delegable: false };
        let fixed = GateSpec(BTreeMap::from([("a".to_owned(), boss())]));
        assert_eq!(published_gates_document(&fixed.clone().into()), gate_spec_document(&fixed));
        let gates = PublishedGates(BTreeMap::from([
            ("a".to_owned(), PublishedGate::Fixed(boss())),
            ("b".to_owned(), PublishedGate::Replaceable { preset: boss(), self_approval: false }),
            ("c".to_owned(), PublishedGate::Open { scope: "s".into(), self_approval: true, delegable: true }),
        ]));
        let document = published_gates_document(&gates).unwrap();
        assert_eq!(
            String::from_utf8(document.bytes.clone()).unwrap(),
            r#"{"a":{"approver_ref":"boss","scope":"s"},"b":{"approver_ref":"boss","scope":"s","replaceable":true},"c":{"scope":"s","delegable":true,"replaceable":true,"selfApproval":true}}"#
        );
        assert_eq!(parse_published_gates(&document.bytes), Ok(gates));
        assert!(parse_gate_spec(&document.bytes).is_err());
        for broken in [r#"{"a":{"scope":"s"}}"#, r#"{"a":{"approver_ref":"x","scope":"s","selfApproval":true}}"#] {
            assert!(parse_published_gates(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
