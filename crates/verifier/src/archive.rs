//! The ZIP file: which files are in it, small ones whole, line files one line at a time. Every size is capped, so that
//! a hostile bundle costs no more memory than an honest one.

use crate::finding::{Code, Findings, Place};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;
use zip::ZipArchive;
use zip::read::ZipFile;

pub const MANIFEST: &str = "bundle.json";
pub const CHECKPOINT: &str = "checkpoint";
pub const LOG_KEY: &str = "log.vkey";
pub const RECORDS: &str = "records.jsonl";
pub const DOCUMENTS: &str = "documents.jsonl";
pub const STATE: &str = "state.jsonl";
pub const GRANTS: &str = "grants.jsonl";

/// Only where another key took over the log.
pub const ROTATIONS: &str = "rotations.jsonl";

const FILES: [&str; 7] = [MANIFEST, CHECKPOINT, LOG_KEY, RECORDS, DOCUMENTS, STATE, GRANTS];

/// A manifest, a note with all its cosignatures, a key.
const MAX_SMALL_BYTES: u64 = 1 << 20;

/// A line of records holds a payload of at most 64 KiB and a request body, both escaped.
const MAX_RECORD_LINE: u64 = 16 << 20;

/// A line of state holds all rows of one process.
const MAX_LINE: u64 = 256 << 20;

/// After so many unreadable lines nothing good can follow.
const MAX_BAD_LINES: u32 = 100;

pub struct Archive<R> {
    zip: ZipArchive<Shared<R>>,
}

/// The bundle is no ZIP file that could be opened.
#[derive(Debug)]
pub struct Unreadable(pub String);

impl<R: Read + Seek> Archive<R> {
    pub fn open(reader: R) -> Result<Self, Unreadable> {
        let shared = Shared { reader: Rc::new(RefCell::new(reader)), position: 0 };
        let zip = ZipArchive::new(shared).map_err(|e| Unreadable(format!("this is no ZIP file: {e}")))?;
        Ok(Archive { zip })
    }

    /// Exactly the files of the format, each once.
    pub fn check_files(&mut self, findings: &mut Findings) {
        let mut find = |detail: String| findings.find(Code::BundleForm, Place::bundle(), detail);
        if self.zip.has_duplicate_names() {
            find("a file appears twice in the bundle".to_owned());
        }
        if self.zip.has_overlapping_files().unwrap_or(true) {
            find("files of the bundle overlap".to_owned());
        }
        for name in FILES {
            if self.zip.index_for_name(name).is_none() {
                find(format!("the file `{name}` is missing"));
            }
        }
        for name in self.zip.file_names_raw() {
            let name = String::from_utf8_lossy(name);
            if !FILES.contains(&name.as_ref()) && name != ROTATIONS {
                find(format!(
                    "the bundle holds a file `{}` that the format does not know",
                    crate::json::shortened(&name)
                ));
            }
        }
    }

    /// A small file; None where it is missing (found before) or unreadable (found here).
    pub fn small(&mut self, name: &'static str, findings: &mut Findings) -> Option<Vec<u8>> {
        let file = self.file(name, findings)?;
        let mut bytes = Vec::new();
        let detail = match file.take(MAX_SMALL_BYTES + 1).read_to_end(&mut bytes) {
            Ok(size) if size as u64 <= MAX_SMALL_BYTES => return Some(bytes),
            Ok(_) => format!("`{name}` is larger than {MAX_SMALL_BYTES} bytes"),
            Err(e) => format!("`{name}` cannot be read: {e}"),
        };
        findings.find(Code::BundleForm, Place::bundle(), detail);
        None
    }

    /// The lines of a line file, one at a time; None where it is missing (found before) or unreadable (found here).
    pub fn lines(&mut self, name: &'static str, findings: &mut Findings) -> Option<Lines<'_, R>> {
        let most = if name == RECORDS { MAX_RECORD_LINE } else { MAX_LINE };
        let file = self.file(name, findings)?;
        Some(Lines {
            name,
            reader: BufReader::with_capacity(1 << 16, file),
            line: Vec::new(),
            most,
            bad: 0,
            ended: false,
        })
    }

    /// A second reader of the same file, so that two of the files in it can be read side by side.
    pub fn twin(&self) -> Self {
        Archive { zip: self.zip.clone() }
    }

    fn file(&mut self, name: &'static str, findings: &mut Findings) -> Option<ZipFile<'_, Shared<R>>> {
        self.zip.index_for_name(name)?;
        match self.zip.by_name(name) {
            Ok(file) => Some(file),
            Err(e) => {
                findings.find(Code::BundleForm, Place::bundle(), format!("`{name}` cannot be opened: {e}"));
                None
            }
        }
    }
}

/// A reader that several hold, each at its own place.
struct Shared<R> {
    reader: Rc<RefCell<R>>,
    position: u64,
}

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Shared { reader: self.reader.clone(), position: self.position }
    }
}

impl<R: Read + Seek> Read for Shared<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.reader.borrow_mut();
        reader.seek(SeekFrom::Start(self.position))?;
        let size = reader.read(buffer)?;
        self.position += size as u64;
        Ok(size)
    }
}

impl<R: Seek> Seek for Shared<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut reader = self.reader.borrow_mut();
        reader.seek(SeekFrom::Start(self.position))?;
        self.position = reader.seek(to)?;
        Ok(self.position)
    }
}

pub struct Lines<'a, R: Read + Seek> {
    name: &'static str,
    reader: BufReader<ZipFile<'a, Shared<R>>>,
    line: Vec<u8>,
    most: u64,
    bad: u32,
    ended: bool,
}

impl<R: Read + Seek> Lines<'_, R> {
    /// The next line without its line feed; None at the end, or where nothing more can be read.
    pub fn next(&mut self, findings: &mut Findings) -> Option<&[u8]> {
        if self.ended {
            return None;
        }
        match next_line(&mut self.reader, &mut self.line, self.most) {
            Ok(true) => Some(&self.line),
            Ok(false) => {
                self.ended = true;
                None
            }
            Err(problem) => {
                self.end(findings, &problem);
                None
            }
        }
    }

    /// The last line made no sense, and a finding says so.
    pub fn bad(&mut self, findings: &mut Findings) {
        self.bad += 1;
        if self.bad >= MAX_BAD_LINES {
            self.end(findings, &format!("reading stopped after {} unreadable lines", self.bad));
        }
    }

    fn end(&mut self, findings: &mut Findings, problem: &str) {
        self.ended = true;
        findings.find(Code::BundleForm, Place::bundle(), format!("`{}`: {problem}", self.name));
    }
}

/// False at the end of the file. A last line without line feed is a fault.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, most: u64) -> Result<bool, String> {
    line.clear();
    let size = reader.take(most + 1).read_until(b'\n', line).map_err(|e| e.to_string())?;
    match line.pop() {
        None => Ok(false),
        Some(b'\n') => Ok(true),
        Some(_) if size as u64 > most => Err(format!("a line is longer than {most} bytes")),
        Some(_) => Err("the last line does not end with a line feed".to_owned()),
    }
}
