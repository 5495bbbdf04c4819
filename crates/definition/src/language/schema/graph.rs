//! A schema as a graph: its subschemas, with every reference followed. What the validator would build and descend into is
//! measured here, without recursion, and refused where it is too much.

use super::Fault;
use super::resources::{Place, Resources, address, escaped};
use crate::language::pattern::{self, Weight};
use serde_json::Value;
use std::collections::HashMap;

/// How many subschemas a schema may have.
const MAX_SUBSCHEMAS: usize = 2048;
/// How many references and combinations may lie between a value and the schema that judges it.
const MAX_IN_PLACE: u32 = 64;
/// How many subschemas one value may be held against, each as often as a way leads to it.
const MAX_UNFOLDED: u64 = 4096;
/// The same for all `unevaluated…` together, for which the validator builds what they depend on once more.
const MAX_UNEVALUATED: u64 = 64 << 10;
/// How often subschemas may be built where parts have a `$id`: then the validator builds them for each way that leads there.
const MAX_WAYS: usize = 20_000;
/// Steps to compile all patterns of a schema.
const MAX_COMPILING: u64 = 4 << 20;
/// What a pattern weighs that looks around or back, which no bound on its positions bounds.
const LOOKING_AROUND: u64 = 1024;

pub(super) type Id = u32;

/// One subschema, as far as it costs something.
#[derive(Default)]
pub(super) struct Subschema {
    /// Steps for its own keywords, whatever the value.
    pub own: u64,
    /// Steps for each byte of a string.
    pub per_byte: u64,
    /// Steps to compare a value with what is enumerated.
    pub comparing: u64,
    pub is_unique: bool,
    /// Judges the value itself.
    pub in_place: Vec<Id>,
    /// Names to go on with; a value may have each.
    pub properties: HashMap<Box<str>, Id>,
    pub pattern_properties: Vec<(Weight, Id)>,
    /// For properties that `properties` does not name.
    pub additional: Option<Id>,
    /// For each property, and for each item.
    pub every_property: Vec<Id>,
    pub property_names: Option<Id>,
    pub prefix: Vec<Id>,
    pub every_item: Vec<Id>,
    /// It has to know what others have judged.
    pub is_unevaluated: bool,
}

impl Subschema {
    pub fn below(&self) -> impl Iterator<Item = Id> {
        let properties = self.properties.values().copied();
        let patterns = self.pattern_properties.iter().map(|(_, id)| *id);
        let single = self.additional.into_iter().chain(self.property_names);
        let every = self.every_property.iter().chain(&self.prefix).chain(&self.every_item).copied();
        properties.chain(patterns).chain(single).chain(every)
    }
}

/// A schema within its bounds.
pub(super) struct Graph {
    pub nodes: Vec<Subschema>,
    patterns: u64,
}

impl Graph {
    pub fn of(root: &Value) -> Result<Graph, Fault> {
        let mut builder = Builder {
            resources: Resources::of(root),
            ids: HashMap::new(),
            nodes: Vec::new(),
            pointers: Vec::new(),
            queue: Vec::new(),
            compiling: 0,
        };
        builder.id(Place { value: root, pointer: String::new(), resource: 0 })?;
        while let Some((id, place)) = builder.queue.pop() {
            builder.read(id, &place)?;
        }
        let Builder { nodes, pointers, compiling, resources, .. } = builder;
        let graph = Graph { nodes, patterns: compiling };
        graph.check_in_place(&pointers)?;
        if resources.len() > 1 {
            graph.check_ways()?;
        }
        Ok(graph)
    }

    /// About how many bytes it takes, with the patterns that the validator keeps.
    pub fn bytes(&self) -> usize {
        let edges: usize = self.nodes.iter().map(|node| node.in_place.len() + node.below().count()).sum();
        256 * self.nodes.len() + 64 * edges + 8 * self.patterns as usize
    }

    /// What judges one and the same value must come to an end: no way leads back to where it began, none is too long, and
    /// there are not too many.
    fn check_in_place(&self, pointers: &[String]) -> Result<(), Fault> {
        #[derive(Clone, Copy)]
        enum State {
            New,
            Open,
            Done { depth: u32, unfolded: u64 },
        }
        let mut states = vec![State::New; self.nodes.len()];
        let mut unevaluated = 0_u64;
        for root in 0..self.nodes.len() {
            let mut stack = vec![(root, 0)];
            while let Some((id, next)) = stack.pop() {
                if let (0, State::Done { .. }) = (next, states[id]) {
                    continue;
                }
                states[id] = State::Open;
                let node = &self.nodes[id];
                if let Some(child) = node.in_place.get(next) {
                    let child = *child as usize;
                    stack.push((id, next + 1));
                    match states[child] {
                        State::New => stack.push((child, 0)),
                        State::Open => return Err(Fault::bound(&pointers[child], ENDLESS)),
                        State::Done { .. } => {}
                    }
                    continue;
                }
                let (mut depth, mut unfolded) = (0, 1_u64);
                for child in &node.in_place {
                    if let State::Done { depth: below, unfolded: more } = states[*child as usize] {
                        depth = depth.max(below + 1);
                        unfolded = unfolded.saturating_add(more);
                    }
                }
                if depth > MAX_IN_PLACE {
                    return Err(Fault::bound(&pointers[id], too_deep()));
                }
                if node.is_unevaluated {
                    unevaluated = unevaluated.saturating_add(unfolded);
                }
                if unfolded > MAX_UNFOLDED || unevaluated > MAX_UNEVALUATED {
                    return Err(Fault::bound(&pointers[id], too_many_ways()));
                }
                states[id] = State::Done { depth, unfolded };
            }
        }
        Ok(())
    }

    /// Follows every way from the root until it meets itself.
    fn check_ways(&self) -> Result<(), Fault> {
        let mut ways = 0;
        let mut on_way = vec![false; self.nodes.len()];
        let mut stack: Vec<(usize, Vec<Id>)> = vec![(0, self.edges(0))];
        on_way[0] = true;
        while let Some((id, rest)) = stack.last_mut() {
            let Some(child) = rest.pop() else {
                on_way[*id] = false;
                stack.pop();
                continue;
            };
            let child = child as usize;
            if on_way[child] {
                continue;
            }
            ways += 1;
            if ways > MAX_WAYS {
                return Err(Fault::bound("", TOO_MANY_IDS));
            }
            on_way[child] = true;
            stack.push((child, self.edges(child)));
        }
        Ok(())
    }

    fn edges(&self, id: usize) -> Vec<Id> {
        let node = &self.nodes[id];
        node.in_place.iter().copied().chain(node.below()).collect()
    }
}

const ENDLESS: &str = "this schema refers to itself for the same value, so that checking would never end; refer to it from a \
                       property or an item";
const TOO_MANY_IDS: &str = "its parts with a `$id` refer to each other in too many ways; leave their `$id` out, and refer to \
                            `#/$defs/NAME`";

fn too_deep() -> String {
    format!(
        "more than {MAX_IN_PLACE} references and combinations follow each other for the same value; refer to the last one \
         directly"
    )
}

fn too_many_ways() -> String {
    format!(
        "it unfolds into more than {MAX_UNFOLDED} subschemas for one value; let fewer combinations refer to the same ones"
    )
}

struct Builder<'s> {
    resources: Resources<'s>,
    ids: HashMap<usize, Id>,
    nodes: Vec<Subschema>,
    pointers: Vec<String>,
    queue: Vec<(Id, Place<'s>)>,
    compiling: u64,
}

impl<'s> Builder<'s> {
    /// The subschema at this place, to be read later where it is new.
    fn id(&mut self, place: Place<'s>) -> Result<Id, Fault> {
        if let Some(known) = self.ids.get(&address(place.value)) {
            return Ok(*known);
        }
        if self.nodes.len() == MAX_SUBSCHEMAS {
            let message = format!("a schema may have {MAX_SUBSCHEMAS} subschemas; make it smaller");
            return Err(Fault::bound(place.pointer, message));
        }
        let id = self.nodes.len() as Id;
        self.ids.insert(address(place.value), id);
        self.nodes.push(Subschema::default());
        self.pointers.push(place.pointer.clone());
        self.queue.push((id, place));
        Ok(id)
    }

    fn read(&mut self, id: Id, place: &Place<'s>) -> Result<(), Fault> {
        let resource = self.resources.owner(place.value, place.resource);
        let Value::Object(fields) = place.value else {
            self.nodes[id as usize].own = 1;
            return Ok(());
        };
        let mut node = Subschema { own: 1, ..Subschema::default() };
        for (keyword, value) in fields {
            let at = Place { value, pointer: format!("{}/{}", place.pointer, escaped(keyword)), resource };
            node.own += match value {
                Value::Array(items) => 1 + items.len() as u64,
                Value::Object(fields) => 1 + fields.len() as u64,
                _ => 1,
            };
            self.keyword(keyword, &at, &mut node)?;
        }
        node.is_unique = fields.get("uniqueItems") == Some(&Value::Bool(true));
        self.nodes[id as usize] = node;
        Ok(())
    }

    fn keyword(&mut self, keyword: &str, at: &Place<'s>, node: &mut Subschema) -> Result<(), Fault> {
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => node.in_place.append(&mut self.reference(keyword, at)?),
            "allOf" | "anyOf" | "oneOf" => node.in_place.append(&mut self.list(at)?),
            "not" | "if" | "then" | "else" => node.in_place.extend(self.single(at)?),
            "dependentSchemas" | "dependencies" => {
                let all = self.mapping(at)?;
                node.in_place.extend(all.into_iter().map(|(_, id)| id));
            }
            "properties" => {
                let all = self.mapping(at)?;
                node.properties.extend(all.into_iter().map(|(name, id)| (Box::from(name), id)));
            }
            "patternProperties" => {
                for (name, id) in self.mapping(at)? {
                    let weight = self.pattern(name, &format!("{}/{}", at.pointer, escaped(name)))?;
                    node.pattern_properties.push((weight, id));
                }
            }
            "additionalProperties" => node.additional = self.single(at)?,
            "unevaluatedProperties" => {
                node.is_unevaluated = true;
                node.every_property.extend(self.single(at)?);
            }
            "propertyNames" => node.property_names = self.single(at)?,
            "prefixItems" => node.prefix.append(&mut self.list(at)?),
            "items" if at.value.is_array() => node.prefix.append(&mut self.list(at)?),
            "items" | "additionalItems" | "contains" => node.every_item.extend(self.single(at)?),
            "unevaluatedItems" => {
                node.is_unevaluated = true;
                node.every_item.extend(self.single(at)?);
            }
            "pattern" => {
                let pattern = at.value.as_str().unwrap_or_default();
                node.per_byte += self.pattern(pattern, &at.pointer)?.positions;
            }
            "format" | "contentMediaType" | "contentEncoding" => node.per_byte += 16,
            "minLength" | "maxLength" => node.per_byte += 1,
            "enum" | "const" => node.comparing += size(at.value),
            _ => {}
        }
        Ok(())
    }

    fn reference(&mut self, keyword: &str, at: &Place<'s>) -> Result<Vec<Id>, Fault> {
        let Value::String(reference) = at.value else { return Ok(Vec::new()) };
        let mut targets = match keyword {
            "$dynamicRef" => self.resources.dynamic(reference, at.resource),
            _ => self.resources.targets(reference, at.resource),
        };
        if keyword == "$recursiveRef" {
            targets.extend_from_slice(self.resources.recursive());
        }
        if targets.is_empty() {
            let message = format!(
                "`{}` leads to nothing in this schema, and nothing is fetched; refer to `#/$defs/NAME`",
                crate::problem::printable(reference, 64)
            );
            return Err(Fault { pointer: at.pointer.clone(), message, out_of_bounds: false });
        }
        targets.into_iter().map(|place| self.id(place)).collect()
    }

    /// `true` and `false` cost nothing.
    fn single(&mut self, at: &Place<'s>) -> Result<Option<Id>, Fault> {
        if at.value.is_object() { self.id(at.clone()).map(Some) } else { Ok(None) }
    }

    fn list(&mut self, at: &Place<'s>) -> Result<Vec<Id>, Fault> {
        let Value::Array(items) = at.value else { return Ok(Vec::new()) };
        let places = items.iter().enumerate().map(|(i, value)| {
            let pointer = format!("{}/{i}", at.pointer);
            Place { value, pointer, resource: at.resource }
        });
        places.collect::<Vec<_>>().into_iter().map(|place| self.id(place)).collect()
    }

    fn mapping(&mut self, at: &Place<'s>) -> Result<Vec<(&'s str, Id)>, Fault> {
        let mut found = Vec::new();
        for (name, value) in at.value.as_object().into_iter().flatten().filter(|(_, value)| value.is_object()) {
            let pointer = format!("{}/{}", at.pointer, escaped(name));
            found.push((name.as_str(), self.id(Place { value, pointer, resource: at.resource })?));
        }
        Ok(found)
    }

    /// A pattern of ECMA 262, weighed as the validator will compile it.
    fn pattern(&mut self, pattern: &str, pointer: &str) -> Result<Weight, Fault> {
        let around = Weight { positions: LOOKING_AROUND + pattern.len() as u64, compiling: 64 * pattern.len() as u64 };
        let weight = match jsonschema_regex::to_rust_regex(pattern) {
            Ok(translated) => match pattern::weigh(&translated) {
                Ok(weight) => weight,
                Err(_) if looks_around(&translated) => around,
                Err(why) => return Err(Fault::bound(pointer, why)),
            },
            // The validator says what is wrong with it.
            Err(()) => around,
        };
        self.compiling = self.compiling.saturating_add(weight.compiling);
        if self.compiling > MAX_COMPILING {
            return Err(Fault::bound(pointer, "the patterns of this schema are too large together; shorten them"));
        }
        Ok(weight)
    }
}

/// Whether a pattern needs a search that goes back: `(?=…)`, `(?!…)`, `(?<=…)`, `(?<!…)`, or `\1`.
fn looks_around(pattern: &str) -> bool {
    let back = pattern.as_bytes().windows(2).any(|two| two[0] == b'\\' && (two[1].is_ascii_digit() || two[1] == b'k'));
    back || ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|look| pattern.contains(look))
}

/// How much there is to compare. The reader of JSON bounds how deep this goes.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 2 + items.iter().map(size).sum::<u64>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, value)| 2 + key.len() as u64 / 8 + size(value)).sum::<u64>()
        }
        Value::String(text) => 2 + text.len() as u64 / 8,
        _ => 2,
    }
}
