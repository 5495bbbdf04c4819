//! A witness cosigns what extends what it knows, and nothing else.

use super::*;
use countersign_ledger::merkle::{self, Subtrees, consistency_proof};
use std::convert::Infallible;

/// A log of these leaves, hashed from scratch.
struct Leaves(Vec<Digest>);

impl Subtrees for Leaves {
    type Error = Infallible;

    fn hash(&mut self, level: u32, index: u64) -> Result<Digest, Infallible> {
        let from = usize::try_from(index << level).expect("small");
        if level == 0 {
            return Ok(self.0[from]);
        }
        let (left, right) = (self.hash(level - 1, index * 2)?, self.hash(level - 1, index * 2 + 1)?);
        Ok(merkle::node_hash(&left, &right))
    }
}

struct Log {
    leaves: Leaves,
    signer: NoteSigner,
}

impl Log {
    fn new(kind: &str, size: u64) -> Log {
        let leaf = |n: u64| countersign_ledger::sha256(&[kind.as_bytes(), &n.to_be_bytes()]);
        // Both kinds share their first five entries: a fork begins after them.
        let leaves = (0..size).map(|n| if n < 5 { countersign_ledger::sha256(&[&n.to_be_bytes()]) } else { leaf(n) });
        Log { leaves: Leaves(leaves.collect()), signer: NoteSigner::log("log.example", &[1; 32]).expect("a key") }
    }

    fn note(&mut self, size: u64) -> String {
        let Ok(root) = merkle::root(&mut self.leaves, size);
        let text = Checkpoint { origin: "log.example".into(), size, root }.text();
        format!("{text}\n{}", self.signer.sign(&text, 0))
    }

    fn request(&mut self, old: u64, new: u64) -> String {
        let Ok(proof) = consistency_proof(&mut self.leaves, old, new);
        let lines: String = proof.iter().map(|hash| format!("{}\n", BASE64_STANDARD.encode(hash.0))).collect();
        format!("old {old}\n{lines}\n{}", self.note(new))
    }
}

fn options(directory: &tempfile::TempDir) -> WitnessOptions {
    let key = NoteSigner::log("log.example", &[1; 32]).expect("a key").verifier().to_string();
    let data_dir = directory.path().join("w");
    WitnessOptions { data_dir, listen: "127.0.0.1:0".into(), name: Some("w.example".into()), logs: vec![key] }
}

fn cosigned(reply: Reply) -> String {
    match reply {
        Reply::Cosigned(line) => line,
        other => panic!("not cosigned: {other:?}"),
    }
}

#[test]
fn it_cosigns_what_extends_what_it_knows_also_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut log = Log::new("a", 100);
    let mut old = 0;
    for new in [1, 2, 3, 7, 8, 8, 64, 65, 100] {
        let witness = Witness::open(&options(&directory)).expect("a witness");
        let line = cosigned(witness.add_checkpoint(&log.request(old, new), 1_700_000_000).expect("an answer"));
        let note = format!("{}{line}", log.note(new));
        assert_eq!(witness.verifier().open(&note).expect("it fits").1, Some(1_700_000_000));
        old = new;
    }
}

#[test]
fn a_rewound_or_forked_log_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let witness = Witness::open(&options(&directory)).expect("a witness");
    let (mut log, mut fork) = (Log::new("a", 40), Log::new("b", 40));
    let ask = |body: String| witness.add_checkpoint(&body, 1).expect("an answer");
    cosigned(ask(log.request(0, 20)));
    assert_eq!(ask(log.request(0, 10)), Reply::OtherSize(20), "rewound");
    assert_eq!(ask(log.request(10, 30)), Reply::OtherSize(20), "as if it had not seen 20");
    assert_eq!(ask(fork.request(20, 30)), Reply::BadProof, "another history");
    assert_eq!(ask(fork.request(20, 20)), Reply::OtherSize(20), "another root for the same size");
    assert_eq!(ask(format!("old 20\n\n{}", log.note(30))), Reply::BadProof, "no proof");
    cosigned(ask(log.request(20, 30)));
}

#[test]
fn what_is_not_the_logs_or_not_in_form_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let witness = Witness::open(&options(&directory)).expect("a witness");
    let mut log = Log::new("a", 40);
    let good = log.request(0, 10);
    let ask = |body: &str| witness.add_checkpoint(body, 1).expect("an answer");
    for body in [
        "",
        "old 0",
        "old 00\n\n",
        "old -1\n\nx",
        &good.replace("old 0", "new 0"),
        &good.replace("old 0", "old 0\nxyz"),
    ] {
        assert!(matches!(ask(body), Reply::Malformed(_)), "{body:?}");
    }
    let many = format!("old 0\n{}\n{}", format!("{}\n", BASE64_STANDARD.encode([0; 32])).repeat(64), log.note(10));
    assert!(matches!(ask(&many), Reply::Malformed(_)), "a proof longer than any");
    assert!(matches!(ask(&log.request(0, 10).replace("old 0", "old 11")), Reply::Malformed(_)));
    assert_eq!(ask(&good.replace("log.example\n10", "other.example\n10")), Reply::UnknownOrigin);
    assert_eq!(ask(&good.replace("\n10\n", "\n11\n")), Reply::NotSigned, "an edited note");
    log.signer = NoteSigner::log("log.example", &[2; 32]).expect("a key");
    assert_eq!(ask(&log.request(0, 10)), Reply::NotSigned, "another key");
    cosigned(ask(&good));
}

#[test]
fn a_damaged_memory_is_not_a_fresh_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(&directory);
    drop(Witness::open(&options).expect("a witness"));
    let path = options.data_dir.join(STATE_FILE);
    for damage in ["", "{", r#"{"name":"w.example","logs":{"l":{"size":1,"root":"x"}}}"#] {
        std::fs::write(&path, damage).expect("written");
        assert!(Witness::open(&options).is_err(), "{damage:?}");
    }
    std::fs::remove_file(&path).expect("removed");
    drop(Witness::open(&options).expect("a witness"));
    let renamed = WitnessOptions { name: Some("other".into()), ..options };
    assert!(Witness::open(&renamed).is_err(), "a witness keeps its name");
}

#[tokio::test]
async fn it_answers_as_the_protocol_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let running = start(&options(&directory)).await.expect("a witness");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut log = Log::new("a", 40);
    let post = async |body: String| {
        let answer = http.post(format!("{}/add-checkpoint", running.url())).body(body).send().await.expect("an answer");
        let kind = answer.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        (answer.status().as_u16(), kind, answer.text().await.expect("a body"))
    };
    let (status, _, line) = post(log.request(0, 10)).await;
    assert_eq!(status, 200);
    assert!(running.verifier.open(&format!("{}{line}", log.note(10))).is_ok());
    let (status, kind, size) = post(log.request(0, 12)).await;
    assert_eq!((status, kind.as_str(), size.as_str()), (409, "text/x.tlog.size", "10\n"));
    assert_eq!(post(Log::new("b", 40).request(10, 20)).await.0, 422);
    assert_eq!(post("nonsense".into()).await.0, 400);
    assert_eq!(post(log.request(10, 11).replace("log.example\n11", "x\n11")).await.0, 404);
    assert_eq!(post(log.request(10, 11).replace("\n11\n", "\n12\n")).await.0, 403);
    let key = http.get(running.url()).send().await.expect("an answer").text().await.expect("a body");
    assert_eq!(key.trim(), running.verifier.to_string());
    running.shutdown().await.expect("an orderly end");
}
