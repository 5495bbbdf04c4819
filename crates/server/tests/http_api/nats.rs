//! Events reach a JetStream: exactly those that were committed, once each by their ids, again after failures, and never a
//! secret with them. With a real `nats-server`, on SQLite and on PostgreSQL.

use crate::replays::{APPROVER, replay};
use crate::support::Actor;
use crate::webhooks::{Logged, database, on_both, outbox, send, until, with_workflow};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PASSWORD: &str = "s3cr3t-of-the-stream";
const STREAM: &str = "EVENTS";

on_both! {
    committed_events_are_published_once,
    a_server_that_is_down_gets_them_later,
    an_acknowledgement_that_comes_too_late_makes_no_second_message,
    without_a_stream_they_are_given_up_and_can_be_tried_again,
}

/// A NATS server with what it keeps; it ends with its owner.
struct Nats {
    addr: SocketAddr,
    directory: tempfile::TempDir,
    options: Vec<String>,
    process: Option<Child>,
}

impl Nats {
    async fn start(options: &[&str]) -> Nats {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut nats = Nats {
            addr: free.local_addr().expect("an address"),
            directory: tempfile::tempdir().expect("a directory"),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            process: None,
        };
        drop(free);
        nats.resume().await;
        nats
    }

    async fn resume(&mut self) {
        // Debian puts it where not everybody looks.
        let debian = Path::new("/usr/sbin/nats-server");
        let program = if debian.exists() { debian } else { Path::new("nats-server") };
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &self.addr.port().to_string(), "-js", "-sd"]);
        command.arg(self.directory.path()).args(&self.options).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("nats-server (scripts/setup.sh nats)"));
        let addr = self.addr;
        until("NATS listens", async || tokio::net::TcpStream::connect(addr).await.is_ok()).await;
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// STOP or CONT.
    fn signal(&self, signal: &str) {
        let id = self.process.as_ref().expect("a process").id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().expect("kill").success());
    }

    async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.addr.to_string()).await.expect("a connection")
    }

    async fn ask(&self, subject: &str, body: Value) -> Value {
        let reply = self.client().await.request(subject.to_owned(), body.to_string().into()).await.expect("a reply");
        serde_json::from_slice(&reply.payload).expect("JSON")
    }

    async fn make_stream(&self) {
        let stream = json!({"name": STREAM, "subjects": ["shop.>"], "storage": "file"});
        let made = self.ask(&format!("$JS.API.STREAM.CREATE.{STREAM}"), stream).await;
        assert!(made.get("error").is_none(), "{made}");
    }

    /// What the stream holds: subject, headers, body.
    async fn messages(&self) -> Vec<(String, String, String)> {
        let info = self.ask(&format!("$JS.API.STREAM.INFO.{STREAM}"), json!({})).await;
        let mut messages = Vec::new();
        for seq in 1..=info["state"]["last_seq"].as_u64().expect("a number") {
            let message = self.ask(&format!("$JS.API.STREAM.MSG.GET.{STREAM}"), json!({"seq": seq})).await;
            let message = &message["message"];
            let text = |value: &Value| {
                let bytes = BASE64_STANDARD.decode(value.as_str().expect("text")).expect("base64");
                String::from_utf8(bytes).expect("text")
            };
            let subject = message["subject"].as_str().expect("a subject").to_owned();
            messages.push((subject, text(&message["hdrs"]), text(&message["data"])));
        }
        messages
    }

    fn sink(&self, keys: &str) -> String {
        format!("[[nats]]\nname = \"bus\"\nurl = \"nats://{}\"\nsubject = \"shop\"\n{keys}\n", self.addr)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn delivered(admin: &Actor, count: usize) -> Vec<Value> {
    until("all are delivered", async || outbox(admin, "delivered").await.len() == count).await;
    outbox(admin, "delivered").await
}

async fn committed_events_are_published_once(store: Option<String>) {
    let nats = Nats::start(&[]).await;
    nats.make_stream().await;
    let (server, admin) = with_workflow(nats.sink("types = [\"order.*\"]"), store).await;
    for _ in 0..5 {
        send(&admin, &["order.paid", "order.>", "noise"]).await;
    }
    let events = delivered(&admin, 15).await;
    let messages = nats.messages().await;
    assert_eq!(messages.len(), 10);
    let mut ids = std::collections::BTreeSet::new();
    for (subject, headers, body) in messages {
        let event: Value = serde_json::from_str(&body).expect("JSON");
        let id = event["id"].as_str().expect("an id").to_owned();
        assert!(headers.contains(&format!("Nats-Msg-Id: {id}\r\n")), "{headers}");
        assert!(headers.contains("content-type: application/cloudevents+json\r\n"), "{headers}");
        let listed = events.iter().find(|listed| listed["outbox_id"] == event["id"]).expect("listed");
        assert_eq!((&event["specversion"], &event["type"]), (&json!("1.0"), &listed["type"]));
        assert_eq!((&event["data"], &event["subject"]), (&json!({"b": 1, "a": "ü"}), &json!("PAY")));
        assert_eq!(subject, if event["type"] == "order.paid" { "shop.order.paid" } else { "shop.order._" });
        ids.insert(id);
    }
    assert_eq!(ids.len(), 10);
    let metrics = server.nobody().get("/metrics").await.text;
    assert!(metrics.contains("countersign_outbox_deliveries_total{webhook=\"bus\",result=\"delivered\"}"), "{metrics}");
}

async fn a_server_that_is_down_gets_them_later(store: Option<String>) {
    let mut nats = Nats::start(&[]).await;
    nats.make_stream().await;
    let (_server, admin) = with_workflow(nats.sink("max_attempts = 1000"), store).await;
    send(&admin, &["order.paid"]).await;
    delivered(&admin, 1).await;
    nats.stop();
    send(&admin, &["order.shipped"]).await;
    until("it was tried", async || {
        let pending = outbox(&admin, "pending").await;
        pending[0]["deliveries"][0]["attempts"].as_u64().is_some_and(|attempts| attempts >= 2)
            && pending[0]["deliveries"][0]["last_error"].as_str().is_some_and(|error| error.contains("no connection"))
    })
    .await;
    let id = outbox(&admin, "pending").await[0]["outbox_id"].as_str().expect("an id").to_owned();
    nats.resume().await;
    delivered(&admin, 2).await;
    let messages = nats.messages().await;
    assert_eq!(messages.len(), 2);
    assert!(messages[1].1.contains(&format!("Nats-Msg-Id: {id}\r\n")), "{}", messages[1].1);
}

/// The message is under way when the server stops answering; afterwards it is sent again under the same id.
async fn an_acknowledgement_that_comes_too_late_makes_no_second_message(store: Option<String>) {
    let nats = Nats::start(&[]).await;
    nats.make_stream().await;
    let (_server, admin) = with_workflow(nats.sink("timeout = \"300ms\"\nmax_attempts = 1000"), store).await;
    send(&admin, &["order.paid"]).await;
    delivered(&admin, 1).await;
    nats.signal("STOP");
    send(&admin, &["order.shipped"]).await;
    until("it was tried twice", async || {
        let pending = outbox(&admin, "pending").await;
        pending[0]["deliveries"][0]["attempts"].as_u64().is_some_and(|attempts| attempts >= 3)
    })
    .await;
    nats.signal("CONT");
    let events = delivered(&admin, 2).await;
    assert!(events.iter().any(|event| event["deliveries"][0]["attempts"].as_u64() >= Some(3)), "{events:?}");
    assert_eq!(nats.messages().await.len(), 2);
}

async fn without_a_stream_they_are_given_up_and_can_be_tried_again(store: Option<String>) {
    let nats = Nats::start(&[]).await;
    let (server, admin) = with_workflow(format!("{APPROVER}{}", nats.sink("max_attempts = 3")), store).await;
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0);
    let delivery = &dead["deliveries"][0];
    assert_eq!((&delivery["webhook"], &delivery["attempts"]), (&json!("bus"), &json!(3)));
    assert_eq!(delivery["last_error"], "given up after 3 attempts: no stream takes the subject `shop.order.paid`");
    nats.make_stream().await;
    replay(&server, &dead).await;
    delivered(&admin, 1).await;
    assert_eq!(nats.messages().await.len(), 1);
}

fn openssl(directory: &Path, arguments: &str) {
    let made = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// An authority, and what it certifies of a server on this machine.
fn certificates(directory: &Path) {
    std::fs::write(directory.join("san"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE").expect("a file");
    openssl(
        directory,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca",
    );
    openssl(
        directory,
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=nats",
    );
    openssl(
        directory,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out server.pem",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_known_by_its_certificate_and_we_by_a_password() {
    let files = tempfile::tempdir().expect("a directory");
    certificates(files.path());
    let file = |name: &str| files.path().join(name).display().to_string();
    let (certificate, key) = (file("server.pem"), file("server.key"));
    let options = ["--tls", "--tlscert", &certificate, "--tlskey", &key, "--user", "u", "--pass", PASSWORD];
    let nats = Nats::start(&options).await;
    let sink = |keys: String| nats.sink(&keys).replace("nats://", "tls://");
    std::fs::write(files.path().join("password"), format!("{PASSWORD}\n")).expect("a file");
    let right = format!("user = \"u\"\npassword_file = \"{}\"", file("password"));
    let trusted = format!("tls_ca_file = \"{}\"\nmax_attempts = 5", file("ca.pem"));
    // Nobody vouches for the server; then the password is wrong; then all is right, but for the stream.
    let cases = [
        (format!("{right}\nmax_attempts = 2"), "no connection"),
        (format!("user = \"u\"\npassword = \"another {PASSWORD}\"\n{trusted}"), "no connection"),
        (format!("{right}\n{trusted}"), "no stream takes"),
    ];
    for (keys, told) in cases {
        let (_server, admin) = with_workflow(sink(keys), None).await;
        send(&admin, &["order.paid"]).await;
        until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
        let dead = outbox(&admin, "dead").await.remove(0).to_string();
        assert!(dead.contains(told) && !dead.contains(PASSWORD), "{dead}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn no_secret_of_a_stream_is_logged() {
    // In a process of its own: what is logged where is decided per process, by whoever comes first.
    const ALONE: &str = "COUNTERSIGN_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().expect("this program"));
        let alone = alone.args(["nats::no_secret_of_a_stream_is_logged", "--exact", "--nocapture"]).env(ALONE, "1");
        let output = alone.output().expect("this program again");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let logged = Logged::default();
    let writer = logged.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(log.finish());
    for password in [PASSWORD.to_owned(), format!("{PASSWORD}-wrong")] {
        let nats = Nats::start(&["--user", "u", "--pass", PASSWORD]).await;
        let keys = format!("user = \"u\"\npassword = \"{password}\"\nmax_attempts = 3");
        let (_server, admin) = with_workflow(nats.sink(&keys), None).await;
        send(&admin, &["order.paid"]).await;
        until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    }
    let told = String::from_utf8_lossy(&logged.0.lock().expect("no panic")).into_owned();
    assert!(told.contains("not delivered, and not tried again") && told.contains("TRACE"), "{told}");
    assert!(!told.contains(PASSWORD), "{told}");
}

/// Two nodes share a database; each event is published once.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_publish_each_event_once() {
    let (nats, database) = (Nats::start(&[]).await, database().await);
    nats.make_stream().await;
    let (one, admin) = with_workflow(nats.sink(""), Some(database)).await;
    let _other = one.beside().await;
    for _ in 0..20 {
        send(&admin, &["a", "b", "c"]).await;
    }
    let events = delivered(&admin, 60).await;
    assert!(events.iter().all(|event| event["deliveries"][0]["attempts"] == 1));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(nats.messages().await.len(), 60);
}
