//! Where the references of a schema lead. A schema may contain others, each with a `$id`; a reference names one of
//! them and a place in it.

use serde_json::Value;
use std::collections::HashMap;

/// A place in the schema.
#[derive(Clone)]
pub(super) struct Place<'s> {
    pub value: &'s Value,
    pub pointer: String,
    /// The schema with a `$id` that it is in.
    pub resource: usize,
}

struct Resource<'s> {
    uri: String,
    root: Place<'s>,
}

/// The schemas that one document holds, and the names in them.
pub(super) struct Resources<'s> {
    all: Vec<Resource<'s>>,
    anchors: HashMap<&'s str, Vec<Place<'s>>>,
    /// Where a `$recursiveRef` may lead.
    recursive: Vec<Place<'s>>,
    /// Which schema each mapping belongs to, by its address.
    owners: HashMap<usize, usize>,
    id: &'static str,
}

impl<'s> Resources<'s> {
    pub fn of(root: &'s Value) -> Resources<'s> {
        let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let id = if draft.contains("draft-04") { "id" } else { "$id" };
        let mut resources =
            Resources { all: Vec::new(), anchors: HashMap::new(), recursive: Vec::new(), owners: HashMap::new(), id };
        let place = Place { value: root, pointer: String::new(), resource: 0 };
        let uri = root.get(id).and_then(Value::as_str).unwrap_or_default();
        resources.all.push(Resource { uri: without_fragment(uri).to_owned(), root: place.clone() });
        resources.recursive.push(place.clone());
        resources.scan(place, true);
        resources
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The schema that a value belongs to, which may be one inside of the one that leads to it.
    pub fn owner(&self, value: &Value, within: usize) -> usize {
        self.owners.get(&address(value)).copied().unwrap_or(within)
    }

    /// Finds all names. Data that looks like a schema is taken for one: rather a reference too many than one too few. The
    /// reader of JSON bounds how deep this goes.
    fn scan(&mut self, place: Place<'s>, is_root: bool) {
        let Place { value, pointer, mut resource } = place;
        let children: Vec<(String, &'s Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(key, value)| (escaped(key), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(i, item)| (i.to_string(), item)).collect(),
            _ => return,
        };
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let id = text(self.id).unwrap_or_default();
        let own = without_fragment(id);
        if !is_root && !own.is_empty() {
            let uri = joined(&self.all[resource].uri, own);
            resource = self.all.len();
            let root = Place { value, pointer: pointer.clone(), resource };
            self.all.push(Resource { uri, root });
        }
        self.owners.insert(address(value), resource);
        let here = Place { value, pointer, resource };
        let named = [text("$anchor"), text("$dynamicAnchor"), id.strip_prefix('#')];
        for name in named.into_iter().flatten() {
            self.anchors.entry(name).or_default().push(here.clone());
        }
        if !is_root && value.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
            self.recursive.push(here.clone());
        }
        for (key, value) in children {
            self.scan(Place { value, pointer: format!("{}/{key}", here.pointer), resource }, false);
        }
    }

    /// Where a reference may lead from a place in this schema. Nothing: it leads out.
    pub fn targets(&self, reference: &str, within: usize) -> Vec<Place<'s>> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if uri.is_empty() {
            Some(within)
        } else {
            let whole = joined(&self.all[within].uri, uri);
            self.all.iter().position(|resource| resource.uri == whole || resource.uri == uri)
        };
        let Some(resource) = resource else { return Vec::new() };
        let fragment = percent_decoded(fragment);
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(fragment.as_str()).cloned().unwrap_or_default();
        }
        let root = &self.all[resource].root;
        match root.value.pointer(&fragment) {
            Some(value) => {
                let resource = self.owner(value, resource);
                vec![Place { value, pointer: format!("{}{fragment}", root.pointer), resource }]
            }
            None => Vec::new(),
        }
    }

    /// What a `$dynamicRef` may lead to besides where it points: every anchor of that name.
    pub fn dynamic(&self, reference: &str, within: usize) -> Vec<Place<'s>> {
        let name = reference.split_once('#').map_or("", |(_, name)| name);
        let mut found = self.anchors.get(name).cloned().unwrap_or_default();
        if found.is_empty() {
            found = self.targets(reference, within);
        }
        found
    }

    pub fn recursive(&self) -> &[Place<'s>] {
        &self.recursive
    }
}

/// Values do not move while they are looked at.
pub(super) fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

fn without_fragment(uri: &str) -> &str {
    uri.split_once('#').map_or(uri, |(uri, _)| uri)
}

/// A URI as it is meant beside another; enough of RFC 3986 for the names of schemas.
fn joined(base: &str, uri: &str) -> String {
    let absolute = uri.find(':').is_some_and(|colon| !uri[..colon].contains('/'));
    if absolute || base.is_empty() {
        return uri.to_owned();
    }
    if let Some(path) = uri.strip_prefix('/') {
        let start = base.find("://").map_or(0, |start| start + 3);
        let end = base[start..].find('/').map_or(base.len(), |slash| start + slash);
        return format!("{}/{path}", &base[..end]);
    }
    let end = base.rfind('/').map_or(0, |slash| slash + 1);
    format!("{}{uri}", &base[..end])
}

pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
