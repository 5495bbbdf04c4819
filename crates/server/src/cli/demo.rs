//! `countersign demo`: a guided tour on a store of its own. A real server is started in a temporary
//! directory and driven over HTTP; every call is shown with its answer, every refusal with its reason,
//! every record with its number. A story says what it expects of each call and fails if that does not
//! happen, so the tour is also a test.

mod evidence;
mod people_story;
mod run_stage;
mod run_story;
mod runbook_stage;
mod runbook_story;
mod stage;
mod story;
mod theatre;

use clap::{Args, ValueEnum};
use countersign_client::Client;
use countersign_server::serve::{self, Running, ServeOptions};
use countersign_server::witness::{self, RunningWitness, WitnessOptions};
use run_stage::RunStage;
use run_story::RunStory;
use stage::Stage;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use story::Story;
use theatre::Theatre;

use super::output::say;
use super::table::{Tint, tint};

/// Walk through a demo on a temporary server
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// The demo to show
    #[arg(long, value_enum, default_value_t = Name::BatchRelease)]
    story: Name,
    /// Do not wait for Enter between the steps, and stop at the end
    #[arg(long)]
    no_wait: bool,
    /// Keep the store in this directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Leave the evidence bundle and its report in this directory [default: with a store that is kept, otherwise a
    /// temporary directory]
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    BatchRelease,
    JournalEntry,
    PurchaseOrder,
    OrderProcess,
    OrderSaga,
    NightlyReport,
    Capa,
    DocumentCut,
    DbMigrate,
}

/// A process that people move, or a run that workers or people carry out.
enum Tale {
    Process(Story),
    Run(RunStory),
}

impl Name {
    fn tale(self) -> Tale {
        match self {
            Name::BatchRelease => Tale::Process(story::BATCH_RELEASE),
            Name::JournalEntry => Tale::Process(story::JOURNAL_ENTRY),
            Name::PurchaseOrder => Tale::Process(story::PURCHASE_ORDER),
            Name::OrderProcess => Tale::Run(run_story::ORDER_PROCESS),
            Name::OrderSaga => Tale::Run(run_story::ORDER_SAGA),
            Name::NightlyReport => Tale::Run(run_story::NIGHTLY_REPORT),
            Name::Capa => Tale::Run(people_story::CAPA),
            Name::DocumentCut => Tale::Run(runbook_story::DOCUMENT_CUT),
            Name::DbMigrate => Tale::Run(runbook_story::DB_MIGRATE),
        }
    }
}

impl Tale {
    fn retention(&self) -> &'static str {
        match self {
            Tale::Process(story) => story.retention,
            Tale::Run(story) => story.retention,
        }
    }

    /// What the server's configuration says.
    fn settings(&self) -> String {
        let shell = match self {
            Tale::Run(RunStory { world: Some(_), .. }) => "[executors.shell]\nenabled = true\n",
            Tale::Run(_) | Tale::Process(_) => "",
        };
        format!("audit_trail_retention_policy = \"{}\"\nregulated = true\n{shell}", self.retention())
    }
}

pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let tale = args.story.tale();
    let place = Place::new(args.data_dir)?;
    let config = place.path().join("countersign.toml");
    std::fs::write(&config, tale.settings())?;
    let (running, witness) = start(place.path(), &config).await?;
    let url = running.url();
    let token = std::fs::read_to_string(place.path().join(serve::ADMIN_TOKEN_FILE))?;
    let waits = !args.no_wait && std::io::stdin().is_terminal();

    let to = match (&args.evidence, &place) {
        (Some(directory), _) => directory.clone(),
        (None, Place::Kept(path)) => path.join("evidence"),
        // It outlives the store: somebody may want to look at it.
        (None, Place::Temporary(_)) => temporary("countersign-evidence")?,
    };
    let teller = Teller { url: &url, token: token.trim(), data_dir: place.path(), waits, to: &to, witness: &witness };
    let told = match &tale {
        Tale::Process(story) => teller.process(story).await,
        Tale::Run(story) => teller.run(story).await,
    };
    if let Ok(page) = &told {
        say(&format!("\nSee it in the console: {}", tint(Tint::Strong, &format!("{url}{page}"))))?;
        say(&format!("  sign in as the administrator: {url}/sign-in?next={page}#token={}", token.trim()))?;
    }
    if told.is_ok() && waits {
        say("\nThe server still runs. In another terminal:")?;
        let file = place.path().join(serve::ADMIN_TOKEN_FILE);
        say(&format!("  export COUNTERSIGN_SERVER={url} COUNTERSIGN_TOKEN=$(cat {})", file.display()))?;
        say(match tale {
            Tale::Process(_) => "  countersign list",
            Tale::Run(_) => "  countersign runs list",
        })?;
        pause("\nEnter to stop it ")?;
    } else if told.is_ok() {
        say("  the server stops now; without --no-wait (CI=1) it stays until you press Enter")?;
    }
    running.shutdown().await?;
    witness.shutdown().await?;
    told.map(drop)
}

/// Where the story is told, and what it ends with.
struct Teller<'t> {
    url: &'t str,
    token: &'t str,
    data_dir: &'t Path,
    /// For Enter, before every step.
    waits: bool,
    to: &'t Path,
    witness: &'t RunningWitness,
}

impl Teller<'_> {
    /// Returns the console's page of the process.
    async fn process(&self, story: &Story) -> anyhow::Result<String> {
        let mut stage = Stage::set(self.open(story.title, story.setting).await?, story).await?;
        for beat in story.beats {
            self.wait()?;
            stage.play(beat).await?;
        }
        stage.curtain().await?;
        self.hand_over(&stage.theatre).await?;
        Ok(format!("/processes/{}", stage.theatre.instance_id))
    }

    /// Returns the console's page of the run.
    async fn run(&self, story: &RunStory) -> anyhow::Result<String> {
        let world = self.data_dir.join("world");
        let mut stage = RunStage::set(self.open(story.title, story.setting).await?, story, world).await?;
        for beat in story.beats {
            self.wait()?;
            stage.play(beat).await?;
        }
        stage.curtain().await?;
        self.hand_over(&stage.theatre).await?;
        Ok(format!("/runs/{}", stage.theatre.instance_id))
    }

    async fn open(&self, title: &str, setting: &str) -> anyhow::Result<Theatre> {
        Theatre::open(self.url, self.token, self.data_dir, title, setting).await
    }

    async fn hand_over(&self, theatre: &Theatre) -> anyhow::Result<()> {
        let witness = self.witness.verifier.to_string();
        evidence::hand_over(&theatre.admin, &theatre.instance_id, &witness, self.to).await
    }

    fn wait(&self) -> anyhow::Result<()> {
        if self.waits { pause("  Enter to go on ") } else { Ok(()) }
    }
}

/// A server whose log somebody else watches. The witness must know the log's key before it sees the log, so the server
/// is started once to make it.
async fn start(data_dir: &Path, config: &Path) -> anyhow::Result<(Running, RunningWitness)> {
    let options = || ServeOptions {
        listen: "127.0.0.1:0".to_owned(),
        config: Some(config.to_owned()),
        ..ServeOptions::new(data_dir)
    };
    let first = serve::start(options()).await?;
    let token = std::fs::read_to_string(data_dir.join(serve::ADMIN_TOKEN_FILE))?;
    let key = Client::new(&first.url())?.with_token(&token)?.log_key().await?;
    first.shutdown().await?;
    let witness = witness::start(&WitnessOptions {
        data_dir: data_dir.join("witness"),
        listen: "127.0.0.1:0".to_owned(),
        name: None,
        logs: vec![key.trim().to_owned()],
    })
    .await?;
    let server = serve::start(ServeOptions { witnesses: vec![witness.url()], ..options() }).await?;
    Ok((server, witness))
}

fn pause(text: &str) -> anyhow::Result<()> {
    let mut err = std::io::stderr();
    write!(err, "{text}")?;
    err.flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn temporary(name: &str) -> anyhow::Result<PathBuf> {
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|e| anyhow::anyhow!("no randomness: {e}"))?;
    let path = std::env::temp_dir().join(format!("{name}-{:016x}", u64::from_le_bytes(random)));
    std::fs::create_dir(&path)?;
    Ok(path)
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
        Ok(Place::Temporary(temporary("countersign-demo")?))
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
