//! `bundle.json`: what the bundle says it holds. Nothing in it is believed; the checks compare it with what is there.

use crate::bytes::Id;
use crate::json::{self, Fault, FaultKind, Value};
use crate::record::{integer, natural, optional_integer, require_members, require_text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub scope: Scope,
    pub origin: String,
    pub tree_size: u64,
    pub registry_sequence: u64,
    pub instances: u64,
    pub records: u64,
    pub made_at_us: i64,
    pub made_by: String,
    pub software: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Instance(Id),
    /// Both ends included; None is open.
    Window {
        after_us: Option<i64>,
        before_us: Option<i64>,
    },
}

const MEMBERS: [&str; 11] = [
    "v",
    "kind",
    "scope",
    "origin",
    "tree_size",
    "registry_sequence",
    "instances",
    "records",
    "made_at_us",
    "made_by",
    "software",
];

pub fn parse(bytes: &[u8]) -> Result<Manifest, Fault> {
    let value = json::parse(bytes)?;
    require_members(&value, &MEMBERS, &[])?;
    if integer(&value, "v")? != 1 || require_text(&value, "kind")? != "countersign-evidence" {
        return Err(form("this is not a countersign-evidence bundle of version 1"));
    }
    let text = |name: &str| require_text(&value, name).map(str::to_owned);
    Ok(Manifest {
        scope: scope(value.get("scope").unwrap_or(&Value::Null))?,
        origin: text("origin")?,
        tree_size: natural(&value, "tree_size")?,
        registry_sequence: natural(&value, "registry_sequence")?,
        instances: natural(&value, "instances")?,
        records: natural(&value, "records")?,
        made_at_us: integer(&value, "made_at_us")?,
        made_by: text("made_by")?,
        software: text("software")?,
    })
}

fn scope(value: &Value) -> Result<Scope, Fault> {
    if value.get("instance_id").is_some() {
        require_members(value, &["instance_id"], &[])?;
        let id = Id::parse(require_text(value, "instance_id")?);
        return id.map(Scope::Instance).ok_or_else(|| form("`scope.instance_id` is not an id"));
    }
    require_members(value, &["after_us", "before_us"], &[])?;
    Ok(Scope::Window {
        after_us: optional_integer(value, "after_us")?,
        before_us: optional_integer(value, "before_us")?,
    })
}

fn form(detail: &str) -> Fault {
    Fault { kind: FaultKind::Syntax, detail: detail.to_owned() }
}
