//! Files that a step leaves behind, kept by their content: `<dir>/<aa>/<sha256>`, where `aa` are the digest's first two
//! characters. A file is copied while it is hashed, so the digest is that of the kept bytes, whatever happens to the original.
//!
//! A path is taken from the definition and the file from a process that may be hostile: no part of the path may be a symbolic
//! link, and only a regular file is read.

use countersign_kernel::Digest;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const CHUNK: usize = 64 * 1024;
const TEMPORARY: &str = "tmp";
/// Empty files: the digests whose records are being purged.
const MARKED: &str = "purge";
/// A temporary file that is older belongs to a server that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// A kept file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Relative to the step's working directory, as the definition names it.
    pub path: String,
    pub sha256: Digest,
    pub size_bytes: u64,
}

/// Why a file was not kept.
#[derive(Debug)]
pub enum Unkept {
    /// There is no such file.
    Missing,
    /// It is nothing that is kept, and why.
    Refused(&'static str),
    /// It is larger than this many bytes.
    TooLarge(u64),
    /// It could not be read or written.
    Failed(io::Error),
}

/// Where artifacts are kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    dir: PathBuf,
    max_bytes: u64,
}

impl ArtifactStore {
    /// Makes the directory where it is missing, and removes what a killed server left half written.
    pub fn open(dir: impl Into<PathBuf>, max_bytes: u64) -> io::Result<Self> {
        let store = ArtifactStore { dir: dir.into(), max_bytes };
        let temporary = store.dir.join(TEMPORARY);
        make_dir(&temporary)?;
        let now = SystemTime::now();
        for entry in std::fs::read_dir(&temporary)? {
            let entry = entry?;
            let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|at| now.duration_since(at));
            if matches!(age, Ok(Ok(age)) if age > ABANDONED) {
                // Another server may have removed it first.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(store)
    }

    /// Keeps a copy of the file at `path` in the working directory. It is on the disk when this returns.
    pub fn keep(&self, working_dir: &Path, path: &str) -> Result<Artifact, Unkept> {
        let mut file = open_beneath(working_dir, path)?;
        if file.metadata().map_err(Unkept::Failed)?.len() > self.max_bytes {
            return Err(Unkept::TooLarge(self.max_bytes));
        }
        let temporary = tempfile::Builder::new().tempfile_in(self.dir.join(TEMPORARY));
        let mut copy = temporary.map_err(Unkept::Failed)?;
        let (mut hash, mut size_bytes, mut chunk) = (Sha256::new(), 0_u64, vec![0; CHUNK]);
        loop {
            let read = file.read(&mut chunk).map_err(Unkept::Failed)?;
            if read == 0 {
                break;
            }
            size_bytes += read as u64;
            if size_bytes > self.max_bytes {
                return Err(Unkept::TooLarge(self.max_bytes));
            }
            hash.update(&chunk[..read]);
            copy.write_all(&chunk[..read]).map_err(Unkept::Failed)?;
        }
        copy.as_file().sync_all().map_err(Unkept::Failed)?;
        let sha256 = Digest(hash.finalize().into());
        let place = self.place(&sha256);
        // One of the same name has the same content; it is replaced, in case the disk has spoilt it.
        let (shelf, is_new) = self.shelf(&place).map_err(Unkept::Failed)?;
        copy.persist(&place).map_err(|error| Unkept::Failed(error.error))?;
        sync_dir(&shelf).map_err(Unkept::Failed)?;
        if is_new {
            sync_dir(&self.dir).map_err(Unkept::Failed)?;
        }
        Ok(Artifact { path: path.to_owned(), sha256, size_bytes })
    }

    /// The kept file with this digest, once its bytes were found to have it; nothing where there is none.
    pub fn find(&self, sha256: &Digest) -> io::Result<Option<File>> {
        let mut file = match File::open(self.place(sha256)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                read => hash.update(&chunk[..read]),
            }
        }
        if Digest(hash.finalize().into()) != *sha256 {
            return Err(io::Error::other("its content does not have the digest that it is kept under"));
        }
        io::Seek::rewind(&mut file)?;
        Ok(Some(file))
    }

    /// Notes that a record which names this file is being purged: [`ArtifactStore::marked`] lists it until it is settled, also
    /// after a crash.
    pub fn mark(&self, sha256: &Digest) -> io::Result<()> {
        let marks = self.dir.join(MARKED);
        make_dir(&marks)?;
        File::create(marks.join(sha256.to_string()))?.sync_all()?;
        sync_dir(&marks)
    }

    pub fn marked(&self) -> io::Result<Vec<Digest>> {
        let entries = match std::fs::read_dir(self.dir.join(MARKED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries?,
        };
        let mut marked = vec![];
        for entry in entries {
            marked.extend(entry?.file_name().to_str().and_then(parse_hex));
        }
        Ok(marked)
    }

    /// The file stays, or is gone.
    pub fn unmark(&self, sha256: &Digest) -> io::Result<()> {
        gone(std::fs::remove_file(self.dir.join(MARKED).join(sha256.to_string())))
    }

    /// Removes a file that no record names. One that is younger than `age` stays, and the answer is no: a step may have left it
    /// and be about to report it.
    pub fn remove(&self, sha256: &Digest, age: Duration) -> io::Result<bool> {
        let place = self.place(sha256);
        let modified = match std::fs::metadata(&place).and_then(|metadata| metadata.modified()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            modified => modified?,
        };
        if SystemTime::now().duration_since(modified).is_ok_and(|since| since < age) {
            return Ok(false);
        }
        gone(std::fs::remove_file(place))?;
        Ok(true)
    }

    fn place(&self, sha256: &Digest) -> PathBuf {
        let hex = sha256.to_string();
        self.dir.join(&hex[..2]).join(hex)
    }

    /// The directory of a place, and whether it had to be made.
    fn shelf(&self, place: &Path) -> io::Result<(PathBuf, bool)> {
        let shelf = place.parent().unwrap_or(&self.dir).to_owned();
        let is_new = !shelf.is_dir();
        if is_new {
            make_dir(&shelf)?;
        }
        Ok((shelf, is_new))
    }
}

/// Another server may have been quicker.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn parse_hex(text: &str) -> Option<Digest> {
    let mut bytes = [0_u8; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(Digest(bytes))
}

fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Opens a regular file, part by part of its path, following no symbolic link.
fn open_beneath(working_dir: &Path, path: &str) -> Result<File, Unkept> {
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains('\0');
    let (Some((name, directories)), true) = (parts.split_last(), parts.iter().all(fits)) else {
        return Err(Unkept::Refused("a path is relative to the working directory and has no `.` or `..` in it"));
    };
    let mut directory: OwnedFd = openat(CWD, working_dir, DIRECTORY, Mode::empty()).map_err(unopened)?;
    for part in directories {
        directory = openat(&directory, *part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).map_err(unopened)?;
    }
    // Without waiting: a pipe without a writer would never open.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&directory, *name, flags, Mode::empty()).map_err(unopened)?);
    if !file.metadata().map_err(Unkept::Failed)?.is_file() {
        return Err(Unkept::Refused("it is not a regular file"));
    }
    Ok(file)
}

fn unopened(error: Errno) -> Unkept {
    match error {
        Errno::NOENT => Unkept::Missing,
        Errno::LOOP => Unkept::Refused("it is a symbolic link"),
        // A symbolic link too, where a directory was asked for.
        Errno::NOTDIR => Unkept::Refused("a part of its path is not a directory"),
        Errno::NXIO => Unkept::Refused("it is not a regular file"),
        error => Unkept::Failed(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Place {
        store: ArtifactStore,
        working: tempfile::TempDir,
        kept: tempfile::TempDir,
    }

    fn place() -> Place {
        let (working, kept) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        Place { store: ArtifactStore::open(kept.path().join("artifacts"), 1000).expect("a store"), working, kept }
    }

    const HELLO: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

    #[test]
    fn a_file_is_kept_under_its_digest() {
        let Place { store, working, kept } = place();
        std::fs::create_dir(working.path().join("sub")).expect("a directory");
        std::fs::write(working.path().join("sub/out.txt"), "hello\n").expect("a file");
        let artifact = store.keep(working.path(), "sub/out.txt").expect("kept");
        assert_eq!(
            (artifact.sha256.to_string().as_str(), artifact.size_bytes, artifact.path.as_str()),
            (HELLO, 6, "sub/out.txt")
        );
        let place = kept.path().join("artifacts/58").join(HELLO);
        assert_eq!(std::fs::metadata(&place).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(kept.path().join("artifacts")).expect("one").permissions().mode() & 0o777, 0o700);
        // Twice is once, and nothing half written stays.
        store.keep(working.path(), "sub/out.txt").expect("kept");
        assert_eq!(std::fs::read_dir(kept.path().join("artifacts/tmp")).expect("a directory").count(), 0);

        let mut text = String::new();
        store.find(&artifact.sha256).expect("read").expect("a file").read_to_string(&mut text).expect("text");
        assert_eq!(text, "hello\n");
        std::fs::write(&place, "hellO\n").expect("spoilt");
        assert!(store.find(&artifact.sha256).is_err());
        assert!(store.find(&Digest([7; 32])).expect("read").is_none());
    }

    #[test]
    fn what_is_no_plain_file_inside_is_not_kept() {
        let Place { store, working, .. } = place();
        let inside = |name: &str| working.path().join(name);
        std::fs::write(inside("file"), "x").expect("a file");
        std::fs::write(inside("large"), vec![0; 1001]).expect("a file");
        symlink("/etc/passwd", inside("link")).expect("a link");
        symlink("/etc", inside("etc")).expect("a link");
        symlink("nowhere", inside("dangling")).expect("a link");
        std::fs::create_dir(inside("dir")).expect("a directory");
        rustix::fs::mknodat(CWD, inside("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(inside("socket")).expect("a socket");
        for path in [
            "link",
            "etc/passwd",
            "dangling",
            "dir",
            "pipe",
            "socket",
            "/etc/passwd",
            "../file",
            "dir/../file",
            "./file",
            "",
            "file/",
            "file/x",
            "a\0b",
        ] {
            match store.keep(working.path(), path) {
                Err(Unkept::Refused(_)) => {}
                other => panic!("{path:?}: {other:?}"),
            }
        }
        assert!(matches!(store.keep(working.path(), "none"), Err(Unkept::Missing)));
        assert!(matches!(store.keep(working.path(), "no/ne"), Err(Unkept::Missing)));
        assert!(matches!(store.keep(working.path(), "large"), Err(Unkept::TooLarge(1000))));
    }

    #[test]
    fn what_a_killed_server_left_is_removed() {
        let Place { store, kept, .. } = place();
        let temporary = kept.path().join("artifacts/tmp");
        for (name, hours) in [("old", 25), ("new", 1)] {
            let file = File::create(temporary.join(name)).expect("a file");
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).expect("a time");
        }
        ArtifactStore::open(&store.dir, 1).expect("a store");
        let left: Vec<_> =
            std::fs::read_dir(temporary).expect("one").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(left, ["new"]);
    }
}
