//! Tables and colour. A tinted text carries zero-width marks instead of escape sequences, so that a
//! table measures it rightly; [`paint`] turns the marks into colour at the very end. Foreign text can
//! hold no marks: they are among the characters that `printable` escapes.

use super::output::printable;
use anstyle::{AnsiColor, Style};
use comfy_table::{LineStyle, TableStyle};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Strong,
    Dim,
    Good,
    Bad,
    Wait,
}

const TINTS: [(Tint, char); 5] = [
    (Tint::Strong, '\u{E0041}'),
    (Tint::Dim, '\u{E0042}'),
    (Tint::Good, '\u{E0043}'),
    (Tint::Bad, '\u{E0044}'),
    (Tint::Wait, '\u{E0045}'),
];
const END: char = '\u{E007F}';

impl Tint {
    const fn style(self) -> Style {
        match self {
            Tint::Strong => Style::new().bold(),
            Tint::Dim => Style::new().dimmed(),
            Tint::Good => AnsiColor::Green.on_default(),
            Tint::Bad => AnsiColor::Red.on_default().bold(),
            Tint::Wait => AnsiColor::Yellow.on_default(),
        }
    }
}

/// Foreign text, made printable and marked with a tint.
pub fn tint(tint: Tint, text: &str) -> String {
    let mark = TINTS.iter().find(|(known, _)| *known == tint).map_or(END, |(_, mark)| *mark);
    format!("{mark}{}{END}", printable(text))
}

/// The text with its marks turned into escape sequences.
pub fn paint(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut style = Style::new();
    for c in text.chars() {
        if let Some((tint, _)) = TINTS.iter().find(|(_, mark)| *mark == c) {
            style = tint.style();
            out.push_str(&style.render().to_string());
        } else if c == END {
            out.push_str(&style.render_reset().to_string());
        } else {
            out.push(c);
        }
    }
    out
}

/// Rows under a header, one line each unless a cell has more.
pub struct Table(comfy_table::Table);

const LIGHT: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));

impl Table {
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(LIGHT).set_header(header.map(|name| tint(Tint::Dim, name)));
        Table(table)
    }

    /// Adds a row. Its cells are printable already: from `printable`, `tint` or our own.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::plain;
    use super::*;

    #[test]
    fn tints_do_not_move_the_columns() {
        let mut table = Table::new(["state", "who"]);
        table.row([tint(Tint::Good, "Approved"), printable("santos")]);
        table.row(["Pending".into(), tint(Tint::Bad, "試\u{1b}")]);
        let expected = " state     who\n────────────────────\n Approved  santos\n Pending   試\\u{1b}";
        assert_eq!(plain(&table.to_string()), expected);
        assert!(paint(&table.to_string()).contains("\u{1b}[32mApproved\u{1b}[0m"));
    }
}
