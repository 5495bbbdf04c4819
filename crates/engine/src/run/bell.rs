//! Nodes that share a store tell each other at once that there are steps to claim. Whatever is lost on the way is found by
//! looking, which every node does now and then.
//!
//! A node rings only where steps wait in a queue in which it has fewer workers waiting than steps, and only where it has
//! heard of another node; it looks only where somebody waits with it. A node that is alone says something twice a minute.

use super::agenda::Book;
use crate::port::Bell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How often a node says that it is there; one that has said nothing for three times as long is gone.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Between two rings: those who come meanwhile share the next.
const PACE: Duration = Duration::from_millis(20);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

pub struct Ringer {
    bell: Box<dyn Bell>,
    book: Arc<Book>,
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
    /// Steps wait in this queue.
    Ready(&'w str),
}

impl Word<'_> {
    fn spoken(&self, id: &str) -> String {
        match self {
            Word::Hello => format!("{id} hello"),
            Word::Here => format!("{id} here"),
            Word::Ready(queue) => format!("{id} ready {queue}"),
        }
    }
}

/// Who said it, and what; `None` for what a newer version may say.
fn understood(text: &str) -> Option<(&str, Word<'_>)> {
    let (id, word) = text.split_once(' ')?;
    match word.split_once(' ') {
        None if word == "hello" => Some((id, Word::Hello)),
        None if word == "here" => Some((id, Word::Here)),
        Some(("ready", queue)) => Some((id, Word::Ready(queue))),
        _ => None,
    }
}

impl Ringer {
    /// `id` is this node's own.
    pub fn new(bell: Box<dyn Bell>, book: Arc<Book>, id: Uuid) -> Self {
        Ringer { bell, book, id: id.to_string(), peers: HashMap::new() }
    }

    pub async fn run(mut self) {
        self.say(&[Word::Hello.spoken(&self.id)]).await;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let book = self.book.clone();
        loop {
            tokio::select! {
                heard = self.bell.hear() => match heard {
                    Ok(text) => self.heard(&text).await,
                    Err(error) => {
                        tracing::debug!(%error, "other nodes are not heard");
                        tokio::time::sleep(PAUSE).await;
                        self.say(&[Word::Hello.spoken(&self.id)]).await;
                    }
                },
                () = book.unattended.notified() => {
                    let queues = book.take_unattended();
                    let words: Vec<String> = queues.iter().map(|queue| Word::Ready(queue).spoken(&self.id)).collect();
                    self.say(&words).await;
                    tokio::time::sleep(PACE).await;
                }
                _ = heartbeat.tick() => {
                    self.peers.retain(|_, last| last.elapsed() < 3 * HEARTBEAT);
                    self.book.set_peers(!self.peers.is_empty());
                    self.say(&[Word::Here.spoken(&self.id)]).await;
                }
            }
        }
    }

    async fn say(&mut self, words: &[String]) {
        if words.is_empty() {
            return;
        }
        if let Err(error) = self.bell.ring(words).await {
            tracing::debug!(%error, "other nodes could not be told");
        }
    }

    async fn heard(&mut self, text: &str) {
        let Some((id, word)) = understood(text) else { return };
        if id == self.id {
            return;
        }
        self.peers.insert(id.to_owned(), Instant::now());
        self.book.set_peers(true);
        match word {
            Word::Hello => self.say(&[Word::Here.spoken(&self.id)]).await,
            Word::Here => {}
            Word::Ready(queue) => {
                if self.book.is_waited_for(queue) {
                    self.book.look.notify_one();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for word in [Word::Hello, Word::Here, Word::Ready("a queue with spaces")] {
            assert_eq!(understood(&word.spoken("n-1")), Some(("n-1", word)));
        }
        for strange in ["", "n-1", "n-1 sings", "n-1 sings loudly"] {
            assert_eq!(understood(strange), None, "{strange}");
        }
    }
}
