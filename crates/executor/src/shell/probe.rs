//! A `run: shell` pin: the output of its command is its value.

use super::{Ended, ShellJob, Tail, with_stderr};
use crate::json;
use crate::probe::{fits, quoted};

impl ShellJob {
    /// Runs the process and gives the value it prints, as a JSON text, or why there is none. Dropping the future kills it and
    /// everything it has started.
    pub async fn probe(&self) -> Result<String, String> {
        let value = self.print().await;
        value.map_err(|why| self.mask.text(&why).into_owned())
    }

    async fn print(&self) -> Result<String, String> {
        let refused = |verdict: crate::Verdict| verdict.error().unwrap_or_default();
        let mut attempt = self.attempt().await.map_err(refused)?;
        if let Some(directory) = attempt.directory.take() {
            // No caller waits for it.
            tokio::task::spawn_blocking(|| super::group::remove(directory));
        }
        let told = |error: String| with_stderr(error, &attempt.stderr, &self.mask);
        match &attempt.ended {
            Ended::With(code) if self.success.contains(code) => {
                fits(self.mask.json(&value(&attempt.stdout)?).into_owned())
            }
            Ended::With(code) => Err(told(format!("exit code {code}"))),
            Ended::Lost(error) => Err(format!("the process was lost: {error}")),
            Ended::Late => Err(told("it took too long and was killed".to_owned())),
        }
    }
}

/// The last line if it is JSON, else everything without the final newline. Nothing is mended: what looks equal is equal.
fn value(stdout: &Tail) -> Result<String, String> {
    let line = stdout.last_line().and_then(|line| std::str::from_utf8(line).ok());
    if let Some(line) = line.filter(|line| json::check(line).is_ok()) {
        return Ok(line.to_owned());
    }
    if stdout.is_cut() {
        return Err(format!("it prints more than {} bytes", super::STDOUT_BYTES));
    }
    let all = stdout.bytes();
    quoted(all.strip_suffix(b"\n").unwrap_or(all))
}
