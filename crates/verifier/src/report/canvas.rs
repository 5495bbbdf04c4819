//! Shapes of a drawing, how far they reach, and the SVG that they become.

use super::html::escape;
use super::layers::{Point, Route, Size};

const MARGIN: f64 = 12.0;

/// About as wide as a sans-serif font of 12.5 pixels, and of 11.
pub const LETTER: f64 = 7.1;
pub const SMALL_LETTER: f64 = 6.0;

pub fn width_of(text: &str, letter: f64) -> f64 {
    text.chars().count() as f64 * letter
}

/// A text of unknown length, short enough for a box.
pub fn short(text: &str, most: usize) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(most).collect();
    if chars.next().is_some() { head + "…" } else { head }
}

/// What lies below is drawn first: lines, then boxes, then texts.
pub struct Canvas {
    lines: String,
    shapes: String,
    texts: String,
    from: Point,
    to: Point,
}

impl Canvas {
    pub fn new() -> Canvas {
        let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        Canvas {
            lines: String::new(),
            shapes: String::new(),
            texts: String::new(),
            from: Point { x: least, y: least },
            to: Point { x: most, y: most },
        }
    }

    fn reach(&mut self, x: f64, y: f64) {
        self.from = Point { x: self.from.x.min(x), y: self.from.y.min(y) };
        self.to = Point { x: self.to.x.max(x), y: self.to.y.max(y) };
    }

    pub fn rectangle(&mut self, class: &str, middle: Point, size: Size) {
        let (x, y) = (middle.x - size.width / 2.0, middle.y - size.height / 2.0);
        self.shapes.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"7\"/>",
            size.width, size.height
        ));
        self.reach(x, y);
        self.reach(x + size.width, y + size.height);
    }

    pub fn dot(&mut self, at: Point) {
        self.shapes.push_str(&format!("<circle class=\"begin\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\"/>", at.x, at.y));
        self.reach(at.x, at.y - 7.0);
    }

    /// `y` is the middle of the text. The anchor is that of SVG: start, middle or end.
    pub fn text(&mut self, class: &str, at: Point, anchor: &str, text: &str) {
        self.texts.push_str(&format!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.x,
            at.y + 4.0,
            escape(text)
        ));
        let width = width_of(text, SMALL_LETTER);
        let (from, to) = match anchor {
            "start" => (at.x, at.x + width),
            "end" => (at.x - width, at.x),
            _ => (at.x - width / 2.0, at.x + width / 2.0),
        };
        self.reach(from, at.y);
        self.reach(to, at.y);
    }

    /// A line with an arrow at its end. Its points are those of a [`Route`]: straight pieces and curves by turns.
    pub fn route(&mut self, route: &Route, taken: bool) {
        let points = &route.points;
        let Some(first) = points.first() else { return };
        let mut path = format!("M{:.1} {:.1}", first.x, first.y);
        for (at, pair) in points.windows(2).enumerate() {
            let [from, to] = pair else { continue };
            self.reach(to.x, to.y);
            if at % 2 == 0 {
                path.push_str(&format!("L{:.1} {:.1}", to.x, to.y));
            } else {
                let bend = (to.y - from.y) * 0.5;
                path.push_str(&format!(
                    "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
                    from.x,
                    from.y + bend,
                    to.x,
                    to.y - bend,
                    to.x,
                    to.y
                ));
            }
        }
        // The last piece goes straight down or up into the box, or its curve ends so.
        let upwards = first.y > points.last().map_or(0.0, |last| last.y);
        if let Some(last) = points.last() {
            self.path(&path, *last, if upwards { Point { x: 0.0, y: -1.0 } } else { Point { x: 0.0, y: 1.0 } }, taken);
        }
    }

    /// A path that is written already, and an arrow at its end in this direction.
    pub fn path(&mut self, path: &str, end: Point, towards: Point, taken: bool) {
        let class = if taken { "taken" } else { "move" };
        let back = Point { x: end.x - 8.0 * towards.x, y: end.y - 8.0 * towards.y };
        let aside = Point { x: 4.5 * towards.y, y: 4.5 * towards.x };
        self.lines.push_str(&format!(
            "<path class=\"{class}\" d=\"{path}\"/><polygon class=\"{class}-head\" points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
            end.x,
            end.y,
            back.x - aside.x,
            back.y - aside.y,
            back.x + aside.x,
            back.y + aside.y
        ));
        self.reach(end.x, end.y);
    }

    pub fn finish(self, label: &str) -> String {
        let (left, top) = (self.from.x - MARGIN, self.from.y - MARGIN);
        let (width, height) = (self.to.x + MARGIN - left, self.to.y + MARGIN - top);
        format!(
            "<svg class=\"machine\" role=\"img\" aria-label=\"{}\" viewBox=\"{left:.0} {top:.0} {width:.0} {height:.0}\" \
             style=\"max-width:{width:.0}px\">{}{}{}</svg>\n",
            escape(label),
            self.lines,
            self.shapes,
            self.texts
        )
    }
}
