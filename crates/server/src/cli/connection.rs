//! Which server a command talks to, and as whom: flags and environment first, then the profile, and
//! without a profile the server on this machine with the token it left beside its data.

use super::failure::usage;
use super::profiles::{Profiles, read_secret};
use super::{Global, Keyed};
use anyhow::Context as _;
use countersign_client::{ActorKey, Client, DEFAULT_SERVER, Error as ClientError, Signing};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// What `countersign serve` writes when it makes its store.
const ADMIN_TOKEN: &str = "./countersign-data/admin.token";

/// What all commands share while one of them runs.
pub struct Context {
    global: Global,
    /// Where the token came from, once a command has connected; for the notes to a refusal.
    token_source: RefCell<Option<TokenSource>>,
}

/// Where the token came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// No token is known.
    Nowhere,
    /// `--token` or `COUNTERSIGN_TOKEN`.
    Given,
    /// The profile of this name.
    Profile(String),
    /// The file that a local server wrote.
    AdminToken(PathBuf),
}

/// A server and the credential to use there.
pub struct Endpoint {
    pub client: Client,
    pub token_source: TokenSource,
}

impl Context {
    pub fn new(global: Global) -> Self {
        Context { global, token_source: RefCell::new(None) }
    }

    pub fn json(&self) -> bool {
        self.global.json
    }

    pub fn global(&self) -> &Global {
        &self.global
    }

    /// A client for the chosen server, as the chosen actor.
    pub fn client(&self) -> anyhow::Result<Client> {
        let endpoint = self.endpoint()?;
        *self.token_source.borrow_mut() = Some(endpoint.token_source);
        Ok(endpoint.client)
    }

    /// A client that sends the key of this command.
    pub fn client_keyed(&self, keyed: &Keyed) -> anyhow::Result<Client> {
        let client = self.client()?;
        Ok(match &keyed.idempotency_key {
            Some(key) => client.with_idempotency_key(key)?,
            None => client,
        })
    }

    pub fn endpoint(&self) -> anyhow::Result<Endpoint> {
        resolve(&self.global, Profiles::locate, Path::new(ADMIN_TOKEN))
    }

    /// What to add to a refusal that may come from the wrong token.
    pub fn token_note(&self, error: &ClientError) -> Option<String> {
        let code = error.code()?;
        if !matches!(code, "invalid-credential" | "permission-denied" | "unauthorized") {
            return None;
        }
        match self.token_source.borrow().as_ref()? {
            TokenSource::Nowhere => Some(
                "no token was sent: choose a profile with --as, set COUNTERSIGN_TOKEN, or run this where \
                 ./countersign-data/admin.token is"
                    .to_owned(),
            ),
            TokenSource::AdminToken(path) => {
                Some(format!("the token came from {}, because no profile was chosen (--as)", path.display()))
            }
            TokenSource::Profile(name) => Some(format!("the token came from the profile `{name}`")),
            TokenSource::Given => None,
        }
    }
}

fn resolve(
    global: &Global,
    profiles_path: impl FnOnce() -> anyhow::Result<PathBuf>,
    admin_token: &Path,
) -> anyhow::Result<Endpoint> {
    let server = given(&global.server);
    if let Some(token) = given(&global.token) {
        let profile = match given(&global.profile) {
            Some(name) if server.is_none() => Some(Profiles::load(profiles_path()?)?.get(name)?),
            _ => None,
        };
        let server = server.or(profile.as_ref().and_then(|profile| profile.server.as_deref()));
        let client = Client::new(server.unwrap_or(DEFAULT_SERVER))?.with_token(token)?;
        return Ok(Endpoint { client, token_source: TokenSource::Given });
    }
    if let Some(name) = given(&global.profile) {
        return from_profile(name, server, &Profiles::load(profiles_path()?)?);
    }
    let client = Client::new(server.unwrap_or(DEFAULT_SERVER))?;
    // The token of a local server is nothing to send elsewhere.
    if !client.is_loopback() || !admin_token.exists() {
        return Ok(Endpoint { client, token_source: TokenSource::Nowhere });
    }
    let token = std::fs::read_to_string(admin_token).with_context(|| {
        format!("the token in {} cannot be read; choose a profile with --as", admin_token.display())
    })?;
    Ok(Endpoint { client: client.with_token(&token)?, token_source: TokenSource::AdminToken(admin_token.to_owned()) })
}

fn from_profile(name: &str, server: Option<&str>, profiles: &Profiles) -> anyhow::Result<Endpoint> {
    let profile = profiles.get(name)?;
    let home = Client::new(profile.server.as_deref().unwrap_or(DEFAULT_SERVER))?;
    let client = server.map_or(Ok(home.clone()), Client::new)?;
    let token = match (&profile.token, &profile.token_file) {
        (Some(_), Some(_)) => {
            return Err(usage(format!("the profile `{name}` has both token and token_file: keep one")));
        }
        (Some(token), None) => Some(token.clone()),
        (None, Some(file)) => Some(read_secret(&profiles.resolve(file))?),
        (None, None) => None,
    };
    let client = match &profile.key_file {
        None => client,
        Some(file) => {
            let actor_ref = profile.actor_ref.clone().unwrap_or_else(|| name.to_owned());
            let key = ActorKey::from_base64(&read_secret(&profiles.resolve(file))?)?;
            client.with_signing(Signing { actor_ref, key, meaning: None, expected_sequence: None })
        }
    };
    let Some(token) = token else { return Ok(Endpoint { client, token_source: TokenSource::Nowhere }) };
    if profile.server.is_some() && client.server() != home.server() {
        return Err(usage(format!(
            "the profile `{name}` belongs to {}, so its token is not sent to {}: leave --server (COUNTERSIGN_SERVER) \
             out, move the profile with `countersign profile set {name} --server URL`, or give a token",
            home.server(),
            client.server()
        )));
    }
    Ok(Endpoint { client: client.with_token(&token)?, token_source: TokenSource::Profile(name.to_owned()) })
}

/// A flag that was given; an empty environment variable counts as unset.
pub fn given(flag: &Option<String>) -> Option<&str> {
    flag.as_deref().filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::profiles::{Profile, Scratch};
    use super::*;

    fn global(server: &str, token: &str, profile: &str) -> Global {
        Global { server: Some(server.into()), token: Some(token.into()), profile: Some(profile.into()), json: false }
    }

    fn outcome(global: &Global, dir: &Path) -> Result<(String, TokenSource), String> {
        let endpoint = resolve(global, || Ok(dir.join("profiles.toml")), &dir.join("admin.token"));
        endpoint.map(|e| (e.client.server().to_owned(), e.token_source)).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_come_before_the_profile_and_the_profile_before_the_local_token() {
        let dir = Scratch::new("resolve");
        let mut profiles = Profiles::load(dir.join("profiles.toml")).expect("none yet");
        profiles
            .set("qp", Profile { server: Some("http://qp:1".into()), token: Some("t".into()), ..Profile::default() });
        profiles.save().expect("saved");
        let default = DEFAULT_SERVER.to_owned();

        assert_eq!(outcome(&global("", "", ""), &dir), Ok((default.clone(), TokenSource::Nowhere)));
        std::fs::write(dir.join("admin.token"), "secret\n").expect("written");
        let admin = TokenSource::AdminToken(dir.join("admin.token"));
        assert_eq!(outcome(&global("", "", ""), &dir), Ok((default.clone(), admin)));
        assert_eq!(outcome(&global("http://far:9", "", ""), &dir), Ok(("http://far:9".into(), TokenSource::Nowhere)));
        assert_eq!(outcome(&global("", "tok", ""), &dir), Ok((default, TokenSource::Given)));
        let profile = TokenSource::Profile("qp".into());
        assert_eq!(outcome(&global("", "", "qp"), &dir), Ok(("http://qp:1".into(), profile.clone())));
        assert_eq!(outcome(&global("http://qp:1/", "", "qp"), &dir), Ok(("http://qp:1".into(), profile)));
        assert_eq!(outcome(&global("", "tok", "qp"), &dir), Ok(("http://qp:1".into(), TokenSource::Given)));
    }

    #[test]
    fn a_profiles_token_stays_with_its_server() {
        let dir = Scratch::new("stays");
        let mut profiles = Profiles::load(dir.join("profiles.toml")).expect("none yet");
        profiles
            .set("qp", Profile { server: Some("http://qp:1".into()), token: Some("t".into()), ..Profile::default() });
        profiles.save().expect("saved");
        let told = outcome(&global("http://elsewhere:1", "", "qp"), &dir).expect_err("kept");
        assert!(told.contains("belongs to http://qp:1") && !told.contains("secret"), "{told}");
        let told = outcome(&global("", "", "nobody"), &dir).expect_err("unknown");
        assert!(told.contains("nobody") && told.contains("qp"), "{told}");
    }
}
