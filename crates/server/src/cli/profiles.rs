//! The profile file: names for a server and the token to use there. It holds secrets, so it is made
//! for its owner alone, is not read when others could read it too, and no message repeats its text.

use super::failure::usage;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// The profiles of one file.
pub struct Profiles {
    path: PathBuf,
    document: Document,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A file that holds the token; a relative path starts at the profile file's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A file that holds the actor's private key: then every change is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The actor whose key it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_ref: Option<String>,
}

impl Profiles {
    /// Where the file is, whether or not it exists.
    pub fn locate() -> anyhow::Result<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let file = Path::new("countersign").join("profiles.toml");
        variable("COUNTERSIGN_PROFILES")
            .or_else(|| variable("XDG_CONFIG_HOME").map(|config| config.join(&file)))
            .or_else(|| variable("HOME").map(|home| home.join(".config").join(&file)))
            .context("neither HOME nor XDG_CONFIG_HOME is set: say where profiles are with COUNTERSIGN_PROFILES")
    }

    /// Reads the file; one that does not exist has no profiles.
    pub fn load(path: PathBuf) -> anyhow::Result<Self> {
        let text = match open_private(&path) {
            Ok(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).with_context(|| format!("{} cannot be read", path.display()))?;
                text
            }
            Err(error) if is_missing(&error) => String::new(),
            Err(error) => return Err(error),
        };
        let document = toml::from_str(&text).map_err(|error| unreadable(&path, &text, &error))?;
        Ok(Profiles { path, document })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Profile)> {
        self.document.profiles.iter().map(|(name, profile)| (name.as_str(), profile))
    }

    pub fn get(&self, name: &str) -> anyhow::Result<Profile> {
        if let Some(profile) = self.document.profiles.get(name) {
            return Ok(profile.clone());
        }
        let known: Vec<&str> = self.iter().map(|(name, _)| name).collect();
        let known =
            if known.is_empty() { "there are none yet".to_owned() } else { format!("there is {}", known.join(", ")) };
        Err(usage(format!(
            "{} has no profile `{name}` ({known}); `countersign profile set` makes one",
            self.path.display()
        )))
    }

    pub fn set(&mut self, name: &str, profile: Profile) {
        self.document.profiles.insert(name.to_owned(), profile);
    }

    pub fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        self.get(name)?;
        self.document.profiles.remove(name);
        Ok(())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.document.profiles.contains_key(name)
    }

    /// The path of a token file named in a profile.
    pub fn resolve(&self, token_file: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| token_file.to_owned(), |directory| directory.join(token_file))
    }

    pub fn save(&self) -> anyhow::Result<()> {
        let text = toml::to_string_pretty(&self.document).context("the profiles cannot be written as TOML")?;
        write_private(&self.path, &text)
    }
}

/// Replaces a file in one step. It is never readable by others, not even while it is written.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot = || format!("{} cannot be written", path.display());
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).with_context(cannot)?;
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = create_private(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // Best effort: what stays behind is private and replaces nothing.
        let _ = std::fs::remove_file(&new);
    }
    written.with_context(cannot)
}

/// Reads a token from a file that is its owner's alone.
pub fn read_secret(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    open_private(path)?.read_to_string(&mut text).with_context(|| format!("{} cannot be read", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        bail!("{} is empty: write the token into it", path.display());
    }
    Ok(token.to_owned())
}

fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens a file that holds a secret; refuses one that others can read.
fn open_private(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = file.metadata().with_context(|| format!("{} cannot be examined", path.display()))?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            bail!(
                "{} holds a secret, but others can read or write it (mode {mode:04o}): chmod 600 {}",
                path.display(),
                super::output::shell_word(&path.to_string_lossy())
            );
        }
    }
    Ok(file)
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Says where the file is wrong without repeating the line, which may hold a token.
fn unreadable(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let line = error.span().map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
    let place = line.map_or_else(String::new, |line| format!(", line {line}"));
    let message = error.message().lines().next().unwrap_or_default().to_owned();
    usage(format!("{}{place} cannot be understood: {message}", path.display()))
}

/// A directory for one test, gone with its value.
#[cfg(test)]
pub struct Scratch(PathBuf);

#[cfg(test)]
impl Scratch {
    pub fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("countersign-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        Scratch(directory)
    }
}

#[cfg(test)]
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
impl std::ops::Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).expect("written");
        #[cfg(unix)]
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("mode set");
    }

    #[test]
    fn profiles_survive_the_file() {
        let dir = Scratch::new("survive");
        let path = dir.join("deep/profiles.toml");
        let mut profiles = Profiles::load(path.clone()).expect("none yet");
        assert_eq!(profiles.iter().count(), 0);
        let qp = Profile { server: Some("http://qp:1".into()), token: Some("t".into()), ..Profile::default() };
        profiles.set("qp", qp.clone());
        profiles.set("dotted.name", Profile { token_file: Some("qa.token".into()), ..Profile::default() });
        profiles.save().expect("saved");

        let mut again = Profiles::load(path.clone()).expect("read");
        assert!(again.get("qp").is_ok_and(|profile| profile == qp));
        let file = again.get("dotted.name").expect("kept").token_file.expect("a file");
        assert_eq!(again.resolve(&file), path.with_file_name("qa.token"));
        assert!(again.remove("qp").is_ok() && again.remove("qp").is_err());
        again.save().expect("saved over the old one");
        assert_eq!(Profiles::load(path).expect("read").iter().count(), 1);
    }

    #[test]
    fn a_file_as_people_write_it_is_read() {
        let dir = Scratch::new("written");
        let path = dir.join("profiles.toml");
        write(&path, "# mine\n[profiles.qp]\nserver = \"http://qp:1\"\ntoken_file = \"/t\"\n[profiles.none]\n", 0o600);
        let profiles = Profiles::load(path).expect("read");
        assert_eq!(profiles.get("qp").expect("qp").token_file.as_deref(), Some(Path::new("/t")));
        assert!(profiles.get("none").expect("none").server.is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::MetadataExt;
        let dir = Scratch::new("others");
        let path = dir.join("profiles.toml");
        for mode in [0o644, 0o640, 0o604, 0o660, 0o620] {
            write(&path, "[profiles.qp]\n", mode);
            let told = Profiles::load(path.clone()).err().expect("refused").to_string();
            assert!(told.contains(&format!("chmod 600 {}", path.display())), "{told}");
            assert!(told.contains(&format!("{mode:04o}")), "{told}");
        }
        write(&dir.join("qa.token"), "tok\n", 0o644);
        assert!(read_secret(&dir.join("qa.token")).is_err());
        write(&dir.join("qa.token"), "tok\n", 0o400);
        assert_eq!(read_secret(&dir.join("qa.token")).expect("read"), "tok");

        std::fs::remove_file(&path).expect("removed");
        Profiles::load(path.clone()).expect("none yet").save().expect("saved");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_broken_file_is_told_by_line_and_not_by_content() {
        let dir = Scratch::new("broken");
        let path = dir.join("profiles.toml");
        for broken in ["[profiles.qp]\ntoken = very-secret\n", "[profiles.qp]\ntokn = \"very-secret\"\n"] {
            write(&path, broken, 0o600);
            let told = Profiles::load(path.clone()).err().expect("refused").to_string();
            assert!(told.contains("line 2") && !told.contains("secret"), "{told}");
        }
    }
}
