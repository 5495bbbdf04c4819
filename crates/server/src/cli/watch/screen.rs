//! A picture that is drawn in place of the one before. Every drawing leaves the terminal as it found it, so that nothing
//! has to be put right when watching ends.

use crate::cli::run_view::MAX_ROWS;
use crate::cli::table::paint;
use crate::cli::terminal::height;
use anstream::{AutoStream, ColorChoice};
use std::io::Write;

/// Long lines are cut off at the edge instead of going on in the next one, so that lines can be counted.
const NO_WRAP: &str = "\u{1b}[?7l";
const WRAP: &str = "\u{1b}[?7h";
/// Before a line is written: after one that was cut off, it would take the last character with it.
const ERASE_LINE: &str = "\u{1b}[2K";
const ERASE_BELOW: &str = "\u{1b}[J";

#[derive(Default)]
pub struct Screen {
    /// Lines of the last picture.
    drawn: usize,
}

impl Screen {
    /// Draws what `picture` makes of the rows that there is room for.
    pub fn draw(&mut self, picture: impl Fn(usize) -> String) -> anyhow::Result<()> {
        let height = height();
        let (mut rows, mut text) = (MAX_ROWS, picture(MAX_ROWS));
        // The steps are what can be folded; the rest of the picture is as it is.
        while text.lines().count() >= height && rows > 0 {
            let over = text.lines().count() + 1 - height;
            // Of forty rows there may be three steps.
            rows = rows.min(height).saturating_sub(over);
            text = picture(rows);
        }
        let lines: Vec<&str> = text.lines().take(height.saturating_sub(1).max(1)).collect();
        let mut stdout = std::io::stdout().lock();
        let colour = AutoStream::choice(&stdout) != ColorChoice::Never;
        let mut out = String::from(NO_WRAP);
        if self.drawn > 0 {
            out.push_str(&format!("\u{1b}[{}A\r", self.drawn));
        }
        for line in &lines {
            let painted = paint(line);
            let line = if colour { painted } else { anstream::adapter::strip_str(&painted).to_string() };
            out.push_str(&format!("{ERASE_LINE}{line}\n"));
        }
        out.push_str(ERASE_BELOW);
        out.push_str(WRAP);
        self.drawn = lines.len();
        stdout.write_all(out.as_bytes())?;
        Ok(stdout.flush()?)
    }
}
