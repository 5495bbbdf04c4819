//! Tables and colour. A tinted text carries zero-width marks instead of escape sequences, so that a
//! table measures it rightly; [`paint`] turns the marks into colour at the very end. Foreign text can
//! hold no marks: they are among the characters that `printable` escapes.

use super::output::printable;
use super::terminal::columns;
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
pub const END: char = '\u{E007F}';

/// Whether this stands for a tint, or for its end, and takes no room.
pub fn is_mark(c: char) -> bool {
    c == END || TINTS.iter().any(|(_, mark)| *mark == c)
}

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

/// A table of which columns are left out: those that are empty in all rows, and from the end those for which there is
/// no room. Columns that are kept are cut instead.
pub struct Fitted {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    kept: Vec<&'static str>,
}

/// A column that is cut keeps so many characters.
const LEAST_COLUMN: usize = 8;

impl Fitted {
    /// Columns in the order of their worth.
    pub fn new(header: &[&'static str]) -> Self {
        Fitted { header: header.to_vec(), rows: vec![], kept: vec![] }
    }

    /// These are never left out for want of room: their cells are cut.
    pub fn keeping(self, kept: &[&'static str]) -> Self {
        Fitted { kept: kept.to_vec(), ..self }
    }

    /// Adds a row. Its cells are printable already.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn within(mut self, width: Option<usize>) -> Self {
        let widest =
            |rows: &[Vec<String>], i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| columns(cell)).max();
        let empty: Vec<usize> =
            (0..self.header.len()).filter(|i| widest(&self.rows, *i).unwrap_or(0) == 0).rev().collect();
        for i in empty {
            self.remove(i);
        }
        let room = width.unwrap_or(usize::MAX);
        loop {
            let needed = |i: usize| widest(&self.rows, i).unwrap_or(0).max(columns(self.header[i])) + 2;
            let taken: usize = (0..self.header.len()).map(needed).sum();
            if taken <= room || self.header.len() < 3 {
                return self;
            }
            match self.header.iter().rposition(|name| !self.kept.contains(name)).filter(|i| *i > 1) {
                Some(i) => self.remove(i),
                None => return self.cut(taken - room),
            }
        }
    }

    /// Takes so many characters from the widest of the columns that are kept.
    fn cut(mut self, excess: usize) -> Self {
        for _ in 0..excess {
            let widest = |rows: &[Vec<String>], i: usize| {
                rows.iter().filter_map(|row| row.get(i)).map(|cell| columns(cell)).max()
            };
            let cuttable = (0..self.header.len()).filter(|i| self.kept.contains(&self.header[*i]));
            let by_width = cuttable.map(|i| (widest(&self.rows, i).unwrap_or(0), i)).max();
            let Some((width, i)) = by_width.filter(|(width, _)| *width > LEAST_COLUMN) else { return self };
            for row in &mut self.rows {
                row[i] = cut(&row[i], width - 1);
            }
        }
        self
    }

    fn remove(&mut self, i: usize) {
        self.header.remove(i);
        for row in &mut self.rows {
            row.remove(i);
        }
    }
}

impl std::fmt::Display for Fitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(LIGHT).set_header(self.header.iter().map(|name| tint(Tint::Dim, name)));
        table.add_rows(&self.rows);
        f.write_str(&table.trim_fmt())
    }
}

/// At most so many columns of the text, with its marks; what is missing is told by `…`.
fn cut(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let (mut out, mut left, mut is_cut) = (String::with_capacity(text.len()), room.saturating_sub(1), false);
    for c in text.chars() {
        let width = if is_mark(c) { 0 } else { columns(c.encode_utf8(&mut [0; 4])) };
        if width == 0 && !is_cut || is_mark(c) {
            out.push(c);
        } else if !is_cut && width <= left {
            left -= width;
            out.push(c);
        } else if !is_cut {
            is_cut = true;
            out.push('…');
        }
    }
    out
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

    #[test]
    fn columns_that_are_empty_or_too_wide_are_left_out() {
        let drawn = |width| {
            let mut table = Fitted::new(&["run", "state", "due", "who"]);
            table.row(["r-1", "idle", &tint(Tint::Strong, ""), "santos"].map(str::to_owned).to_vec());
            plain(&table.within(width).to_string()).lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(drawn(None), " run  state  who");
        assert_eq!(drawn(Some(20)), " run  state  who");
        assert_eq!(drawn(Some(19)), " run  state");
        assert_eq!(drawn(Some(3)), " run  state");
    }

    #[test]
    fn columns_that_are_kept_are_cut_to_fit() {
        let drawn = |width| {
            let mut table =
                Fitted::new(&["run", "state", "definition", "subject", "started"]).keeping(&["definition", "subject"]);
            table.row(
                ["r-1", "idle", "a-long-definition@12", &tint(Tint::Strong, "order-1001"), "now"]
                    .map(str::to_owned)
                    .to_vec(),
            );
            plain(&table.within(Some(width)).to_string()).lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(drawn(80), " r-1  idle   a-long-definition@12  order-1001  now");
        assert_eq!(drawn(50), " r-1  idle   a-long-definition@12  order-1001");
        assert_eq!(drawn(40), " r-1  idle   a-long-defini…  order-1001");
        assert_eq!(drawn(20), " r-1  idle   a-long-…    order-1…");
    }
}
