//! Counts a check before it is made: walks through schema and document as the validator would, but judges nothing. It
//! counts the worst case of the validator's work, stops where the budget ends, and limits the depth of the
//! validator's recursion.

use super::graph::{Graph, Id, Subschema};
use crate::language::TOO_MUCH;
use countersign_kernel::Budget;
use countersign_kernel::plan::ExpressionError;
use serde_json::Value;

/// Steps to hold one value against one subschema, besides its keywords.
const VISIT: u64 = 48;
const KEYWORD: u64 = 4;
/// Steps to look a property up.
const PROPERTY: u64 = 32;
/// To say where a document misses its schema, the validator collects all reasons, for each combination anew.
const EXPLAINING: u64 = 16;
/// How deep the validator may recurse.
const MAX_DEPTH: u32 = 400;

impl Graph {
    /// Pays for a check of this document; gives the steps that it takes to explain why it fails.
    pub fn walk(&self, document: &Value, budget: &Budget) -> Result<u64, ExpressionError> {
        let mut walk = Walk { graph: self, left: budget.left(), explaining: 0 };
        let walked = walk.visit(0, document, Depth { visits: 0, combined: 1 });
        budget.set_left(walk.left);
        walked.map_err(|stop| match stop {
            Stop::OverBudget => ExpressionError { message: TOO_MUCH.to_owned(), over_budget: true },
            Stop::TooDeep => ExpressionError::new(format!(
                "the value and its schema are nested too deeply to be checked: more than {MAX_DEPTH} subschemas inside of each other"
            )),
        })?;
        Ok(walk.explaining)
    }
}

enum Stop {
    OverBudget,
    TooDeep,
}

#[derive(Clone, Copy)]
struct Depth {
    visits: u32,
    /// How many subschemas around judge the same value.
    combined: u64,
}

struct Walk<'g> {
    graph: &'g Graph,
    left: u64,
    explaining: u64,
}

impl<'g> Walk<'g> {
    fn spend(&mut self, steps: u64) -> Result<(), Stop> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Stop::OverBudget)
            }
        }
    }

    fn visit(&mut self, id: Id, value: &Value, depth: Depth) -> Result<(), Stop> {
        if depth.visits == MAX_DEPTH {
            return Err(Stop::TooDeep);
        }
        let graph = self.graph;
        let node = &graph.nodes[id as usize];
        let own = VISIT + KEYWORD * node.own;
        self.spend(own)?;
        self.explaining = self.explaining.saturating_add(EXPLAINING * own * depth.combined);
        if node.comparing > 0 {
            self.spend(node.comparing)?;
        }
        let here = Depth { visits: depth.visits + 1, combined: depth.combined + 1 };
        for child in &node.in_place {
            self.visit(*child, value, here)?;
        }
        if node.is_unevaluated {
            self.mark(node, value, here)?;
        }
        let below = Depth { visits: depth.visits + 1, combined: depth.combined };
        match value {
            Value::String(text) => self.spend(node.per_byte.saturating_mul(text.len() as u64 + 1)),
            Value::Array(items) => self.items(node, items, below),
            Value::Object(_) => self.properties(node, value, below),
            _ => Ok(()),
        }
    }

    fn items(&mut self, node: &'g Subschema, items: &[Value], depth: Depth) -> Result<(), Stop> {
        if node.is_unique {
            // Few are compared with each other, many are hashed.
            self.measure(items, 48)?;
        }
        for (item, id) in items.iter().zip(&node.prefix) {
            self.visit(*id, item, depth)?;
        }
        for id in &node.every_item {
            for item in items {
                self.visit(*id, item, depth)?;
            }
        }
        Ok(())
    }

    fn properties(&mut self, node: &'g Subschema, value: &Value, depth: Depth) -> Result<(), Stop> {
        let Value::Object(fields) = value else { return Ok(()) };
        for (name, value) in fields {
            self.spend(PROPERTY)?;
            match node.properties.get(name.as_str()) {
                Some(id) => self.visit(*id, value, depth)?,
                None => {
                    if let Some(id) = node.additional {
                        self.visit(id, value, depth)?;
                    }
                }
            }
            for (weight, id) in &node.pattern_properties {
                self.spend(weight.matching(name.len()))?;
                self.visit(*id, value, depth)?;
            }
            for id in &node.every_property {
                self.visit(*id, value, depth)?;
            }
            if let Some(id) = node.property_names {
                self.visit(id, &Value::String(name.clone()), depth)?;
            }
        }
        Ok(())
    }

    /// `unevaluated…` asks all that judge the same value once more, and what they depend on.
    fn mark(&mut self, node: &'g Subschema, value: &Value, depth: Depth) -> Result<(), Stop> {
        if depth.visits == MAX_DEPTH {
            return Err(Stop::TooDeep);
        }
        let graph = self.graph;
        let here = Depth { visits: depth.visits + 1, ..depth };
        self.spend(VISIT)?;
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let patterns = node.pattern_properties.iter().map(|(weight, _)| weight.matching(name.len()));
                    self.spend(patterns.fold(KEYWORD, u64::saturating_add))?;
                    for id in &node.every_property {
                        self.visit(*id, value, here)?;
                    }
                }
            }
            Value::Array(items) => {
                self.spend(KEYWORD.saturating_mul(items.len() as u64))?;
                for id in &node.every_item {
                    for item in items {
                        self.visit(*id, item, here)?;
                    }
                }
            }
            _ => {}
        }
        for child in &node.in_place {
            self.visit(*child, value, here)?;
            self.mark(&graph.nodes[*child as usize], value, here)?;
        }
        Ok(())
    }

    /// Pays for every value in a list, so many times. The reader of JSON bounds how deep this goes.
    fn measure(&mut self, values: &[Value], times: u64) -> Result<(), Stop> {
        for value in values {
            self.spend(times)?;
            match value {
                Value::String(text) => self.spend(text.len() as u64 / 2)?,
                Value::Array(items) => self.measure(items, times)?,
                Value::Object(fields) => {
                    for (name, value) in fields {
                        self.spend(times + name.len() as u64 / 2)?;
                        self.measure(std::slice::from_ref(value), times)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
