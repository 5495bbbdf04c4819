//! Other engines compared with ours: bench/peers measures them in the same run on the same server, and every row of
//! ours with a counterpart gets its ratio.

use crate::report::{Report, Row, Written};
use anyhow::Context;
use serde::Deserialize;
use std::path::Path;

/// Peers whose workers claim each step, as ours do over HTTP. The others run steps inside the caller.
const LEASED: &[&str] = &["underway"];

/// A line of bench/peers/drive.py.
#[derive(Deserialize)]
struct Line {
    peer: String,
    version: String,
    store: String,
    work: String,
    per_s: f64,
    #[serde(default)]
    p50_ms: f64,
    #[serde(default)]
    p99_ms: f64,
    wal_syncs_per_workflow: Option<f64>,
    wal_kib_per_workflow: Option<f64>,
    commits_per_workflow: Option<f64>,
}

impl Line {
    fn row(&self) -> Row {
        let mode = format!("{} {}", self.peer, self.version);
        let written = match (self.wal_syncs_per_workflow, self.wal_kib_per_workflow, self.commits_per_workflow) {
            (Some(wal_syncs), Some(wal_kib), Some(commits)) => Some(Written { wal_syncs, wal_kib, commits }),
            _ => None,
        };
        let (p50_ms, p99_ms) = (self.p50_ms, self.p99_ms);
        Row { p50_ms, p99_ms, written, ..Row::rate(&self.work, &self.store, &mode, 0, self.per_s) }
    }

    fn is_counterpart(&self, row: &Row) -> bool {
        row.work.split(' ').next() == Some(&self.work)
            && row.store == self.store
            && (!row.mode.starts_with("leased") || LEASED.contains(&self.peer.as_str()))
    }

    /// How many times as fast as this the row is.
    fn ratio(&self, row: &Row) -> f64 {
        if self.work == "W2" { self.p50_ms / row.p50_ms } else { row.ops_per_s / self.per_s }
    }
}

pub fn stand_beside(path: &Path, report: &mut Report) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display())))
        .collect::<anyhow::Result<_>>()?;
    let rows = report.rows_mut();
    for row in rows.iter_mut() {
        // The fastest peer is the one that we look worst beside.
        let ratios = lines.iter().filter(|line| line.is_counterpart(row)).map(|line| (line.ratio(row), &line.peer));
        if let Some((ratio, peer)) = ratios.min_by(|a, b| a.0.total_cmp(&b.0)) {
            (row.peer, row.ratio_to_peer) = (Some(peer.clone()), Some(ratio));
        }
    }
    rows.extend(lines.iter().map(Line::row));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::stand_beside;
    use crate::report::{Report, Row};

    const LINES: &str = r#"{"peer": "quick", "version": "1", "store": "postgres", "work": "W1", "per_s": 400.0, "wal_syncs_per_workflow": 12.0, "wal_kib_per_workflow": 6.5, "commits_per_workflow": 33.0}
{"peer": "quick", "version": "1", "store": "postgres", "work": "W2", "per_s": 250.0, "p50_ms": 4.0, "p99_ms": 7.0}
{"peer": "underway", "version": "0.2.0", "store": "postgres", "work": "W1", "per_s": 40.0}
{"peer": "slow", "version": "2", "store": "postgres", "work": "W2", "per_s": 25.0, "p50_ms": 40.0, "p99_ms": 70.0}
"#;

    #[test]
    fn each_row_stands_beside_its_fastest_counterpart() -> anyhow::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), LINES)?;
        let mut report = Report::default();
        report.add(Row::rate("W1 runs", "postgres", "in process", 1, 4000.0));
        report.add(Row::rate("W1 runs", "postgres", "leased, http", 1, 2000.0));
        report.add(Row { p50_ms: 2.0, ..Row::rate("W2 one run", "postgres", "in process", 1, 500.0) });
        report.add(Row::rate("W1 runs", "sqlite", "in process", 1, 4000.0));
        stand_beside(file.path(), &mut report)?;
        let found: Vec<_> = report.rows_mut().iter().map(|row| (row.peer.as_deref(), row.ratio_to_peer)).collect();
        let ours =
            [(Some("quick"), Some(10.0)), (Some("underway"), Some(50.0)), (Some("quick"), Some(2.0)), (None, None)];
        assert_eq!(found, [&ours[..], &[(None, None); 4]].concat());
        Ok(())
    }
}
