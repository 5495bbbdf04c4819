//! Nodes that share a store tell each other at once what moved and that there are steps to claim. Steps that are not
//! heard of are found by looking, which every node does now and then. Moves are not looked for, so none may be missed: who
//! cannot be told is told later, and on every doubt (a node is new, is gone, or could not be heard) the word is that
//! anything may have moved.
//!
//! A node says something only where it has heard of another node: steps where it has fewer workers waiting than steps, and
//! moves always. A node that is alone says something twice a minute.

use super::agenda::Book;
use crate::known::KnownRegistry;
use crate::port::{Bell, Reader};
use crate::stream::hub::Hub;
use crate::stream::moves::{Key, Moves};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc as threads};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

/// How often a node says that it is there; one that has said nothing for three times as long is gone.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Between two rings: those who come meanwhile share the next.
const PACE: Duration = Duration::from_millis(10);
/// For what is still to be said when the node stops.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

pub struct Ringer {
    bell: Box<dyn Bell>,
    book: Arc<Book>,
    hub: Arc<Hub>,
    registry: Arc<KnownRegistry>,
    reader: Arc<dyn Reader>,
    /// Everybody hears everybody, also oneself.
    id: String,
    peers: HashMap<String, Instant>,
}

/// What one node says to the others.
#[derive(Debug, PartialEq, Eq)]
enum Word<'w> {
    /// It has just come, and wants to hear who is there.
    Hello,
    Here,
    /// It stops, and has said all that it had to say.
    Bye,
    /// Steps wait in this queue.
    Ready(&'w str),
    /// This moved: see [`Moves::texts`].
    Moved(&'w str),
}

impl Word<'_> {
    fn spoken(&self, id: &str) -> String {
        match self {
            Word::Hello => format!("{id} hello"),
            Word::Here => format!("{id} here"),
            Word::Bye => format!("{id} bye"),
            Word::Ready(queue) => format!("{id} ready {queue}"),
            Word::Moved(moves) => format!("{id} moved {moves}"),
        }
    }
}

/// Who said it, and what; `None` for what a newer version may say.
fn understood(text: &str) -> Option<(&str, Word<'_>)> {
    let (id, word) = text.split_once(' ')?;
    match word.split_once(' ') {
        None if word == "hello" => Some((id, Word::Hello)),
        None if word == "here" => Some((id, Word::Here)),
        None if word == "bye" => Some((id, Word::Bye)),
        Some(("ready", queue)) => Some((id, Word::Ready(queue))),
        Some(("moved", moves)) => Some((id, Word::Moved(moves))),
        _ => None,
    }
}

/// What a node has to say about, and where it finds out what it hears of.
pub struct Told {
    pub book: Arc<Book>,
    pub hub: Arc<Hub>,
    pub registry: Arc<KnownRegistry>,
    pub reader: Arc<dyn Reader>,
}

/// A ringer at work.
pub struct Ringing {
    end: watch::Sender<()>,
    /// Says nothing, and ends with the task.
    finish: Mutex<threads::Receiver<()>>,
    task: JoinHandle<()>,
}

impl Ringing {
    /// Waits a moment for the last words. Other nodes find out by themselves what they miss, but later.
    pub fn close(self) {
        let Ringing { end, finish, task } = self;
        drop(end);
        let multi = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        if multi {
            let finish = finish.into_inner().unwrap_or_else(PoisonError::into_inner);
            // Nothing is ever sent: it ends when the task does.
            let _ = tokio::task::block_in_place(|| finish.recv_timeout(LAST_WORDS));
        }
        task.abort();
    }
}

impl Ringer {
    /// `id` is this node's own.
    pub fn new(bell: Box<dyn Bell>, told: Told, id: Uuid) -> Self {
        let Told { book, hub, registry, reader } = told;
        Ringer { bell, book, hub, registry, reader, id: id.to_string(), peers: HashMap::new() }
    }

    /// Works until `ended`; then says what it still has to say. Dropping what it returns cuts that short.
    pub fn start(self) -> Ringing {
        let (end, ended) = watch::channel(());
        let (finished, finish) = threads::channel();
        let task = tokio::spawn(async move {
            self.run(ended).await;
            drop(finished);
        });
        Ringing { end, finish: Mutex::new(finish), task }
    }

    async fn run(mut self, mut ended: watch::Receiver<()>) {
        self.say(&[Word::Hello.spoken(&self.id)]).await;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let (book, hub) = (self.book.clone(), self.hub.clone());
        let rest = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(rest);
        loop {
            let rested = rest.is_elapsed();
            tokio::select! {
                heard = self.bell.hear() => match heard {
                    Ok(text) => self.heard(&text).await,
                    Err(error) => {
                        tracing::debug!(%error, "other nodes are not heard");
                        tokio::time::sleep(PAUSE).await;
                        self.say(&[Word::Hello.spoken(&self.id)]).await;
                        // Whatever was said meanwhile is lost.
                        self.hub.heard(Moves::anything());
                    }
                },
                () = &mut rest, if !rested => {}
                () = book.unattended.notified(), if rested => {
                    self.say_ready().await;
                    rest.as_mut().reset(Instant::now() + PACE);
                }
                () = hub.departure.notified(), if rested => {
                    let pause = if self.say_moved().await { PACE } else { PAUSE };
                    rest.as_mut().reset(Instant::now() + pause);
                }
                _ = heartbeat.tick() => self.beat().await,
                _ = ended.changed() => break,
            }
        }
        if !self.peers.is_empty() && self.say_moved().await {
            self.say(&[Word::Bye.spoken(&self.id)]).await;
        }
    }

    async fn say_ready(&mut self) {
        let queues = self.book.take_unattended();
        let words: Vec<String> = queues.iter().map(|queue| Word::Ready(queue).spoken(&self.id)).collect();
        self.say(&words).await;
    }

    /// `false`: it could not be said, and is kept.
    async fn say_moved(&mut self) -> bool {
        let moves = self.hub.take_leaving();
        let words: Vec<String> = moves.texts().iter().map(|text| Word::Moved(text).spoken(&self.id)).collect();
        let said = self.say(&words).await;
        if !said {
            self.hub.put_back(moves);
        }
        said
    }

    async fn beat(&mut self) {
        let known = self.peers.len();
        self.peers.retain(|_, last| last.elapsed() < 3 * HEARTBEAT);
        if self.peers.len() < known {
            // It may have committed something and crashed before it said so.
            self.hub.heard(Moves::anything());
        }
        self.set_peers();
        self.say(&[Word::Here.spoken(&self.id)]).await;
    }

    fn set_peers(&self) {
        self.book.set_peers(!self.peers.is_empty());
        self.hub.set_peers(!self.peers.is_empty());
    }

    async fn say(&mut self, words: &[String]) -> bool {
        if words.is_empty() {
            return true;
        }
        let said = self.bell.ring(words).await;
        if let Err(error) = &said {
            tracing::debug!(%error, "other nodes could not be told");
        }
        said.is_ok()
    }

    async fn heard(&mut self, text: &str) {
        let Some((id, word)) = understood(text) else { return };
        if id == self.id {
            return;
        }
        if word == Word::Bye {
            self.peers.remove(id);
            self.set_peers();
            return;
        }
        let is_new = self.peers.insert(id.to_owned(), Instant::now()).is_none();
        if is_new {
            self.set_peers();
            // So far it was told nothing of what moved here.
            self.hub.put_back(Moves::anything());
        }
        match word {
            Word::Hello => {
                self.say(&[Word::Here.spoken(&self.id)]).await;
            }
            Word::Here | Word::Bye => {}
            Word::Ready(queue) => {
                if self.book.is_waited_for(queue) {
                    self.book.look.notify_one();
                }
            }
            Word::Moved(text) => {
                let moves = Moves::read(text).unwrap_or_else(Moves::anything);
                let of_registry = moves.sequence(&Key::Registry);
                if of_registry.is_some_and(|sequence| sequence > self.registry.read().sequence()) {
                    self.refresh_registry().await;
                }
                self.hub.heard(moves);
            }
        }
    }

    /// Grants may have been revoked: those who follow something here are to notice at once. Where this fails, the next look
    /// at the registry finds it.
    async fn refresh_registry(&mut self) {
        let known = self.registry.read().sequence();
        let refreshed = self.reader.registry_since(known).await.and_then(|delta| self.registry.absorb(delta));
        if let Err(error) = refreshed {
            tracing::debug!(%error, "the registry could not be refreshed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for word in
            [Word::Hello, Word::Here, Word::Bye, Word::Ready("a queue with spaces"), Word::Moved("[[\"r\",\"\",1]]")]
        {
            assert_eq!(understood(&word.spoken("n-1")), Some(("n-1", word)));
        }
        for strange in ["", "n-1", "n-1 sings", "n-1 sings loudly"] {
            assert_eq!(understood(strange), None, "{strange}");
        }
    }
}
