//! A declared machine as a drawing: states in rows by their distance from the initial one, moves forward downwards, moves
//! back and around at the sides. What the process really did is drawn strong.

use super::html::escape;
use crate::process::document::{Declaration, Transition};
use crate::story::Machine;
use std::collections::BTreeMap;

/// Beyond that a drawing explains nothing; the table does.
const MOST_STATES: usize = 30;
const MOST_TRANSITIONS: usize = 60;

const ROW: f64 = 104.0;
const HEIGHT: f64 = 34.0;
const LETTER: f64 = 7.1;
const SMALL_LETTER: f64 = 6.2;
const MARGIN: f64 = 14.0;

struct Node<'d> {
    name: &'d str,
    x: f64,
    y: f64,
    width: f64,
    row: usize,
}

/// All moves between two states, drawn as one line.
struct Edge<'d> {
    from: usize,
    to: usize,
    labels: Vec<&'d Transition>,
    taken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Edge<'_> {
    /// Actions, each with its guard: text and whether it is a guard.
    fn lines(&self) -> Vec<(String, bool)> {
        let lines = |t: &&Transition| {
            let guard = t.guard.as_ref().map(|guard| (format!("[{}]", short(guard)), true));
            [Some((short(&t.action), false)), guard]
        };
        self.labels.iter().flat_map(lines).flatten().collect()
    }

    fn label_width(&self) -> f64 {
        let widths = self.lines().into_iter().map(|(text, _)| width_of(&text, SMALL_LETTER));
        widths.fold(0.0, f64::max)
    }
}

fn short(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(28).collect();
    if chars.next().is_some() { head + "…" } else { head }
}

fn width_of(text: &str, letter: f64) -> f64 {
    text.chars().count() as f64 * letter
}

/// The drawing, or nothing where the machine is too large for one.
pub fn draw(machine: &Machine) -> Option<String> {
    let declaration = &machine.declaration;
    if declaration.states.len() > MOST_STATES || declaration.transitions.len() > MOST_TRANSITIONS {
        return None;
    }
    let rows = rows(declaration);
    let edges = edges(declaration, machine);
    let nodes = place(declaration, &rows, &edges);
    let mut drawing = Drawing::default();
    let (mut left, mut right) = (extent(&nodes).0, extent(&nodes).1);
    for edge in &edges {
        let (Some(from), Some(to)) = (nodes.get(edge.from), nodes.get(edge.to)) else { continue };
        if edge.from == edge.to {
            drawing.around(from, edge);
        } else if to.row == from.row + 1 {
            let crowded = edges
                .iter()
                .filter(|other| other.to == edge.to && other.from != edge.from)
                .any(|other| nodes.get(other.from).is_some_and(|other| other.row == from.row));
            drawing.down(from, to, edge, if crowded { 0.3 } else { 0.55 });
        } else if to.row > from.row {
            left -= 30.0;
            drawing.beside(from, to, edge, left, Side::Left);
        } else {
            right += 30.0;
            drawing.beside(from, to, edge, right, Side::Right);
        }
    }
    for node in &nodes {
        drawing.node(node, machine);
    }
    Some(drawing.finish())
}

/// Distance of each state from the initial one; what cannot be reached comes last.
fn rows(declaration: &Declaration) -> Vec<usize> {
    let index = |name: &str| declaration.states.iter().position(|state| state == name);
    let mut rows: Vec<Option<usize>> = vec![None; declaration.states.len()];
    let mut reached = Vec::from_iter(index(&declaration.initial_state));
    let mut row = 0;
    while !reached.is_empty() {
        for state in &reached {
            if let Some(place) = rows.get_mut(*state) {
                place.get_or_insert(row);
            }
        }
        let from = |t: &&Transition| index(&t.from).is_some_and(|state| reached.contains(&state));
        let next = declaration.transitions.iter().filter(from).filter_map(|t| index(&t.to));
        let mut next: Vec<usize> = next.filter(|state| rows.get(*state) == Some(&None)).collect();
        next.sort_unstable();
        next.dedup();
        reached = next;
        row += 1;
    }
    rows.into_iter().map(|found| found.unwrap_or(row)).collect()
}

fn edges<'d>(declaration: &'d Declaration, machine: &Machine) -> Vec<Edge<'d>> {
    let index = |name: &str| declaration.states.iter().position(|state| state == name);
    let mut edges: BTreeMap<(usize, usize), Edge<'d>> = BTreeMap::new();
    for t in &declaration.transitions {
        let (Some(from), Some(to)) = (index(&t.from), index(&t.to)) else { continue };
        let edge = edges.entry((from, to)).or_insert(Edge { from, to, labels: vec![], taken: false });
        edge.labels.push(t);
        edge.taken |= machine.taken.contains(&(t.from.clone(), t.action.clone()));
    }
    edges.into_values().collect()
}

fn place<'d>(declaration: &'d Declaration, rows: &[usize], edges: &[Edge<'_>]) -> Vec<Node<'d>> {
    let slot = |state: usize, name: &str| {
        let label = edges.iter().filter(|edge| edge.to == state && edge.from != state).map(Edge::label_width);
        let around = edges.iter().filter(|edge| edge.to == state && edge.from == state).map(Edge::label_width);
        let around = around.fold(0.0, |widest, label| f64::max(widest, label + 34.0));
        (width_of(name, LETTER) + 28.0 + 2.0 * around).max(label.fold(0.0, f64::max) * 1.8) + 26.0
    };
    let mut nodes = Vec::new();
    let last = rows.iter().copied().max().unwrap_or_default();
    for row in 0..=last {
        let members: Vec<(usize, &String)> =
            declaration.states.iter().enumerate().filter(|(state, _)| rows.get(*state) == Some(&row)).collect();
        let whole: f64 = members.iter().map(|(state, name)| slot(*state, name)).sum();
        let mut x = -whole / 2.0;
        for (state, name) in members {
            let slot = slot(state, name);
            let width = (width_of(&short(name), LETTER) + 28.0).max(76.0);
            nodes.push((state, Node { name, x: x + slot / 2.0, y: row as f64 * ROW, width, row }));
            x += slot;
        }
    }
    nodes.sort_by_key(|(state, _)| *state);
    nodes.into_iter().map(|(_, node)| node).collect()
}

fn extent(nodes: &[Node<'_>]) -> (f64, f64) {
    let left = nodes.iter().map(|node| node.x - node.width / 2.0).fold(0.0, f64::min);
    let right = nodes.iter().map(|node| node.x + node.width / 2.0).fold(0.0, f64::max);
    (left, right)
}

/// Shapes so far, and how far they reach.
#[derive(Default)]
struct Drawing {
    shapes: String,
    labels: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Drawing {
    fn reach(&mut self, x: f64, y: f64) {
        self.left = self.left.min(x);
        self.right = self.right.max(x);
        self.top = self.top.min(y);
        self.bottom = self.bottom.max(y);
    }

    fn line(&mut self, path: &str, arrow: &str, taken: bool) {
        let class = if taken { "taken" } else { "move" };
        self.shapes.push_str(&format!(
            "<path class=\"{class}\" d=\"{path}\"/><polygon class=\"{class}-head\" points=\"{arrow}\"/>"
        ));
    }

    fn label(&mut self, edge: &Edge<'_>, x: f64, y: f64, anchor: &str) {
        let lines = edge.lines();
        let mut at = y - (lines.len() as f64 - 1.0) * 6.5 + 3.5;
        for (text, guard) in lines {
            let class = if guard { "guard" } else { "act" };
            self.labels.push_str(&format!(
                "<text class=\"{class}\" x=\"{x:.1}\" y=\"{at:.1}\" text-anchor=\"{anchor}\">{}</text>",
                escape(&text)
            ));
            at += 13.0;
        }
        let width = edge.label_width();
        let (from, to) = match anchor {
            "start" => (x, x + width),
            "end" => (x - width, x),
            _ => (x - width / 2.0, x + width / 2.0),
        };
        self.reach(from, y);
        self.reach(to, y);
    }

    fn down(&mut self, from: &Node<'_>, to: &Node<'_>, edge: &Edge<'_>, at: f64) {
        let (x1, y1, x2, y2) = (from.x, from.y + HEIGHT / 2.0, to.x, to.y - HEIGHT / 2.0);
        let bend = (y2 - y1) * 0.55;
        let path =
            format!("M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {:.1}", y1 + bend, y2 - bend, y2 - 6.0);
        let arrow = format!("{x2:.1},{y2:.1} {:.1},{:.1} {:.1},{:.1}", x2 - 4.5, y2 - 8.0, x2 + 4.5, y2 - 8.0);
        self.line(&path, &arrow, edge.taken);
        let back = 1.0 - at;
        let weights = (back * back * back + 3.0 * back * back * at, 3.0 * back * at * at + at * at * at);
        self.label(edge, x1 * weights.0 + x2 * weights.1, y1 + (y2 - y1) * at, "middle");
    }

    /// A line that leaves and arrives at the side, for what does not lead into the next row.
    fn beside(&mut self, from: &Node<'_>, to: &Node<'_>, edge: &Edge<'_>, far: f64, side: Side) {
        let sign = if side == Side::Right { 1.0 } else { -1.0 };
        let (x1, y1) = (from.x + sign * from.width / 2.0, from.y + 5.0);
        let (x2, y2) = (to.x + sign * to.width / 2.0, to.y - 5.0);
        let bow = far + sign * 24.0;
        let path = format!("M{x1:.1} {y1:.1}C{bow:.1} {y1:.1} {bow:.1} {y2:.1} {:.1} {y2:.1}", x2 + sign * 6.0);
        let back = x2 + sign * 8.0;
        let arrow = format!("{x2:.1},{y2:.1} {back:.1},{:.1} {back:.1},{:.1}", y2 - 4.5, y2 + 4.5);
        self.line(&path, &arrow, edge.taken);
        let x = (x1 + 6.0 * bow + x2) / 8.0 + sign * 5.0;
        self.label(edge, x, (y1 + y2) / 2.0, if side == Side::Right { "start" } else { "end" });
    }

    fn around(&mut self, node: &Node<'_>, edge: &Edge<'_>) {
        let (x, y) = (node.x - node.width / 2.0, node.y);
        let path = format!(
            "M{x:.1} {:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
            y + 8.0,
            x - 30.0,
            y + 16.0,
            x - 30.0,
            y - 16.0,
            x - 6.0,
            y - 7.0
        );
        let arrow = format!("{x:.1},{:.1} {:.1},{:.1} {:.1},{:.1}", y - 5.0, x - 9.0, y - 11.0, x - 7.0, y - 2.0);
        self.line(&path, &arrow, edge.taken);
        self.label(edge, x - 28.0, y, "end");
    }

    fn node(&mut self, node: &Node<'_>, machine: &Machine) {
        let declaration = &machine.declaration;
        let (x, y) = (node.x - node.width / 2.0, node.y - HEIGHT / 2.0);
        let visited = machine.taken.iter().any(|(from, action)| {
            let to = declaration.transition(from, action).map(|t| t.to.as_str());
            from == node.name || to == Some(node.name)
        });
        let class = match (machine.ended_in.as_deref() == Some(node.name), visited) {
            (true, _) => "state here",
            (false, true) => "state been",
            (false, false) => "state",
        };
        let shape = |inset: f64| {
            format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"7\"/>",
                x + inset,
                y + inset,
                node.width - 2.0 * inset,
                HEIGHT - 2.0 * inset
            )
        };
        self.shapes.push_str(&shape(0.0));
        // Terminal states have a second line, as they have on paper.
        if declaration.is_terminal(node.name) {
            self.shapes.push_str(&shape(3.0));
        }
        if declaration.initial_state == node.name {
            self.shapes.push_str(&format!(
                "<circle class=\"begin\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\"/>",
                node.x,
                y - 11.0
            ));
            self.reach(node.x, y - 18.0);
        }
        self.labels.push_str(&format!(
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            node.x,
            node.y + 4.5,
            escape(&short(node.name))
        ));
        self.reach(x, y);
        self.reach(x + node.width, y + HEIGHT);
    }

    fn finish(self) -> String {
        let (left, top) = (self.left - MARGIN, self.top - MARGIN / 2.0);
        let (width, height) = (self.right + MARGIN - left, self.bottom + MARGIN - top);
        format!(
            "<svg class=\"machine\" role=\"img\" aria-label=\"The declared machine\" viewBox=\"{left:.0} {top:.0} {width:.0} {height:.0}\" \
             style=\"max-width:{width:.0}px\">{}{}</svg>\n",
            self.shapes, self.labels
        )
    }
}
