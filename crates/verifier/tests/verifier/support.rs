//! A bundle under attack: read a valid one, change it, and either leave its hashes as they were or seal it anew with
//! the keys of the log and of the application actor.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_verifier::{Detail, Trust, Verdict, VerifierKey, parse_policy, verify};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;

pub const SCENARIOS: [&str; 8] =
    ["release", "quorum", "loop", "purge", "window", "run-gate", "passkey", "passkey-chromium"];

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)
}

fn sha(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn signing_key(seed: &Value) -> SigningKey {
    SigningKey::from_bytes(&unhex(seed.as_str().unwrap()).try_into().unwrap())
}

pub fn vkey(name: &str, key: &SigningKey) -> String {
    let mut bytes = vec![1];
    bytes.extend(key.verifying_key().to_bytes());
    let id = sha(&[name.as_bytes(), b"\n", &bytes].concat());
    format!("{name}+{}+{}", hex(&id[..4]), STANDARD.encode(bytes))
}

#[derive(Clone)]
pub struct Record {
    pub log_index: u64,
    pub head: Value,
    pub payload: Value,
    pub attestation: Value,
    pub salt: Vec<u8>,
    /// The line as it was, while nothing was changed.
    line: Value,
}

pub struct Bundle {
    pub files: BTreeMap<String, Vec<u8>>,
    pub manifest: Value,
    pub records: Vec<Record>,
    pub documents: Vec<Value>,
    pub state: Vec<Value>,
    pub grants: Vec<Value>,
    pub keys: Value,
    pub policy: String,
    pub log: SigningKey,
}

fn text(value: &Value) -> String {
    serde_json::to_string(value).unwrap()
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    std::str::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn unzip(bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).ok()?;
    let mut files = BTreeMap::new();
    for i in 0..archive.len() {
        let mut file = archive.by_index(i).ok()?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        files.insert(String::from_utf8_lossy(file.name_raw()).into_owned(), content);
    }
    Some(files)
}

pub fn zip_up(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(name.as_str(), zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

impl Record {
    fn read(line: Value) -> Record {
        let part = |name: &str| line[name].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
        Record {
            log_index: line["log_index"].as_u64().unwrap(),
            head: part("header"),
            payload: part("payload"),
            attestation: part("attestation"),
            salt: line["salt"].as_str().map(unhex).unwrap_or_default(),
            line,
        }
    }

    pub fn action(&self) -> &str {
        self.head["action_ref"].as_str().unwrap()
    }

    pub fn instance(&self) -> &str {
        self.head["instance_id"].as_str().unwrap()
    }

    fn hash(&self) -> [u8; 32] {
        sha(&[b"\0", text(&self.head).as_bytes()].concat())
    }

    fn part(&self, value: &Value) -> Value {
        if value.is_null() { Value::Null } else { text(value).into() }
    }

    fn commit(&mut self) {
        if self.payload.is_null() {
            return;
        }
        for (name, value) in [("payload_digest", &self.payload), ("attestation_digest", &self.attestation)] {
            self.head[name] = hex(&sha(&[self.salt.as_slice(), text(value).as_bytes()].concat())).into();
        }
    }

    /// The signed statement, as a value.
    pub fn statement(&self) -> Value {
        serde_json::from_slice(&STANDARD.decode(self.attestation["statement"].as_str().unwrap()).unwrap()).unwrap()
    }

    pub fn sign(&mut self, statement: &Value, key: &SigningKey) {
        let bytes = text(statement);
        self.attestation["signature"] = STANDARD.encode(key.sign(bytes.as_bytes()).to_bytes()).into();
        self.attestation["statement"] = STANDARD.encode(bytes).into();
    }
}

impl Bundle {
    pub fn load(name: &str) -> Bundle {
        let files = unzip(&std::fs::read(path(&format!("{name}.zip"))).unwrap()).unwrap();
        let keys: Value = serde_json::from_slice(&std::fs::read(path(&format!("{name}.keys.json"))).unwrap()).unwrap();
        Bundle {
            manifest: serde_json::from_slice(&files["bundle.json"]).unwrap(),
            records: lines(&files["records.jsonl"]).into_iter().map(Record::read).collect(),
            documents: lines(&files["documents.jsonl"]),
            state: lines(&files["state.jsonl"]),
            grants: lines(&files["grants.jsonl"]),
            policy: std::fs::read_to_string(path(&format!("{name}.policy.txt"))).unwrap(),
            log: signing_key(&keys["log"]["seed"]),
            files,
            keys,
        }
    }

    /// The record of that kind, counted from 0.
    pub fn record(&mut self, action: &str, nth: usize) -> &mut Record {
        self.records.iter_mut().filter(|r| r.action() == action && !r.payload.is_null()).nth(nth).expect(action)
    }

    pub fn guarded(&mut self, nth: usize) -> &mut Record {
        self.records.iter_mut().filter(|r| r.payload["guarded"] == true).nth(nth).expect("a guarded firing")
    }

    /// Writes parts as they are now, without making any hash anew: links, digests and proofs stay.
    pub fn naive(&mut self) -> Vec<u8> {
        let line = |record: &Record| {
            let mut line = record.line.clone();
            let salt = if record.payload.is_null() { Value::Null } else { hex(&record.salt).into() };
            line["log_index"] = record.log_index.into();
            line["header"] = text(&record.head).into();
            line["payload"] = record.part(&record.payload);
            line["attestation"] = record.part(&record.attestation);
            line["salt"] = salt;
            line
        };
        let records: Vec<Value> = self.records.iter().map(line).collect();
        self.write(&records)
    }

    fn write(&mut self, records: &[Value]) -> Vec<u8> {
        let join = |values: &[Value]| values.iter().map(|value| text(value) + "\n").collect::<String>().into_bytes();
        for (name, content) in [
            ("bundle.json", text(&self.manifest).into_bytes()),
            ("records.jsonl", join(records)),
            ("documents.jsonl", join(&self.documents)),
            ("state.jsonl", join(&self.state)),
            ("grants.jsonl", join(&self.grants)),
        ] {
            if self.files.contains_key(name) {
                self.files.insert(name.to_owned(), content);
            }
        }
        zip_up(&self.files)
    }

    /// Makes the application actor's signatures, digests, links, tree, proofs and checkpoint anew.
    pub fn sealed(&mut self) -> Vec<u8> {
        let app = signing_key(&self.keys["application"]["seed"]);
        let app_ref = self.keys["application"]["actor_ref"].clone();
        self.records.sort_by_key(|r| (r.instance().to_owned(), r.head["sequence"].as_u64()));
        let mut heads: BTreeMap<String, [u8; 32]> = BTreeMap::new();
        for record in &mut self.records {
            let known = record.attestation["key_id"].as_str().unwrap_or_default().to_owned();
            let own = hex(&sha(&app.verifying_key().to_bytes()))[..16] == *known;
            if record.head["actor_ref"] == app_ref && own {
                let mut statement = record.statement();
                statement["body_digest"] = hex(&sha(text(&record.payload).as_bytes())).into();
                record.sign(&statement, &app);
            }
            record.commit();
            let prev = heads.get(record.instance()).copied().unwrap_or([0; 32]);
            record.head["prev"] = hex(&prev).into();
            heads.insert(record.instance().to_owned(), record.hash());
        }
        let size = self.manifest["tree_size"].as_u64().unwrap();
        let mut leaves: Vec<[u8; 32]> = (0..size).map(|i| sha(&i.to_be_bytes())).collect();
        self.records.iter().for_each(|record| leaves[record.log_index as usize] = record.hash());
        let line = |record: &Record| {
            let proof: Vec<String> = inclusion(&leaves, record.log_index as usize).iter().map(|h| hex(h)).collect();
            let salt = if record.payload.is_null() { Value::Null } else { hex(&record.salt).into() };
            json!({"log_index": record.log_index, "header": text(&record.head), "payload": record.part(&record.payload),
                "attestation": record.part(&record.attestation), "salt": salt, "proof": proof})
        };
        let records: Vec<Value> = self.records.iter().map(line).collect();
        let origin = self.manifest["origin"].as_str().unwrap().to_owned();
        let note = format!("{origin}\n{size}\n{}\n", STANDARD.encode(root(&leaves)));
        let mut id = vec![1];
        id.extend(self.log.verifying_key().to_bytes());
        let mut signature = sha(&[origin.as_bytes(), b"\n", &id].concat())[..4].to_vec();
        signature.extend(self.log.sign(note.as_bytes()).to_bytes());
        let note = format!("{note}\n\u{2014} {origin} {}\n", STANDARD.encode(signature));
        self.files.insert("checkpoint".to_owned(), note.into_bytes());
        self.write(&records)
    }

    pub fn trust(&self) -> Trust {
        let origin = self.manifest["origin"].as_str().unwrap();
        Trust::of_keys(vec![VerifierKey::parse(&vkey(origin, &self.log)).unwrap()])
    }

    pub fn policy(&self) -> Trust {
        parse_policy(&self.policy).unwrap()
    }
}

fn split(n: usize) -> usize {
    let mut k = 1;
    while k * 2 < n {
        k *= 2;
    }
    k
}

fn root(leaves: &[[u8; 32]]) -> [u8; 32] {
    if let [leaf] = leaves {
        return *leaf;
    }
    let (left, right) = leaves.split_at(split(leaves.len()));
    sha(&[&[1], root(left).as_slice(), root(right).as_slice()].concat())
}

fn inclusion(leaves: &[[u8; 32]], index: usize) -> Vec<[u8; 32]> {
    if leaves.len() == 1 {
        return vec![];
    }
    let middle = split(leaves.len());
    let (left, right) = leaves.split_at(middle);
    let (mut path, sibling) = if index < middle {
        (inclusion(left, index), root(right))
    } else {
        (inclusion(right, index - middle), root(left))
    };
    path.push(sibling);
    path
}

pub fn check(bytes: &[u8], trust: &Trust) -> Verdict {
    verify(Cursor::new(bytes), trust, Detail::Report).expect("a bundle that can be opened")
}

pub fn codes(verdict: &Verdict) -> BTreeSet<&'static str> {
    verdict.findings().map(|finding| finding.code.as_str()).collect()
}
