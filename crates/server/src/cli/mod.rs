//! The command line: one file per command, and what they share ([`connection`], [`profiles`],
//! [`page`], [`table`], [`output`], [`time`]).
//!
//! Every command but `serve` (and `demo`, which starts a server of its own) is a client of the public HTTP contract: it reads no store and links
//! nothing of the engine. Data goes to stdout, everything said about it to stderr. The exit code is 0
//! when it was done, 1 when it was refused or failed, 2 when the command itself was wrong, 130 when watching was
//! interrupted.

mod actor;
mod asked;
mod audit;
mod completions;
mod connection;
mod dead_letters;
mod definition;
mod delegate;
mod demo;
mod events;
mod explain;
mod failure;
mod fire;
mod gate;
mod governance;
mod grant;
mod graph;
mod ids;
mod inbox;
mod input;
mod instance;
mod key;
mod keys;
mod list;
mod next;
mod outbox;
mod output;
mod page;
mod profile;
mod profiles;
mod proposal;
mod records;
#[cfg(test)]
mod reference;
mod registry;
mod run;
mod run_view;
mod runs;
mod schedule;
mod serve;
mod show;
mod start;
mod step;
mod table;
mod task;
mod terminal;
mod time;
mod timeline;
mod view;
mod watch;
mod whoami;
mod witness;
mod work;
mod workers;

use clap::{Args, Parser, Subcommand};
use connection::Context;
use std::process::ExitCode;

/// A durable workflow engine whose history is evidence.
#[derive(Parser)]
#[command(name = "countersign", version, subcommand_required = true, arg_required_else_help = true)]
#[command(
    after_help = "Without a profile, commands use the server http://127.0.0.1:7433 and, if it exists, the token in \
                        ./countersign-data/admin.token."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command understands.
#[derive(Args, Clone, Default)]
struct Global {
    /// The server's address
    #[arg(long, global = true, env = "COUNTERSIGN_SERVER", value_name = "URL", help_heading = "Connection")]
    server: Option<String>,
    /// The bearer token; prefer a profile or the environment variable
    #[arg(
        long,
        global = true,
        env = "COUNTERSIGN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Connection"
    )]
    token: Option<String>,
    /// Act as this profile (see `countersign profile`)
    #[arg(
        long = "as",
        global = true,
        env = "COUNTERSIGN_PROFILE",
        value_name = "PROFILE",
        help_heading = "Connection"
    )]
    profile: Option<String>,
    /// Print the server's JSON instead of text; a refusal is printed as JSON on stderr
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Demo(demo::DemoArgs),
    Witness(witness::WitnessArgs),
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    Start(start::StartArgs),
    Fire(fire::FireArgs),
    #[command(subcommand)]
    Gate(gate::GateCommand),
    Inbox(inbox::InboxArgs),
    Run(run::RunArgs),
    Watch(watch::WatchArgs),
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    #[command(subcommand)]
    Events(events::EventsCommand),
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    #[command(subcommand)]
    Task(task::TaskCommand),
    #[command(subcommand)]
    Step(step::StepCommand),
    Worklist(step::WorklistArgs),
    Work(work::WorkArgs),
    Show(show::ShowArgs),
    List(list::ListArgs),
    Records(records::RecordsArgs),
    Timeline(timeline::TimelineArgs),
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    #[command(subcommand)]
    Governance(governance::GovernanceCommand),
    #[command(subcommand)]
    Outbox(outbox::OutboxCommand),
    #[command(subcommand)]
    Definition(definition::DefinitionCommand),
    #[command(subcommand)]
    Proposal(proposal::ProposalCommand),
    #[command(subcommand)]
    Registry(registry::RegistryCommand),
    #[command(subcommand)]
    Actor(actor::ActorCommand),
    #[command(subcommand)]
    Delegate(delegate::DelegateCommand),
    Grant(grant::GrantArgs),
    Revoke(grant::RevokeArgs),
    Grants(grant::GrantsArgs),
    Explain(explain::ExplainArgs),
    Profile(profile::ProfileArgs),
    /// Show your actor, your scopes, and the keys and tokens that others added to you
    Whoami,
    Completions(completions::CompletionsArgs),
}

/// For commands that change something.
#[derive(Args, Clone, Default)]
struct Keyed {
    /// A key for repeating the command: the same key returns the first answer and does not act again
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// The actor that a command is about.
#[derive(Args, Clone)]
struct Subject {
    /// The actor
    #[arg(value_name = "REF")]
    actor_ref: String,
}

/// Schemas and expressions are bounded so that a quarter of this would do.
const STACK_BYTES: usize = 8 << 20;

/// Parses the command line, carries it out and reports how it went.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::new(cli.global);
    match block_on(dispatch(&context, cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&context, &error),
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_BYTES).build()?.block_on(work)
}

async fn dispatch(context: &Context, command: Command) -> anyhow::Result<()> {
    if let (true, Command::Demo(_) | Command::Completions(_)) = (context.json(), &command) {
        return Err(failure::usage("this command prints no JSON: leave out --json"));
    }
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Witness(args) => witness::run(args).await,
        Command::Keys(command) => keys::run(context, command).await,
        Command::Whoami => whoami::run(context).await,
        Command::Start(args) => start::run(context, args).await,
        Command::Fire(args) => fire::run(context, args).await,
        Command::Gate(command) => gate::run(context, command).await,
        Command::Inbox(args) => inbox::run(context, args).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Watch(args) => watch::run(context, args).await,
        Command::Runs(command) => runs::run(context, command).await,
        Command::Events(command) => events::run(context, command).await,
        Command::Schedule(command) => schedule::run(context, command).await,
        Command::Task(command) => task::run(context, command).await,
        Command::Step(command) => step::run(context, command).await,
        Command::Worklist(args) => step::worklist(context, args).await,
        Command::Work(args) => work::run(context, args).await,
        Command::Show(args) => show::run(context, args).await,
        Command::List(args) => list::run(context, args).await,
        Command::Records(args) => records::run(context, args).await,
        Command::Timeline(args) => timeline::run(context, args).await,
        Command::Audit(command) => audit::run(context, command).await,
        Command::Governance(command) => governance::run(context, command).await,
        Command::Outbox(command) => outbox::run(context, command).await,
        Command::Definition(command) => definition::run(context, command).await,
        Command::Proposal(command) => proposal::run(context, command).await,
        Command::Registry(command) => registry::run(context, command).await,
        Command::Actor(command) => actor::run(context, command).await,
        Command::Delegate(command) => delegate::run(context, command).await,
        Command::Grant(args) => grant::grant(context, args).await,
        Command::Revoke(args) => grant::revoke(context, args).await,
        Command::Grants(args) => grant::list(context, args).await,
        Command::Explain(args) => explain::run(context, &args),
        Command::Profile(args) => profile::run(context, args),
        Command::Completions(args) => completions::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_start_names_a_definition_or_brings_a_declaration() {
        for (line, fits) in [
            ("start batch-release --subject b1", true),
            ("start --declaration d.json --subject b1 --gate-spec {}", true),
            ("start batch-release --declaration d.json --subject b1", false),
            ("start --subject b1", false),
            ("start batch-release --subject b1 --quiet", true),
            ("start batch-release --subject b1 --quiet --json", false),
            ("run order-process -q", true),
            ("run order-process --quiet --watch", false),
            ("audit key", true),
            ("start batch-release", false),
            ("gate decide i release approve --json --as qp", true),
            ("gate decide i release maybe", false),
            ("list --limit 0", false),
            ("list --all --limit 3", false),
            ("records --after 2h --before 2026-11-15T00:00:00Z", true),
            ("records some-event --actor a", false),
            ("run order-process --input order_id=1 --input n:=2 --at in2h", false),
            ("run order-process --input order_id=1 --input n:=2 --at 2h --priority 9 --watch", true),
            ("run order-process --input {} --input-file f.json", false),
            ("run order-process --priority 10", false),
            ("runs list --state failed --json", true),
            ("runs list --state broken", false),
            ("run db-migrate --input db=orders --dry-run", true),
            ("runs resume r --approval a --reason seen", true),
            ("runs void r --approval a --reason wrong", true),
            ("runs sidecar r -o out --force --json", true),
            ("runs sidecar r", false),
            ("inbox --full --json", true),
            ("gate show r migrate --json", true),
            ("gate show r", false),
            ("audit verify --sidecar state.json", true),
            ("audit verify --sidecar state.json --record e", false),
            ("runs declare-effect r s completed", false),
            ("runs declare-effect r s not-done --reason seen", true),
            ("events send paid --run r --key k", false),
            ("schedule list --json", true),
            ("schedule pause nightly", false),
            ("schedule pause nightly --reason audit", true),
            ("schedule resume nightly", true),
            ("schedule trigger nightly --index 1", true),
            ("definition retire nightly", false),
            ("definition retire nightly --reason replaced", true),
            ("events send paid", false),
            ("events send paid --key k --id e-1 --data n:=1", true),
            ("task claim orders --lease 30s --wait 10s --max 5", true),
            ("task complete t", false),
            ("task complete t --lease-token l --output {}", true),
            ("task wait t --lease-token l --event paid --timeout 2h", true),
            ("task retry t --lease-token l", false),
            ("work orders --exec cat --drain --parallel 4", true),
            ("work", false),
            ("step claim r s --preview --json", true),
            ("step claim r", false),
            ("step wait r s --facet waiting_human --facet waiting_external --timeout 2h", true),
            ("step block r s", false),
            ("step block r s --block-reason missing_input", true),
            ("step complete r s --output n:=1", true),
            ("step reopen r s --approval a", false),
            ("step reopen r s --approval a --correction-reason data_error --idempotency-key k", true),
            ("step transition r s", false),
            ("step transition r s --to in_review --facet waiting_human --preview", true),
            ("step extend-deadline r s --to in2h", false),
            ("step extend-deadline r s --to 2h", true),
            ("worklist --limit 3", true),
            ("audit verify", true),
            ("audit verify --record e --instance i", false),
            ("audit prove e -o f.json", true),
            ("audit consistency 1", false),
            ("profile", true),
            ("audit purge some-event --yes", true),
            ("audit purge --eligible --dry-run --json", true),
            ("audit purge", false),
            ("audit purge some-event --eligible", false),
            ("audit purge some-event --dry-run", true),
            ("audit hold place some-event --reason r --case c", true),
            ("audit hold place some-event", false),
            ("audit hold list --state active", true),
            ("governance problems --json", true),
            ("governance problems failed_runs --state open --all", true),
            ("governance problems --state open", false),
            ("governance problems lost_runs", false),
            ("governance dead-letters --state open --json", true),
            ("governance dead-letters some-id", false),
            ("outbox list --state dead --json", true),
            ("outbox list --state lost", false),
            ("outbox replay some-event", false),
            ("governance dead-letters show some-letter", true),
            ("governance dead-letters replay some-letter --reason r", true),
            ("governance dead-letters replay some-letter", false),
            ("governance dead-letters requests --state open", true),
            ("proposal create --kind process --target p --document f --base 1 --reason r --affects a --json", true),
            ("proposal create --kind process", false),
            ("proposal create --kind iu_split --target t --action {} --class ai_agent --evidence e", true),
            ("proposal create --kind process --target p --class human", false),
            ("proposal edit p --base 2", true),
            ("proposal comment p", false),
            ("proposal merge p --evidence e --idempotency-key k", true),
            ("proposal list --state review --kind process", true),
            ("timeline some-run --all", true),
            ("timeline --trace t --json", true),
            ("timeline", false),
            ("timeline some-run --trace t", false),
            ("registry show step", true),
            ("registry show step --events", false),
            ("registry export workflow_run --format mermaid", true),
            ("registry diff step", false),
        ] {
            let parsed = Cli::try_parse_from(std::iter::once("countersign").chain(line.split(' ')));
            assert_eq!(parsed.is_ok(), fits, "{line}");
        }
    }
}
