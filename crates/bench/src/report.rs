//! The result: a table for people, `latest.json` for programs.

use serde::Serialize;
use std::path::Path;
use std::time::Duration;

#[derive(Default, Serialize)]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Clone, Serialize)]
pub struct Row {
    pub work: String,
    pub store: String,
    pub mode: String,
    pub clients: usize,
    pub ops_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Of the raw limit measured in this run; for one client, bare transaction p50 ÷ command p50; for growth rows, of the first size.
    pub ratio_to_limit: Option<f64>,
    pub written: Option<Written>,
    pub peer: Option<String>,
    /// How many times as fast as the peer: its time ÷ ours for W2, our rate ÷ its rate otherwise.
    pub ratio_to_peer: Option<f64>,
}

/// What one of these costs PostgreSQL; noise does not change it.
#[derive(Clone, Copy, Serialize)]
pub struct Written {
    pub wal_syncs: f64,
    pub wal_kib: f64,
    pub commits: f64,
}

/// The q-quantile of sorted samples, in milliseconds.
pub fn quantile_ms(sorted_us: &[u32], q: f64) -> f64 {
    if sorted_us.is_empty() {
        return f64::NAN;
    }
    let last = sorted_us.len() - 1;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index within the slice"
    )]
    let at = (q * last as f64).round() as usize;
    f64::from(sorted_us[at.min(last)]) / 1000.0
}

impl Row {
    pub fn new(work: &str, store: &str, mode: &str, clients: usize, samples_us: &[u32], elapsed: Duration) -> Row {
        let mut sorted = samples_us.to_vec();
        sorted.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let ops_per_s = sorted.len() as f64 / elapsed.as_secs_f64();
        Row {
            p50_ms: quantile_ms(&sorted, 0.50),
            p99_ms: quantile_ms(&sorted, 0.99),
            ..Row::rate(work, store, mode, clients, ops_per_s)
        }
    }

    pub fn rate(work: &str, store: &str, mode: &str, clients: usize, ops_per_s: f64) -> Row {
        Row {
            work: work.to_owned(),
            store: store.to_owned(),
            mode: mode.to_owned(),
            clients,
            ops_per_s,
            p50_ms: 0.0,
            p99_ms: 0.0,
            ratio_to_limit: None,
            written: None,
            peer: None,
            ratio_to_peer: None,
        }
    }
}

impl Report {
    pub fn add(&mut self, row: Row) {
        eprintln!("  {:>10.0}/s  p50 {:.3} ms  p99 {:.3} ms", row.ops_per_s, row.p50_ms, row.p99_ms);
        self.rows.push(row);
    }

    pub fn rows_mut(&mut self) -> &mut Vec<Row> {
        &mut self.rows
    }

    pub fn print(&self) {
        let mut table = comfy_table::Table::new();
        table.set_header([
            "work",
            "store",
            "mode",
            "clients",
            "per second",
            "p50 ms",
            "p99 ms",
            "of limit",
            "syncs",
            "WAL KiB",
            "commits",
            "peer",
            "× peer",
        ]);
        for row in &self.rows {
            let written = |field: fn(&Written) -> f64| number(row.written.as_ref().map(field), 2);
            table.add_row([
                row.work.clone(),
                row.store.clone(),
                row.mode.clone(),
                if row.clients == 0 { String::new() } else { row.clients.to_string() },
                format!("{:.0}", row.ops_per_s),
                format!("{:.3}", row.p50_ms),
                format!("{:.3}", row.p99_ms),
                number(row.ratio_to_limit, 2),
                written(|written| written.wal_syncs),
                written(|written| written.wal_kib),
                written(|written| written.commits),
                row.peer.clone().unwrap_or_default(),
                number(row.ratio_to_peer, 1),
            ]);
        }
        println!("{table}");
        println!(
            "of limit: rows/s against the raw rows/s of the same store and schema; one client: bare transaction p50 ÷ command p50; stored: against the first size"
        );
        println!("syncs, WAL KiB, commits: of PostgreSQL, for one run. × peer: how many times as fast as that peer");
    }

    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, serde_json::to_vec_pretty(self)?)?;
        println!("written to {}", path.display());
        Ok(())
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}
