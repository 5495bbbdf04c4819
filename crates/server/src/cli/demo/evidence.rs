//! The end of the tour: the evidence is exported and handed to the verifier, a program that shares no code with us.

use crate::cli::output::{printable, say};
use crate::cli::table::{Tint, tint};
use anyhow::{Context, bail};
use countersign_client::Client;
use countersign_client::wire::ExportQuery;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const VERIFIER: &str = "countersign-verify";

/// Writes `evidence.zip`, `policy.txt` and `report.html` to this directory.
pub async fn hand_over(admin: &Client, instance_id: &str, witness: &str, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let (bundle, policy, report) = (to.join("evidence.zip"), to.join("policy.txt"), to.join("report.html"));
    say(&format!("\n{}", tint(Tint::Strong, "Evidence for somebody who does not have to believe us")))?;
    let mut file = std::fs::File::create(&bundle).with_context(|| format!("{} cannot be written", bundle.display()))?;
    let query = ExportQuery { instance_id: Some(instance_id.to_owned()), ..ExportQuery::default() };
    let evidence = admin.export(&query, |piece, _| file.write_all(piece)).await?;
    let key = admin.log_key().await?;
    std::fs::write(&policy, format!("log {}\nwitness demo {witness}\nquorum demo\n", key.trim()))?;
    say(&format!("  exported {} as {}", printable(&bundle.display().to_string()), evidence.unwrap_or_default()))?;

    let verifier = std::env::current_exe().ok().map(|own| own.with_file_name(VERIFIER)).filter(|path| path.exists());
    let Some(verifier) = verifier else {
        return say(&format!("  verify it: {VERIFIER} {} --policy {}", bundle.display(), policy.display()));
    };
    say(&format!("  {VERIFIER} evidence.zip --policy policy.txt --report report.html\n"))?;
    let out = Command::new(verifier).arg(&bundle).arg("--policy").arg(&policy).arg("--report").arg(&report).output()?;
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        say(&format!("  {}", printable(line)))?;
    }
    if !out.status.success() {
        bail!("the evidence does not verify: {}", String::from_utf8_lossy(&out.stderr));
    }
    say(&format!("\n{} The evidence verifies. For people: {}", tint(Tint::Good, "✓"), report.display()))
}
