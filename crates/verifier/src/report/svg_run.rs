//! A workflow as a drawing, with what became of each step: a graph in rows from top to bottom, a chain from left to right in as many
//! lines as it needs. No edge crosses a box.

use super::canvas::{Canvas, LETTER, SMALL_LETTER, short, width_of};
use super::html_run::{class_of, in_words};
use super::layers::{self, Link, Point, Size};
use crate::story::{RunStep, RunSummary};

/// Beyond that a drawing explains nothing; the table does.
const MOST_STEPS: usize = 60;

const MOST_LETTERS: usize = 26;
const LINE: f64 = 15.0;
/// Of a chain: how wide the page is, and what lies between boxes and lines.
const PAGE: f64 = 880.0;
const BESIDE: f64 = 30.0;
const BETWEEN: f64 = 34.0;

/// What is written into a box: its class, and each line with its own.
struct Card {
    class: String,
    lines: Vec<(&'static str, String)>,
}

impl Card {
    fn of(run: &RunSummary, step: &RunStep) -> Card {
        let kind = step.kind.split(' ').next().unwrap_or_default().to_owned();
        let state = if step.taken_over { "taken over".to_owned() } else { in_words(step.state) };
        let mut lines = vec![("name", short(&step.name, MOST_LETTERS)), ("in-box", format!("{kind}, {state}"))];
        if let Some(gate) = &step.gate {
            lines.push(("in-box guard", short(&format!("gate {gate}"), MOST_LETTERS)));
        }
        let undo = step.undone_by.and_then(|undo| run.steps.get(undo));
        lines.extend(undo.map(|undo| ("in-box", format!("undoing: {}", in_words(undo.state)))));
        let class = match undo.map(|undo| class_of(undo.state)) {
            Some("ok" | "plain" | "open") => "open",
            Some(other) => other,
            None => class_of(step.state),
        };
        Card { class: format!("step {class}"), lines }
    }

    fn size(&self) -> Size {
        let width = |(class, text): &(&str, String)| {
            width_of(text, if *class == "name" { LETTER * 1.06 } else { SMALL_LETTER })
        };
        let width = self.lines.iter().map(width).fold(64.0, f64::max);
        Size { width: width + 22.0, height: LINE * self.lines.len() as f64 + 12.0 }
    }

    fn draw(&self, canvas: &mut Canvas, at: Point, size: Size) {
        canvas.rectangle(&self.class, at, size);
        let mut y = at.y - (self.lines.len() as f64 - 1.0) * LINE / 2.0;
        for (class, text) in &self.lines {
            canvas.text(class, Point { x: at.x, y }, "middle", text);
            y += LINE;
        }
    }
}

/// The drawing, or nothing where there is none that explains anything.
pub fn draw(run: &RunSummary) -> Option<String> {
    if run.planned < 2 || run.planned > MOST_STEPS || run.steps.len() < run.planned {
        return None;
    }
    let steps = run.steps.get(..run.planned)?;
    let cards: Vec<Card> = steps.iter().map(|step| Card::of(run, step)).collect();
    let sizes: Vec<Size> = cards.iter().map(Card::size).collect();
    let began = |step: &RunStep| step.began_at_us.is_some() || step.taken_over;
    let taken = |from: usize, to: usize| [from, to].iter().all(|seq| steps.get(*seq).is_some_and(began));
    let mut canvas = Canvas::new();
    if run.linear {
        chain(&mut canvas, &cards, &sizes, &taken);
    } else {
        let links: Vec<Link> = run.edges.iter().map(|(from, to)| Link { from: *from, to: *to, label: None }).collect();
        let layout = layers::lay(&sizes, &links);
        for (link, route) in links.iter().zip(&layout.routes) {
            if let Some(route) = route {
                canvas.route(route, taken(link.from, link.to));
            }
        }
        cards.iter().zip(&layout.boxes).zip(&sizes).for_each(|((card, at), size)| card.draw(&mut canvas, *at, *size));
    }
    Some(canvas.finish("The workflow, and what became of its steps"))
}

/// Boxes of one size from left to right, line by line; an edge to the next line runs between the lines.
fn chain(canvas: &mut Canvas, cards: &[Card], sizes: &[Size], taken: &dyn Fn(usize, usize) -> bool) {
    let width = sizes.iter().map(|size| size.width).fold(0.0, f64::max);
    let height = sizes.iter().map(|size| size.height).fold(0.0, f64::max);
    let size = Size { width, height };
    let most = ((PAGE + BESIDE) / (width + BESIDE)).floor().max(1.0) as usize;
    // As even as possible: seven boxes are four and three.
    let lines = cards.len().div_ceil(most);
    let columns = cards.len().div_ceil(lines);
    let at = |place: usize| Point {
        x: (place % columns) as f64 * (width + BESIDE),
        y: (place / columns) as f64 * (height + BETWEEN),
    };
    for (place, card) in cards.iter().enumerate() {
        let here = at(place);
        if let Some(before) = place.checked_sub(1).map(at) {
            if before.y == here.y {
                let (from, to) = (before.x + width / 2.0, Point { x: here.x - width / 2.0, y: here.y });
                let path = format!("M{from:.1} {:.1}L{:.1} {:.1}", to.y, to.x, to.y);
                canvas.path(&path, to, Point { x: 1.0, y: 0.0 }, taken(place - 1, place));
            } else {
                let (from, to) = (before.y + height / 2.0, Point { x: here.x, y: here.y - height / 2.0 });
                let middle = (from + to.y) / 2.0;
                let path = format!("M{:.1} {from:.1}V{middle:.1}H{:.1}V{:.1}", before.x, to.x, to.y);
                canvas.path(&path, to, Point { x: 0.0, y: 1.0 }, taken(place - 1, place));
            }
        }
        card.draw(canvas, here, size);
    }
}
