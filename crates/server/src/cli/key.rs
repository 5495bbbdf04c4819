//! `countersign actor keygen` and `actor key`, `actor token`: what an actor is known by. A private key never leaves the
//! machine it was made on.

use super::connection::{Context, given};
use super::failure::usage;
use super::output::{self, printable};
use super::profiles::{Profile, Profiles, write_private};
use super::table::{Table, Tint, tint};
use super::{Keyed, Subject};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use countersign_client::ActorKey;
use countersign_client::wire::{RegisterKey, RevokeKey};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct KeygenArgs {
    /// Write the private key to this file (mode 600) [default: NAME.key beside the profiles]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Sign with this key when this profile is used
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// The actor that signs [default: the profile's actor, or its name]
    #[arg(long, value_name = "REF")]
    actor: Option<String>,
}

/// Manage the public keys that verify an actor's signatures
#[derive(Subcommand)]
pub enum KeyCommand {
    /// Add a public key
    Add {
        #[command(flatten)]
        actor: Subject,
        /// The public key: base64, hex or PEM
        #[arg(required_unless_present = "keygen")]
        public_key: Option<String>,
        /// Create the key and keep it with the profile, so that the profile signs
        #[arg(long, conflicts_with = "public_key")]
        keygen: bool,
        #[command(flatten)]
        keyed: Keyed,
    },
    /// List keys and tokens, revoked ones included
    List(Subject),
    /// Revoke a key; its earlier signatures still verify
    Revoke {
        #[command(flatten)]
        actor: Subject,
        /// The key, as `actor key list` shows it
        key_id: String,
        /// The reason, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        keyed: Keyed,
    },
}

/// Manage bearer tokens
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Issue another token and print it once
    Issue {
        #[command(flatten)]
        actor: Subject,
        #[command(flatten)]
        keyed: Keyed,
    },
    /// Revoke a token; `actor key list` shows the ids
    Revoke {
        #[command(flatten)]
        actor: Subject,
        /// The token's id, as `actor key list` shows it
        credential_id: String,
        #[command(flatten)]
        keyed: Keyed,
    },
}

pub fn keygen(context: &Context, args: KeygenArgs) -> anyhow::Result<()> {
    let mut profiles = Profiles::load(Profiles::locate()?)?;
    let name = args.profile.as_deref().or(args.actor.as_deref()).unwrap_or("countersign");
    let path = match &args.out {
        Some(path) => std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?,
        None => profiles.path().with_file_name(format!("{}.key", file_name(name)?)),
    };
    let key = make(&path)?;
    if let Some(name) = &args.profile {
        let profile = profiles.get(name).unwrap_or_default();
        let actor_ref = args.actor.clone().or(profile.actor_ref.clone()).unwrap_or_else(|| name.clone());
        profiles.set(name, Profile { key_file: Some(path.clone()), actor_ref: Some(actor_ref), ..profile });
        profiles.save()?;
    }
    if context.json() {
        let path = path.to_string_lossy();
        return output::json(&json!({"key_id": key.key_id(), "public_key": key.public_key(), "file": path}));
    }
    let line = |name: &str, value: &str| format!("{} {}", tint(Tint::Dim, &format!("{name:<10}")), printable(value));
    output::say(&line("key", &key.key_id()))?;
    output::say(&line("public key", &key.public_key()))?;
    output::say(&line("kept in", &path.to_string_lossy()))?;
    if args.profile.is_none() {
        output::say("Sign with it: countersign actor keygen --profile NAME, or key_file and actor_ref in a profile")?;
    }
    output::say("Register it: countersign actor add REF --public-key KEY, or countersign actor key add REF KEY")
}

/// A new key in a new file. One that is there already is never overwritten.
pub fn make(path: &Path) -> anyhow::Result<ActorKey> {
    if path.exists() {
        return Err(usage(format!("{} exists already: choose another file with --out", path.display())));
    }
    let key = ActorKey::generate()?;
    write_private(path, &format!("{}\n", key.to_base64()))?;
    Ok(key)
}

/// A name that is a file's name and nothing more.
pub fn file_name(name: &str) -> anyhow::Result<&str> {
    let plain =
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.@".contains(c)) && !name.starts_with('.');
    if plain { Ok(name) } else { Err(usage(format!("`{name}` cannot be a file name: choose a file with --out"))) }
}

pub async fn key(context: &Context, command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Add { actor, public_key: None, keyed, .. } => add_own(context, &actor.actor_ref, &keyed).await,
        KeyCommand::Add { actor, public_key: Some(public_key), keyed, .. } => {
            let client = context.client_keyed(&keyed)?;
            let answer = client.register_key(&actor.actor_ref, &RegisterKey { public_key }).await?;
            let text = format!("registered key {}", tint(Tint::Strong, &answer.body.key_id));
            if context.json() { output::json(&answer.json) } else { output::say(&text) }
        }
        KeyCommand::List(actor) => list(context, &actor.actor_ref).await,
        KeyCommand::Revoke { actor, key_id, reason, keyed } => {
            let client = context.client_keyed(&keyed)?;
            let answer = client.revoke_key(&actor.actor_ref, &key_id, &RevokeKey { reason }).await?;
            let text = format!("revoked key {}: it signs nothing from here on", tint(Tint::Strong, &key_id));
            if context.json() { output::json(&answer.json) } else { output::say(&text) }
        }
    }
}

/// A new key for the profile's own actor. The profile signs only once the server knows the key.
async fn add_own(context: &Context, actor_ref: &str, keyed: &Keyed) -> anyhow::Result<()> {
    let Some(name) = given(&context.global().profile) else {
        return Err(usage("choose the profile that is to sign: --as NAME".to_owned()));
    };
    let mut profiles = Profiles::load(Profiles::locate()?)?;
    let profile = profiles.get(name)?;
    if profile.key_file.is_some() {
        return Err(usage(format!("the profile `{name}` signs already; register a further key by its public key")));
    }
    let path = profiles.path().with_file_name(format!("{}.key", file_name(name)?));
    let client = context.client_keyed(keyed)?;
    let key = make(&path)?;
    let answer = match client.register_key(actor_ref, &RegisterKey { public_key: key.public_key() }).await {
        Ok(answer) => answer,
        Err(error) => {
            // A key that was never registered is of no use to anybody.
            let _ = std::fs::remove_file(&path);
            return Err(error.into());
        }
    };
    profiles.set(name, Profile { key_file: Some(path), actor_ref: Some(actor_ref.to_owned()), ..profile });
    profiles.save()?;
    if context.json() {
        return output::json(&answer.json);
    }
    let (key, name) = (tint(Tint::Strong, &answer.body.key_id), tint(Tint::Strong, name));
    output::say(&format!("registered key {key}; the profile {name} signs with it"))
}

pub async fn token(context: &Context, command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Issue { actor, keyed } => {
            let answer = context.client_keyed(&keyed)?.issue_token(&actor.actor_ref).await?;
            if context.json() {
                return output::json(&answer.json);
            }
            match &answer.body.token {
                Some(token) => {
                    output::say(&format!("token {}", printable(token)))?;
                    output::say("It is not shown again. Keep it: countersign profile set NAME --token-stdin")
                }
                None => output::say("this repeats an earlier request, whose token was shown then"),
            }
        }
        TokenCommand::Revoke { actor, credential_id, keyed } => {
            let answer = context.client_keyed(&keyed)?.revoke_token(&actor.actor_ref, &credential_id).await?;
            let text = format!("revoked token {}", tint(Tint::Strong, &credential_id));
            if context.json() { output::json(&answer.json) } else { output::say(&text) }
        }
    }
}

async fn list(context: &Context, actor_ref: &str) -> anyhow::Result<()> {
    let answer = context.client()?.keys(actor_ref).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let mut table = Table::new(["kind", "id", "status", "added by", "added at", "public key"]);
    let shown = |status: &str| tint(if status == "active" { Tint::Good } else { Tint::Dim }, status);
    for key in &answer.body.keys {
        let (by, at) = (printable(&key.added_by), printable(&key.added_at));
        let public_key = printable(&key.public_key);
        table.row(["key".into(), tint(Tint::Strong, &key.key_id), shown(&key.status), by, at, public_key]);
    }
    for token in &answer.body.tokens {
        let (by, at) = (printable(&token.added_by), printable(&token.added_at));
        let id = tint(Tint::Strong, &token.credential_id);
        table.row(["token".into(), id, shown(&token.status), by, at, String::new()]);
    }
    output::say(&table.to_string())
}
