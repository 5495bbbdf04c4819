//! A declared machine as a drawing: states in rows by how far they are from the initial one, each move with its action and its guard
//! on a lane of its own. What the process really did is drawn strong.

use super::canvas::{Canvas, LETTER, SMALL_LETTER, short, width_of};
use super::layers::{self, Link, Point, Size};
use crate::process::document::{Declaration, Transition};
use crate::story::Machine;
use std::collections::BTreeMap;

/// Beyond that a drawing explains nothing; the table does.
const MOST_STATES: usize = 30;
const MOST_TRANSITIONS: usize = 60;

const HEIGHT: f64 = 34.0;
const LINE: f64 = 13.0;
/// Of a name, an action or a guard.
const MOST_LETTERS: usize = 28;

/// All moves between two states, drawn as one line.
struct Edge<'d> {
    from: usize,
    to: usize,
    moves: Vec<&'d Transition>,
    taken: bool,
}

impl Edge<'_> {
    /// Actions, each with its guard: text and whether it is a guard.
    fn lines(&self) -> Vec<(String, bool)> {
        let lines = |t: &&Transition| {
            let guard = t.guard.as_ref().map(|guard| (format!("[{}]", short(guard, MOST_LETTERS)), true));
            [Some((short(&t.action, MOST_LETTERS), false)), guard]
        };
        self.moves.iter().flat_map(lines).flatten().collect()
    }

    fn size(&self) -> Size {
        let lines = self.lines();
        let widths = lines.iter().map(|(text, _)| width_of(text, SMALL_LETTER));
        Size { width: widths.fold(0.0, f64::max) + 6.0, height: LINE * lines.len() as f64 + 2.0 }
    }
}

/// The drawing, or nothing where the machine is too large for one.
pub fn draw(machine: &Machine) -> Option<String> {
    let declaration = &machine.declaration;
    if declaration.states.len() > MOST_STATES || declaration.transitions.len() > MOST_TRANSITIONS {
        return None;
    }
    // The walk through the graph begins at the first box.
    let first = |state: &&String| **state == declaration.initial_state;
    let others = declaration.states.iter().filter(|state| !first(state));
    let states: Vec<&String> = declaration.states.iter().filter(first).chain(others).collect();
    let edges = edges(machine, &states);
    let around = |state: usize| edges.iter().find(|edge| edge.from == state && edge.to == state);
    let width = |name: &str| (width_of(&short(name, MOST_LETTERS), LETTER) + 28.0).max(76.0);
    let slot = |(state, name): (usize, &&String)| {
        let loops = around(state).map_or(0.0, |edge| edge.size().width + 34.0);
        Size { width: width(name) + 2.0 * loops, height: HEIGHT }
    };
    let boxes: Vec<Size> = states.iter().enumerate().map(slot).collect();
    let label = |edge: &Edge<'_>| (edge.from != edge.to).then(|| edge.size());
    let links: Vec<Link> = edges.iter().map(|edge| Link { from: edge.from, to: edge.to, label: label(edge) }).collect();
    let layout = layers::lay(&boxes, &links);
    let mut canvas = Canvas::new();
    for (edge, route) in edges.iter().zip(&layout.routes) {
        let at = layout.boxes.get(edge.from).copied().unwrap_or_default();
        match route {
            Some(route) => {
                canvas.route(route, edge.taken);
                if let Some(at) = route.label {
                    write_label(&mut canvas, edge, at, "middle");
                }
            }
            None => write_around(&mut canvas, edge, at, states.get(edge.from).map_or(76.0, |name| width(name))),
        }
    }
    for (name, at) in states.iter().zip(&layout.boxes) {
        write_state(&mut canvas, machine, name, *at, width(name));
    }
    Some(canvas.finish("The declared machine"))
}

fn edges<'d>(machine: &'d Machine, states: &[&String]) -> Vec<Edge<'d>> {
    let index = |name: &String| states.iter().position(|state| *state == name);
    let mut edges: BTreeMap<(usize, usize), Edge<'d>> = BTreeMap::new();
    for t in &machine.declaration.transitions {
        let (Some(from), Some(to)) = (index(&t.from), index(&t.to)) else { continue };
        let edge = edges.entry((from, to)).or_insert(Edge { from, to, moves: vec![], taken: false });
        edge.moves.push(t);
        edge.taken |= machine.taken.contains(&(t.from.clone(), t.action.clone()));
    }
    edges.into_values().collect()
}

fn write_label(canvas: &mut Canvas, edge: &Edge<'_>, at: Point, anchor: &str) {
    let lines = edge.lines();
    let mut y = at.y - (lines.len() as f64 - 1.0) * LINE / 2.0;
    for (text, guard) in lines {
        canvas.text(if guard { "guard" } else { "act" }, Point { x: at.x, y }, anchor, &text);
        y += LINE;
    }
}

/// A move from a state to itself, at its left side.
fn write_around(canvas: &mut Canvas, edge: &Edge<'_>, at: Point, width: f64) {
    let (x, y) = (at.x - width / 2.0, at.y);
    let path = format!(
        "M{x:.1} {:.1}C{far:.1} {:.1} {far:.1} {:.1} {x:.1} {:.1}",
        y + 9.0,
        y + 15.0,
        y - 15.0,
        y - 7.0,
        far = x - 30.0
    );
    canvas.path(&path, Point { x, y: y - 7.0 }, Point { x: 1.0, y: 0.0 }, edge.taken);
    write_label(canvas, edge, Point { x: x - 28.0, y }, "end");
}

fn write_state(canvas: &mut Canvas, machine: &Machine, name: &str, at: Point, width: f64) {
    let declaration: &Declaration = &machine.declaration;
    let visited = machine
        .taken
        .iter()
        .any(|(from, action)| from == name || declaration.transition(from, action).is_some_and(|t| t.to == name));
    let class = match (machine.ended_in.as_deref() == Some(name), visited) {
        (true, _) => "state here",
        (false, true) => "state been",
        (false, false) => "state",
    };
    canvas.rectangle(class, at, Size { width, height: HEIGHT });
    // Terminal states have a second line, as they have on paper.
    if declaration.is_terminal(name) {
        canvas.rectangle(class, at, Size { width: width - 6.0, height: HEIGHT - 6.0 });
    }
    if declaration.initial_state == name {
        canvas.dot(Point { x: at.x, y: at.y - HEIGHT / 2.0 - 11.0 });
    }
    canvas.text("name", at, "middle", &short(name, MOST_LETTERS));
}
