//! `countersign demo`: a guided tour on a store of its own. A real server is started in a temporary
//! directory and driven over HTTP; every call is shown with its answer, every refusal with its reason,
//! every record with its number. A story says what it expects of each call and fails if that does not
//! happen, so the tour is also a test.

mod stage;
mod story;

use clap::{Args, ValueEnum};
use countersign_server::serve::{self, ServeOptions};
use stage::Stage;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use story::Story;

use super::output::say;
use super::table::{Tint, tint};

/// Tell a story step by step on a temporary server
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Which story to tell
    #[arg(long, value_enum, default_value_t = Name::BatchRelease)]
    story: Name,
    /// Do not wait for Enter between the steps, and stop at the end
    #[arg(long)]
    no_wait: bool,
    /// Keep the store here instead of a temporary directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    BatchRelease,
    JournalEntry,
    PurchaseOrder,
}

impl Name {
    fn story(self) -> Story {
        match self {
            Name::BatchRelease => story::BATCH_RELEASE,
            Name::JournalEntry => story::JOURNAL_ENTRY,
            Name::PurchaseOrder => story::PURCHASE_ORDER,
        }
    }
}

pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let story = args.story.story();
    let place = Place::new(args.data_dir)?;
    let config = place.path().join("countersign.toml");
    std::fs::write(&config, format!("audit_trail_retention_policy = \"{}\"\n", story.retention))?;

    let mut options = ServeOptions::new(place.path());
    options.listen = "127.0.0.1:0".to_owned();
    options.config = Some(config);
    let running = serve::start(options).await?;
    let url = running.url();
    let token = std::fs::read_to_string(place.path().join(serve::ADMIN_TOKEN_FILE))?;
    let waits = !args.no_wait && std::io::stdin().is_terminal();

    let told = async {
        let mut stage = Stage::set(&url, token.trim(), &story, place.path()).await?;
        for beat in story.beats {
            if waits {
                pause("  Enter to go on ")?;
            }
            stage.play(beat).await?;
        }
        stage.curtain().await
    }
    .await;
    if told.is_ok() && waits {
        say(&format!("\nThe server still runs at {}. In another terminal:", tint(Tint::Strong, &url)))?;
        let file = place.path().join(serve::ADMIN_TOKEN_FILE);
        say(&format!("  export COUNTERSIGN_SERVER={url} COUNTERSIGN_TOKEN=$(cat {})", file.display()))?;
        say("  countersign list")?;
        pause("\nEnter to stop it ")?;
    }
    running.shutdown().await?;
    told
}

fn pause(text: &str) -> anyhow::Result<()> {
    let mut err = std::io::stderr();
    write!(err, "{text}")?;
    err.flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Where the tour keeps its store: a directory that was named, or one that is removed at the end.
enum Place {
    Kept(PathBuf),
    Temporary(PathBuf),
}

impl Place {
    fn new(kept: Option<PathBuf>) -> anyhow::Result<Place> {
        if let Some(path) = kept {
            std::fs::create_dir_all(&path)?;
            return Ok(Place::Kept(path));
        }
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|e| anyhow::anyhow!("no randomness: {e}"))?;
        let path = std::env::temp_dir().join(format!("countersign-demo-{:016x}", u64::from_le_bytes(random)));
        std::fs::create_dir(&path)?;
        Ok(Place::Temporary(path))
    }

    fn path(&self) -> &Path {
        match self {
            Place::Kept(path) | Place::Temporary(path) => path,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Temporary(path) = self {
            // Left behind, it does no harm.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}
