//! `[secrets]`: the values of `${secrets.NAME}` in shell and http steps. Each is read from its file or variable when a step
//! needs it and kept nowhere, so a rotated secret is used from the next step on.

use anyhow::{bail, ensure};
use countersign_executor::mask::{Mask, SHORTEST_BYTES};
use countersign_kernel::plan::Secrets;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest value: a key, a certificate, a token.
const LONGEST_BYTES: u64 = 16 * 1024;
const MAX_NAME_BYTES: usize = 64;
/// What nobody but the owner needs.
const LOOSE: u32 = 0o077;

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    File(PathBuf),
    Env(String),
}

impl<'de> Deserialize<'de> for SecretSource {
    /// Whatever else is written here may be the secret itself, so it is never shown.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, deny_unknown_fields)]
        enum Written {
            File { file: PathBuf },
            Env { env: String },
            Else(IgnoredAny),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::File { file }) => Ok(SecretSource::File(file)),
            Ok(Written::Env { env }) => Ok(SecretSource::Env(env)),
            Ok(Written::Else(_)) | Err(_) => Err(D::Error::custom(
                "write {file = \"…\"} or {env = \"…\"}; the value itself does not belong into the configuration",
            )),
        }
    }
}

pub(super) fn check(sources: &BTreeMap<String, SecretSource>) -> anyhow::Result<()> {
    for (name, source) in sources {
        let letters = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        ensure!(
            letters && name.len() <= MAX_NAME_BYTES,
            "secrets.{name}: a name begins with a letter and has at most {MAX_NAME_BYTES} letters, digits, `_` and `-`"
        );
        match source {
            SecretSource::File(file) if file.as_os_str().is_empty() => bail!("secrets.{name}.file is blank"),
            SecretSource::Env(env) if env.is_empty() || env.contains(['=', '\0']) => {
                bail!("secrets.{name}.env is no name of a variable")
            }
            SecretSource::File(_) | SecretSource::Env(_) => {}
        }
    }
    Ok(())
}

/// The configured secrets.
#[derive(Clone, Debug, Default)]
pub struct SecretStore {
    sources: Arc<BTreeMap<String, SecretSource>>,
    /// A file that others may read is refused.
    regulated: bool,
}

/// Why a secret has no value: a clause that follows its name.
enum Fault {
    /// It may still come.
    Absent(String),
    Unusable(String),
}

impl SecretStore {
    pub(super) fn new(sources: BTreeMap<String, SecretSource>, regulated: bool) -> Self {
        SecretStore { sources: Arc::new(sources), regulated }
    }

    /// Looks at every secret once. One that is absent may come later; one that is there and cannot be used is an error.
    pub fn check(&self) -> anyhow::Result<()> {
        for (name, source) in &*self.sources {
            match self.read(source) {
                Ok(_) => {}
                Err(Fault::Absent(why)) => tracing::warn!("secret `{name}` {why}: steps that use it will fail"),
                Err(Fault::Unusable(why)) => bail!("secret `{name}` {why}"),
            }
            if let SecretSource::File(file) = source
                && let Some(mode) = loose_mode(file)
            {
                tracing::warn!("secret `{name}`: {} has the mode {mode:04o}; 0600 is enough", file.display());
            }
        }
        Ok(())
    }

    /// Hides these values, which a job was given, and every configured one: a step may find a secret that another was given.
    pub async fn mask(&self, given: &[Arc<str>]) -> Mask {
        if self.sources.is_empty() && given.is_empty() {
            return Mask::default();
        }
        let (store, given) = (self.clone(), given.to_vec());
        let made = tokio::task::spawn_blocking(move || {
            let configured = store.sources.values().filter_map(|source| store.read(source).ok());
            let configured: Vec<String> = configured.collect();
            Mask::of(given.iter().map(|value| &**value).chain(configured.iter().map(String::as_str)))
        });
        made.await.unwrap_or_else(|_| Mask::everything())
    }

    fn read(&self, source: &SecretSource) -> Result<String, Fault> {
        let (bytes, place) = match source {
            SecretSource::File(file) => (self.read_file(file)?, format!("the file {}", file.display())),
            SecretSource::Env(env) => {
                let absent = || Fault::Absent(format!("cannot be read: the variable {env} is not set"));
                let value = std::env::var_os(env).ok_or_else(absent)?;
                (value.into_encoded_bytes(), format!("the variable {env}"))
            }
        };
        let unusable = |why: &str| Fault::Unusable(format!("cannot be used: {place} {why}"));
        let mut text = String::from_utf8(bytes).map_err(|_| unusable("does not hold text in UTF-8"))?;
        if matches!(source, SecretSource::File(_)) && text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        if text.len() < SHORTEST_BYTES {
            return Err(unusable(&format!(
                "holds fewer than {SHORTEST_BYTES} bytes, which could not be masked without masking other text"
            )));
        }
        if text.len() as u64 > LONGEST_BYTES {
            return Err(unusable(&format!("holds more than {LONGEST_BYTES} bytes")));
        }
        if text.contains('\0') || text.trim().is_empty() {
            return Err(unusable("is blank or holds the character U+0000"));
        }
        Ok(text)
    }

    fn read_file(&self, path: &Path) -> Result<Vec<u8>, Fault> {
        let shown = path.display();
        let unread = |error: &io::Error| format!("cannot be read: the file {shown}: {error}");
        let absent = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Fault::Absent(unread(&error)),
            _ => Fault::Unusable(unread(&error)),
        };
        let file = open(path).map_err(absent)?;
        let metadata = file.metadata().map_err(|error| Fault::Unusable(unread(&error)))?;
        if !metadata.is_file() {
            return Err(Fault::Unusable(format!("cannot be used: {shown} is not a regular file")));
        }
        let mode = metadata.mode() & 0o7777;
        if self.regulated && mode & LOOSE != 0 {
            return Err(Fault::Unusable(format!(
                "cannot be used: the file {shown} has the mode {mode:04o}, and a regulated deployment wants 0600"
            )));
        }
        let mut bytes = Vec::new();
        let read = file.take(LONGEST_BYTES + 2).read_to_end(&mut bytes);
        read.map_err(|error| Fault::Unusable(unread(&error)))?;
        Ok(bytes)
    }
}

impl Secrets for SecretStore {
    fn reveal(&self, name: &str) -> Result<String, String> {
        let source = self.sources.get(name).ok_or("is not configured: this server needs it in [secrets]")?;
        self.read(source).map_err(|fault| match fault {
            Fault::Absent(why) | Fault::Unusable(why) => why,
        })
    }
}

/// Without waiting: a pipe that nobody writes to would never open.
fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn loose_mode(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o7777;
    (mode & LOOSE != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::os::unix::fs::PermissionsExt;

    const HIDDEN: &str = "hunter2hunter2";

    fn load(toml: &str, variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, toml)?;
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Config::from_sources(Some(&file), variables)
    }

    #[test]
    fn a_secret_is_read_when_it_is_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pg");
        let toml = format!(
            "[secrets]\npg = {{file = \"{}\"}}\nhome = {{env = \"PATH\"}}\nnone = {{env = \"NO_SUCH_VARIABLE\"}}",
            file.display()
        );
        let store = load(&toml, &[("COUNTERSIGN_SECRETS__MORE__ENV", "PATH")]).expect("a configuration").secrets();
        store.check().expect("what is absent may come");
        let told = store.reveal("pg").expect_err("no file");
        assert!(told.starts_with("cannot be read: the file ") && told.contains("/pg: No such file"), "{told}");
        for (content, value) in
            [("first", "first"), ("second\n", "second"), ("third\r\n", "third"), ("four\n\n", "four\n")]
        {
            std::fs::write(&file, content).expect("a file");
            assert_eq!(store.reveal("pg").as_deref(), Ok(value));
        }
        assert_eq!(store.reveal("home").ok(), std::env::var("PATH").ok());
        assert_eq!(store.reveal("more").ok(), std::env::var("PATH").ok());
        for (name, told) in [("none", "the variable NO_SUCH_VARIABLE is not set"), ("other", "is not configured")] {
            assert!(store.reveal(name).expect_err(name).contains(told), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_at_the_start_and_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pg");
        let store =
            |regulated| SecretStore::new([("pg".to_owned(), SecretSource::File(file.clone()))].into(), regulated);
        let long = vec![b'x'; 20_000];
        for (content, told) in [
            (&b"abc\n"[..], "fewer than 4 bytes"),
            (b"    \n", "blank"),
            (b"ab\0cdef", "U+0000"),
            (b"\xff\xfe\xfd\xfc", "UTF-8"),
            (&long, "more than 16384 bytes"),
        ] {
            std::fs::write(&file, content).expect("a file");
            let refused = store(false).check().expect_err(told).to_string();
            assert!(
                refused.contains(told) && refused.starts_with("secret `pg` cannot be used: the file "),
                "{refused}"
            );
            assert!(store(false).reveal("pg").expect_err(told).contains(told));
        }
        std::fs::write(&file, HIDDEN).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("a mode");
        store(false).check().expect("only a warning");
        assert!(store(true).check().expect_err("regulated").to_string().contains("0640"));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a mode");
        store(true).check().expect("tight");
        std::fs::remove_file(&file).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a pipe");
        assert!(store(false).check().expect_err("a pipe").to_string().contains("not a regular file"));
    }

    #[test]
    fn a_value_in_the_configuration_is_refused_and_not_shown() {
        for (toml, variables) in [
            (format!("[secrets]\npg = \"{HIDDEN}\""), vec![]),
            (format!("[secrets]\npg = {{value = \"{HIDDEN}\"}}"), vec![]),
            (format!("[secrets]\npg = {{file = \"x\", env = \"{HIDDEN}\"}}"), vec![]),
            (format!("[secrets]\npg = \"{HIDDEN}"), vec![]),
            ("[secrets]\npg = 4711471147114711".to_owned(), vec![]),
            (String::new(), vec![("COUNTERSIGN_SECRETS__PG", HIDDEN)]),
        ] {
            let answer = format!("{:#}", load(&toml, &variables).expect_err(&toml));
            assert!(!answer.contains(HIDDEN) && !answer.contains("4711"), "{answer}");
        }
        for (toml, told) in [
            ("[secrets]\n\"a b\" = {env = \"X\"}", "begins with a letter"),
            ("[secrets]\na = {env = \"\"}", "no name of a variable"),
            ("[secrets]\na = {file = \"\"}", "blank"),
        ] {
            let answer = format!("{:#}", load(toml, &[]).expect_err(toml));
            assert!(answer.contains(told), "{answer}");
        }
    }
}
