//! `countersign-verify`: reads arguments, verifies one bundle, shows the answer. Exit status 0: passed; 1: findings;
//! 2: the bundle or the arguments could not be read.

use clap::Parser;
use countersign_verifier::{Detail, KeyKind, Trust, VerifierKey, bundled_key, parse_policy, report, verify};
use std::fs::File;
use std::io::{BufReader, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks an evidence bundle offline: that nothing was changed, who did what, and that every claim of the process holds.
#[derive(Parser)]
#[command(name = "countersign-verify", version, max_term_width = 100)]
struct Arguments {
    /// The evidence bundle (a ZIP file).
    bundle: PathBuf,
    /// A verifier key of the log, from the organisation and not from the bundle; @FILE reads it from a file. Repeatable.
    #[arg(long = "key", value_name = "KEY|@FILE")]
    keys: Vec<String>,
    /// A policy: the log keys that are trusted and the witnesses that are asked for. Adds to --key.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Write a self-contained HTML report.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Answer in JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(problem) => {
            eprintln!("countersign-verify: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let trust = trust(arguments)?;
    if trust.log_keys.is_empty() {
        return Err(without_key(arguments));
    }
    let detail = if arguments.report.is_some() { Detail::Report } else { Detail::Verdict };
    let verdict = verify(open(arguments)?, &trust, detail).map_err(|unreadable| unreadable.0)?;
    let bundle = arguments.bundle.display().to_string();
    let command = command(arguments, &bundle);
    let circumstances = report::Circumstances { bundle: &bundle, trust: &trust, command: &command };
    if let Some(path) = &arguments.report {
        let page = report::html(&verdict, &circumstances);
        std::fs::write(path, page).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let answer = if arguments.json {
        report::json(&verdict).map_err(|e| e.to_string())? + "\n"
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        report::text(&verdict, &circumstances, colour)
    };
    // A reader that goes away early (`| head`) does not change the verdict.
    let _ = std::io::stdout().write_all(answer.as_bytes());
    Ok(verdict.passed())
}

fn open(arguments: &Arguments) -> Result<BufReader<File>, String> {
    let file = File::open(&arguments.bundle).map_err(|e| format!("{}: {e}", arguments.bundle.display()))?;
    Ok(BufReader::new(file))
}

fn trust(arguments: &Arguments) -> Result<Trust, String> {
    let mut trust = match &arguments.policy {
        None => Trust::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            parse_policy(&text)?
        }
    };
    for given in &arguments.keys {
        let text = match given.strip_prefix('@') {
            None => given.clone(),
            Some(path) => std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?,
        };
        let key = VerifierKey::parse(&text).map_err(|problem| format!("--key: {problem}"))?;
        if key.kind != KeyKind::Log {
            return Err("--key: this is the key of a witness; witnesses belong into a policy".to_owned());
        }
        trust.log_keys.push(key);
    }
    Ok(trust)
}

fn without_key(arguments: &Arguments) -> String {
    let found = open(arguments).and_then(|file| bundled_key(file).map_err(|unreadable| unreadable.0));
    let bundled = match found {
        Ok(Some(key)) => {
            let shown: String = key.chars().filter(|c| !c.is_control()).take(300).collect();
            format!(
                "\n\nThe bundle itself names this one in `log.vkey`:\n\n    {shown}\n\nThat proves nothing, for whoever made the \
                 bundle wrote it. Compare it with the one you were given."
            )
        }
        Ok(None) => String::new(),
        Err(problem) => format!("\n\nBesides, the bundle cannot be read: {problem}"),
    };
    format!(
        "a bundle is verified against a key that you trust: give --key or --policy with the log's verifier key, \
         which you have from the organisation.{bundled}"
    )
}

/// The command line, as it can be typed again.
fn command(arguments: &Arguments, bundle: &str) -> String {
    let mut words = vec!["countersign-verify".to_owned(), quoted(bundle)];
    words.extend(arguments.keys.iter().map(|key| format!("--key {}", quoted(key))));
    words.extend(arguments.policy.iter().map(|path| format!("--policy {}", quoted(&path.display().to_string()))));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if word.chars().all(simple) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
