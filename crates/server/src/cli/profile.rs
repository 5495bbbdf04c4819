//! `countersign profile`: names for servers and tokens, so that one person can act as several actors.

use super::connection::{Context, TokenSource, given};
use super::failure::usage;
use super::output::{self, printable};
use super::profiles::{Profile, Profiles};
use super::table::{Table, Tint, tint};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use countersign_client::{Client, DEFAULT_SERVER};
use serde_json::json;
use std::io::Read;
use std::path::PathBuf;

/// Manage profiles (a server and a token); without a subcommand, show the one in use
#[derive(Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    command: Option<ProfileCommand>,
}

#[derive(Subcommand)]
enum ProfileCommand {
    /// List the profiles; tokens are not shown
    List,
    /// Create or change a profile with the values of --server and --token (or their variables)
    Set(SetArgs),
    /// Remove a profile
    Remove {
        /// The name of the profile
        name: String,
    },
    /// Print the path of the profile file
    Path,
}

#[derive(Args)]
struct SetArgs {
    /// The name of the profile
    name: String,
    /// Read the token from stdin
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,
    /// Keep the token in this file instead (mode 600)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub fn run(context: &Context, args: ProfileArgs) -> anyhow::Result<()> {
    match args.command {
        None => current(context),
        Some(ProfileCommand::List) => list(context),
        Some(ProfileCommand::Set(args)) => set(context, args),
        Some(ProfileCommand::Remove { name }) => remove(&name),
        Some(ProfileCommand::Path) => output::say(&printable(&Profiles::locate()?.to_string_lossy())),
    }
}

/// Keeps a token under a name, for `actor add --save-profile`.
pub fn keep(profiles: &mut Profiles, name: &str, server: &str, token: &str) -> anyhow::Result<()> {
    let kept = profiles.get(name).unwrap_or_default();
    profiles.set(
        name,
        Profile { server: Some(server.to_owned()), token: Some(token.to_owned()), token_file: None, ..kept },
    );
    profiles.save()
}

fn current(context: &Context) -> anyhow::Result<()> {
    let endpoint = context.endpoint()?;
    let profile = given(&context.global().profile);
    let token = match &endpoint.token_source {
        TokenSource::Nowhere => "none".to_owned(),
        TokenSource::Given => "from --token or COUNTERSIGN_TOKEN".to_owned(),
        TokenSource::Profile(_) => "from the profile".to_owned(),
        TokenSource::AdminToken(path) => format!("from {}", path.display()),
    };
    if context.json() {
        return output::json(&json!({"profile": profile, "server": endpoint.client.server(), "token_source": token}));
    }
    let line = |name: &str, value: &str| format!("{} {}", tint(Tint::Dim, &format!("{name:<8}")), printable(value));
    output::say(&line("profile", profile.unwrap_or("none chosen (--as PROFILE, or COUNTERSIGN_PROFILE)")))?;
    output::say(&line("server", endpoint.client.server()))?;
    output::say(&line("token", &token))
}

fn list(context: &Context) -> anyhow::Result<()> {
    let profiles = Profiles::load(Profiles::locate()?)?;
    if context.json() {
        let items: Vec<_> = profiles
            .iter()
            .map(|(name, profile)| {
                json!({
                    "name": name,
                    "server": profile.server,
                    "token": profile.token.as_ref().map(|_| "(hidden)"),
                    "token_file": profile.token_file,
                    "key_file": profile.key_file,
                    "actor_ref": profile.actor_ref,
                })
            })
            .collect();
        return output::json(&json!({"items": items, "next": null}));
    }
    if profiles.iter().next().is_none() {
        return output::say("No profiles yet. `countersign profile set NAME --server URL --token-stdin` makes one.");
    }
    let chosen = given(&context.global().profile);
    let mut table = Table::new(["", "profile", "server", "token", "signs"]);
    for (name, profile) in profiles.iter() {
        let mark = if chosen == Some(name) { tint(Tint::Good, "*") } else { String::new() };
        let token = match (&profile.token, &profile.token_file) {
            (Some(_), _) => "kept here".to_owned(),
            (None, Some(file)) => format!("in {}", file.display()),
            (None, None) => "none".to_owned(),
        };
        let server = profile.server.as_deref().unwrap_or(DEFAULT_SERVER);
        let signs = match &profile.key_file {
            Some(_) => format!("as {}", profile.actor_ref.as_deref().unwrap_or(name)),
            None => "no".to_owned(),
        };
        table.row([mark, tint(Tint::Strong, name), printable(server), printable(&token), printable(&signs)]);
    }
    output::say(&table.to_string())
}

fn set(context: &Context, args: SetArgs) -> anyhow::Result<()> {
    if args.name.trim().is_empty() {
        return Err(usage("the name of the profile is blank: give one"));
    }
    let mut profiles = Profiles::load(Profiles::locate()?)?;
    let mut profile = profiles.get(&args.name).unwrap_or_default();
    if let Some(server) = given(&context.global().server) {
        profile.server = Some(Client::new(server)?.server().to_owned());
    }
    let given_token = given(&context.global().token).map(str::to_owned);
    let token = if args.token_stdin { Some(token_from_stdin()?) } else { given_token };
    if let Some(file) = args.token_file {
        let file = std::path::absolute(&file).with_context(|| format!("{} is no path", file.display()))?;
        profile = Profile { token: None, token_file: Some(file), ..profile };
    } else if let Some(token) = token {
        profile = Profile { token: Some(token.trim().to_owned()), token_file: None, ..profile };
    }
    profiles.set(&args.name, profile);
    profiles.save()?;
    let kept = format!("profile {} kept in {}", args.name, profiles.path().display());
    output::say(&printable(&kept))
}

fn token_from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("the token cannot be read from stdin")?;
    if text.trim().is_empty() {
        return Err(usage("there is no token on stdin"));
    }
    Ok(text)
}

fn remove(name: &str) -> anyhow::Result<()> {
    let mut profiles = Profiles::load(Profiles::locate()?)?;
    profiles.remove(name)?;
    profiles.save()?;
    output::say(&printable(&format!("profile {name} removed")))
}
