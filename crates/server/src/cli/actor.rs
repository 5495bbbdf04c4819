//! `countersign actor`: who can act. A token is shown once, when its actor is made.

use super::Keyed;
use super::connection::Context;
use super::failure::usage;
use super::key::{self, KeyCommand, KeygenArgs, TokenCommand};
use super::output::{self, printable};
use super::page::{PageArgs, collect};
use super::profile::keep;
use super::profiles::{Profile, Profiles};
use super::table::{Table, Tint, tint};
use super::time::when;
use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::ActorKey;
use countersign_client::wire::{Actor, ActorKind, ActorQuery, RegisterActor};
use jiff::Timestamp;
use std::path::PathBuf;

/// Register and list actors: people and programs
#[derive(Subcommand)]
pub enum ActorCommand {
    /// Register an actor and print its token once
    Add(AddArgs),
    /// List the actors
    List(PageArgs),
    /// Create a private key for signing
    Keygen(KeygenArgs),
    #[command(subcommand)]
    Key(KeyCommand),
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Args)]
pub struct AddArgs {
    /// The name of the actor
    #[arg(value_name = "REF")]
    actor_ref: String,
    /// Whether the actor is a person or a program
    #[arg(long, value_enum, default_value_t = Kind::Human)]
    kind: Kind,
    /// The printed name of the actor
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    /// An Ed25519 public key, for an actor that signs requests
    #[arg(long, value_name = "KEY")]
    public_key: Option<String>,
    /// Keep the token in this profile instead of printing it
    #[arg(long, value_name = "PROFILE")]
    save_profile: Option<String>,
    /// Also create a key and keep it with the profile, so that the profile signs
    #[arg(long, requires = "save_profile", conflicts_with = "public_key")]
    keygen: bool,
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
        ActorCommand::Keygen(args) => key::keygen(context, args),
        ActorCommand::Key(command) => key::key(context, command).await,
        ActorCommand::Token(command) => key::token(context, command).await,
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
    let key = match (profiles.as_ref(), args.save_profile.as_deref(), args.keygen) {
        (Some(profiles), Some(name), true) => Some(key_beside(profiles, name)?),
        _ => None,
    };
    let public_key = key.as_ref().map(|(_, key)| key.public_key()).or(args.public_key);
    let request = RegisterActor { actor_ref: args.actor_ref, kind, display_name: args.display_name, public_key };
    let answer = match client.register_actor(&request).await {
        Ok(answer) => answer,
        Err(error) => {
            if let Some((path, _)) = &key {
                // A key that was never registered is of no use to anybody.
                let _ = std::fs::remove_file(path);
            }
            return Err(error.into());
        }
    };
    if let (Some(profiles), Some(name), Some((path, _))) = (profiles.as_mut(), args.save_profile.as_deref(), &key) {
        let actor_ref = Some(request.actor_ref.clone());
        profiles.set(name, Profile { key_file: Some(path.clone()), actor_ref, ..Profile::default() });
    }
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
        bail!(
            "the token cannot be saved: this answer repeats an earlier one, and a token is shown only once; issue another \
             one with `countersign actor token issue`"
        );
    }
    Ok(())
}

/// A new key in a file beside the profiles.
fn key_beside(profiles: &Profiles, name: &str) -> anyhow::Result<(PathBuf, ActorKey)> {
    let path = profiles.path().with_file_name(format!("{}.key", key::file_name(name)?));
    let key = key::make(&path)?;
    Ok((path, key))
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
