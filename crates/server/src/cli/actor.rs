//! `countersign actor`: who can act. A token is shown once, when its actor is made.

use super::Keyed;
use super::connection::Context;
use super::failure::usage;
use super::output::{self, printable};
use super::page::{PageArgs, collect};
use super::profile::keep;
use super::profiles::Profiles;
use super::table::{Table, Tint, tint};
use super::time::when;
use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{Actor, ActorKind, ActorQuery, RegisterActor};
use jiff::Timestamp;

/// Register and list actors: people and programs
#[derive(Subcommand)]
pub enum ActorCommand {
    /// Register an actor and print its token, this once
    Add(AddArgs),
    /// List the actors
    List(PageArgs),
}

#[derive(Args)]
pub struct AddArgs {
    /// The name under which the actor acts
    #[arg(value_name = "REF")]
    actor_ref: String,
    #[arg(long, value_enum, default_value_t = Kind::Human)]
    kind: Kind,
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    /// An Ed25519 public key, for an actor who signs requests
    #[arg(long, value_name = "KEY")]
    public_key: Option<String>,
    /// Keep the token in this profile instead of printing it
    #[arg(long, value_name = "PROFILE")]
    save_profile: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// A person
    Human,
    /// A program
    Service,
}

pub async fn run(context: &Context, command: ActorCommand) -> anyhow::Result<()> {
    match command {
        ActorCommand::Add(args) => add(context, args).await,
        ActorCommand::List(page) => list(context, page).await,
    }
}

async fn add(context: &Context, args: AddArgs) -> anyhow::Result<()> {
    // Before anything is made: a token that cannot be kept would be lost.
    let mut profiles = match &args.save_profile {
        Some(name) => Some(profiles_without(name)?),
        None => None,
    };
    let client = context.client_keyed(&args.keyed)?;
    let kind = match args.kind {
        Kind::Human => ActorKind::Human,
        Kind::Service => ActorKind::Service,
    };
    let request =
        RegisterActor { actor_ref: args.actor_ref, kind, display_name: args.display_name, public_key: args.public_key };
    let answer = client.register_actor(&request).await?;
    let token = answer.body.token.as_deref();
    let mut kept = Ok(());
    if let (Some(profiles), Some(name), Some(token)) = (profiles.as_mut(), args.save_profile.as_deref(), token) {
        kept = keep(profiles, name, client.server(), token);
    }
    let saved = args.save_profile.as_deref().filter(|_| token.is_some() && kept.is_ok());

    if context.json() {
        output::json(&answer.json)?;
    } else {
        output::say(&format!("registered {}", tint(Tint::Strong, &answer.body.actor_ref)))?;
        match (saved, token) {
            (Some(name), _) => output::say(&format!("its token is kept in the profile {}", tint(Tint::Strong, name)))?,
            (None, Some(token)) => {
                output::say(&format!("token {}", printable(token)))?;
                output::say("It is not shown again. Keep it: countersign profile set NAME --token-stdin")?;
            }
            (None, None) => output::say("its token was shown when it was first registered, and is not shown again")?,
        }
    }
    kept?;
    if args.save_profile.is_some() && token.is_none() {
        bail!("there is no token to keep: this answer repeats an earlier one, and tokens are not repeated");
    }
    Ok(())
}

/// The profile file, when it has room for a new name: the token of an old one would be lost.
fn profiles_without(name: &str) -> anyhow::Result<Profiles> {
    let profiles = Profiles::load(Profiles::locate()?)?;
    if profiles.contains(name) {
        return Err(usage(format!(
            "there is a profile `{name}` already: choose another name, or remove it with `countersign profile remove {name}`"
        )));
    }
    Ok(profiles)
}

async fn list(context: &Context, page: PageArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let listed = collect(&page, async |limit, cursor| client.actors(&ActorQuery { limit, cursor }).await).await?;
    listed.print(context.json(), table, "No actors.")
}

fn table(actors: &[Actor]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["actor", "kind", "name", "signs", "registered"]);
    for actor in actors {
        let kind = match actor.kind {
            ActorKind::Human => "human",
            ActorKind::Service => "service",
        };
        table.row([
            tint(Tint::Strong, &actor.actor_ref),
            kind.into(),
            printable(actor.display_name.as_deref().unwrap_or_default()),
            if actor.public_key.is_some() { "yes".into() } else { String::new() },
            when(&actor.registered_at, now),
        ]);
    }
    table
}
