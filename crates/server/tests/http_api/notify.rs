//! Notifications say that a gate waits, that a step is overdue, that a run stopped: by mail over a real SMTP conversation, and
//! by a webhook. On SQLite and on PostgreSQL.

use crate::replays::{APPROVER, replay};
use crate::support::{Actor, Server};
use crate::webhooks::{PACE, Receiver, on_both, outbox, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "s3cr3t-of-the-notice";
const CONSOLE: &str = "[console]\norigin = \"https://console.example\"\n";

on_both! {
    people_are_told_by_mail_and_programs_by_a_webhook,
    a_mail_server_that_is_busy_gets_the_same_mail_later,
    a_refused_mail_is_given_up_and_can_be_tried_again,
    no_mail_and_no_password_leave_without_encryption,
    notices_reach_no_private_address_unless_allowed,
}

pub async fn database() -> String {
    crate::webhooks::database().await
}

/// Who a mail was for, and its text.
type Mail = (Vec<String>, String);

/// A mail server, as far as one conversation needs it.
#[derive(Clone)]
struct MailServer {
    addr: SocketAddr,
    /// Everything that clients said, line by line.
    said: Arc<Mutex<Vec<String>>>,
    mails: Arc<Mutex<Vec<Mail>>>,
    /// The answer to MAIL FROM.
    answer: Arc<Mutex<&'static str>>,
}

impl MailServer {
    async fn start() -> MailServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let server = MailServer {
            addr: listener.local_addr().expect("an address"),
            said: Arc::default(),
            mails: Arc::default(),
            answer: Arc::new(Mutex::new("250 OK")),
        };
        let one = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let one = one.clone();
                tokio::spawn(async move { one.converse(stream).await });
            }
        });
        server
    }

    async fn converse(self, stream: TcpStream) -> Option<()> {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        write.write_all(b"220 mail.example ESMTP\r\n").await.ok()?;
        let (mut to, mut text) = (vec![], None::<String>);
        while let Some(line) = lines.next_line().await.ok()? {
            if let Some(so_far) = &mut text {
                if line == "." {
                    let mail = (std::mem::take(&mut to), text.take().unwrap_or_default());
                    self.mails.lock().expect("no panic").push(mail);
                    write.write_all(b"250 kept\r\n").await.ok()?;
                } else {
                    so_far.push_str(&line);
                    so_far.push('\n');
                }
                continue;
            }
            self.said.lock().expect("no panic").push(line.clone());
            let word = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let answer = match word.as_str() {
                "EHLO" => "250-mail.example\r\n250 8BITMIME".to_owned(),
                "MAIL" => (*self.answer.lock().expect("no panic")).to_owned(),
                "RCPT" => {
                    to.push(line.split(['<', '>']).nth(1).unwrap_or_default().to_owned());
                    "250 OK".to_owned()
                }
                "DATA" => {
                    text = Some(String::new());
                    "354 go on".to_owned()
                }
                "QUIT" => "221 bye".to_owned(),
                _ => "502 what".to_owned(),
            };
            write.write_all(format!("{answer}\r\n").as_bytes()).await.ok()?;
        }
        Some(())
    }

    fn mails(&self) -> Vec<Mail> {
        self.mails.lock().expect("no panic").clone()
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().expect("no panic").clone()
    }

    fn answers(&self, answer: &'static str) {
        *self.answer.lock().expect("no panic") = answer;
    }

    /// Its section of a configuration.
    fn section(&self, scheme: &str, keys: &str) -> String {
        format!(
            "{CONSOLE}[[notify]]\nname = \"mail\"\nsmtp = \"{scheme}://127.0.0.1:{}\"\nfrom = \"Countersign <c@example.org>\"\n{keys}\n",
            self.addr.port()
        )
    }
}

const PAPER: &str = "kind: process\nname: paper\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\ntransitions:\n\
    - {from: a, action: end, to: b, guard: board}\ngate_spec:\n  \
    board: {approvers: [ann, ben], quorum: {rule: one-of-n}, scope: s}\n";
const WORK: &str =
    "kind: workflow\nname: work\norder: linear\nsteps:\n  - {name: look, run: human, pic: kim, deadline: 1s}\n";
const NO_HURRY: &str =
    "kind: workflow\nname: no-hurry\norder: linear\nsteps:\n  - {name: look, run: human, pic: kim}\n";

/// A server where `paper` and `work` are published.
async fn server(config: String, store: Option<String>) -> (Server, Actor) {
    let server = Server::with(Some(config), store, PACE).await;
    for actor in ["ann", "ben"] {
        server.actor(actor, &[]).await;
    }
    let admin = server.admin();
    for document in [PAPER, WORK, NO_HURRY] {
        admin.post_bytes("/v1/definitions", document).await.created();
    }
    (server, admin)
}

/// A process whose gate waits.
async fn open_gate(admin: &Actor) -> String {
    let body = json!({"definition": "paper", "subject_ref": "secret-subject", "reason": "secret-reason"});
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    admin.open_gate(&id, "end").await.created();
    id
}

fn header<'m>(mail: &'m str, name: &str) -> &'m str {
    let line = mail.lines().find(|line| line.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase()));
    line.and_then(|line| line.split_once(": ")).map(|(_, value)| value).unwrap_or_default()
}

async fn people_are_told_by_mail_and_programs_by_a_webhook(store: Option<String>) {
    let (mail, program) = (MailServer::start().await, Receiver::start().await);
    let keys = "to = [\"ops@example.org\"]\npeople = {ann = \"Ann <ann@example.org>\", ben = \"ops@example.org\", kim = \"kim@example.org\"}";
    let hook = format!(
        "[[notify]]\nname = \"program\"\nurl = \"http://{}/in?key=k\"\nsecret = \"{SECRET}\"\nallow_private = true\n\
         on = [\"gate-waits\"]\n",
        program.addr
    );
    let (server, admin) = server(mail.section("smtp+plain", keys) + &hook, store).await;
    let kim = server.actor("kim", &["tasks:work"]).await;
    open_gate(&admin).await;
    let start = async |definition: &str| {
        let body = json!({"definition": definition, "input": {"card": "secret-input"}});
        admin.post("/v1/runs", body).await.created()["run_id"].as_str().expect("an id").to_owned()
    };
    let (late, stopped) = (start("work").await, start("no-hurry").await);
    admin.post(&format!("/v1/runs/{stopped}/stop"), json!({"reason": "secret-reason"})).await.ok();
    until("all mails", async || mail.mails().len() == 3).await;
    // Claimed late, the step is overdue for the same deadline a second time: an event, and no second mail.
    kim.post(&format!("/v1/runs/{late}/steps/look/claim"), json!({})).await.ok();
    let overdue = async || {
        let events = outbox(&admin, "delivered").await;
        events.iter().filter(|event| event["type"] == "step.overdue").count()
    };
    until("the step is overdue again", async || overdue().await == 2).await;
    until("nothing is on its way", async || outbox(&admin, "pending").await.is_empty()).await;
    let mails = mail.mails();
    assert_eq!(mails.len(), 3, "each once: {mails:?}");
    let of = |title: &str| mails.iter().find(|(_, mail)| header(mail, "Subject").starts_with(title)).expect(title);
    let (to, gate) = of("A gate waits for you: end of paper@1");
    assert_eq!(to, &["ann@example.org", "ops@example.org"], "an address that two have gets one mail");
    assert!(gate.contains("https://console.example/inbox") && gate.contains("ann, ben"), "{gate}");
    let (to, overdue) = of("Overdue: look");
    assert_eq!(to, &["kim@example.org", "ops@example.org"]);
    assert!(overdue.contains(&format!("https://console.example/runs/{late}")), "{overdue}");
    let (to, stop) = of("Stopped: run ");
    assert_eq!(to, &["ops@example.org"]);
    assert!(stop.contains(&format!("https://console.example/runs/{stopped}")), "{stop}");
    let events = outbox(&admin, "delivered").await;
    for (_, mail) in &mails {
        assert_eq!(header(mail, "From"), "Countersign <c@example.org>");
        assert_eq!(header(mail, "Auto-Submitted"), "auto-generated");
        let id = header(mail, "Message-ID").trim_matches(['<', '>']).trim_end_matches("@console.example").to_owned();
        assert!(events.iter().any(|event| event["outbox_id"] == id.as_str()), "{id}: the mail has the event's id");
        assert!(!mail.contains("secret-"), "what only readers may know: {mail}");
    }
    let got = program.got();
    assert_eq!(got.len(), 1, "{got:?}");
    let (headers, body) = &got[0];
    let event: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&event["type"], &event["data"]["people"]), (&json!("notify.gate-waits"), &json!(["ann", "ben"])));
    assert_eq!(event["data"]["link"], "https://console.example/inbox");
    assert!(headers["countersign-signature"].to_str().expect("text").starts_with("t="));
    assert_eq!(headers["idempotency-key"].to_str().expect("text"), event["id"].as_str().expect("an id"));
    assert!(!body.contains("secret-") && !body.contains(SECRET), "{body}");
}

async fn a_mail_server_that_is_busy_gets_the_same_mail_later(store: Option<String>) {
    let mail = MailServer::start().await;
    mail.answers("451 come back later");
    let (_server, admin) = server(mail.section("smtp+plain", "people = {ann = \"ann@example.org\"}"), store).await;
    open_gate(&admin).await;
    let tries = || mail.said().iter().filter(|line| line.starts_with("MAIL")).count();
    until("it was tried twice", async || tries() >= 2).await;
    let waiting = outbox(&admin, "pending").await;
    let error = waiting[0]["deliveries"][0]["last_error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("451"), "{waiting:?}");
    mail.answers("250 OK");
    until("it is delivered", async || outbox(&admin, "pending").await.is_empty()).await;
    let mails = mail.mails();
    assert_eq!((mails.len(), mails[0].0.as_slice()), (1, &["ann@example.org".to_owned()][..]), "{mails:?}");
}

async fn a_refused_mail_is_given_up_and_can_be_tried_again(store: Option<String>) {
    let mail = MailServer::start().await;
    mail.answers("550 no such sender");
    let (served, admin) = server(
        format!("{APPROVER}{}", mail.section("smtp+plain", "to = [\"ops@example.org\"]\non = [\"gate-waits\"]")),
        store,
    )
    .await;
    open_gate(&admin).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await;
    assert_eq!(
        (&dead[0]["type"], &dead[0]["deliveries"][0]["attempts"]),
        (&json!("gate.opened"), &json!(1)),
        "{dead:?}"
    );
    let id = dead[0]["outbox_id"].as_str().expect("an id").to_owned();
    mail.answers("250 OK");
    replay(&served, &dead[0]).await;
    // The request has a gate that waits, too.
    let arrived = || mail.mails().iter().any(|(_, text)| text.contains(&format!("<{id}@console.example>")));
    until("it is delivered", async || arrived()).await;
}

async fn no_mail_and_no_password_leave_without_encryption(store: Option<String>) {
    let mail = MailServer::start().await;
    let keys = format!("to = [\"ops@example.org\"]\nuser = \"countersign\"\npassword = \"{SECRET}\"");
    let (_server, admin) = server(mail.section("smtp", &keys), store).await;
    open_gate(&admin).await;
    let failed = async || {
        let waiting = outbox(&admin, "pending").await;
        waiting.first().is_some_and(|event| event["deliveries"][0]["last_error"].is_string())
    };
    until("the server offers no STARTTLS", failed).await;
    let said = mail.said();
    assert!(said.iter().all(|line| line.starts_with("EHLO") || line.starts_with("QUIT")), "{said:?}");
    assert!(mail.mails().is_empty());
    let told = outbox(&admin, "pending").await;
    assert!(!format!("{told:?}").contains(SECRET), "{told:?}");
}

async fn notices_reach_no_private_address_unless_allowed(store: Option<String>) {
    let program = Receiver::start().await;
    let hook = format!(
        "{CONSOLE}[[notify]]\nname = \"program\"\nurl = \"http://{}/in\"\nsecret = \"{SECRET}\"\nmax_attempts = 1\n",
        program.addr
    );
    let (_server, admin) = server(hook, store).await;
    open_gate(&admin).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    assert!(program.got().is_empty(), "{:?}", program.got());
}
