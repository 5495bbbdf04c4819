//! The live stream as a client reads it: server-sent events, one at a time.

use crate::client::Client;
use crate::error::Error;
use crate::wire::Moved;
use std::collections::VecDeque;
use std::time::Duration;

/// The server sends something every 15 seconds; a connection that is silent for longer is lost.
const SILENCE: Duration = Duration::from_secs(45);
/// An event of ours is much shorter.
const LONGEST: usize = 1 << 20;

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    Moved(Moved),
    /// Events were lost, and the stream ends: read everything again, and connect again.
    Reload,
}

/// A stream that is open. Nothing is lost where the caller stops waiting for the next event.
pub struct EventStream {
    response: reqwest::Response,
    frames: Frames,
    events: VecDeque<StreamEvent>,
}

impl Client {
    /// Follows topics. `last_event_id` is what [`EventStream::last_event_id`] of the stream before said.
    pub async fn follow(&self, topics: &[&str], last_event_id: Option<&str>) -> Result<EventStream, Error> {
        let response = self.open_stream(&["v1", "stream"], &[("topics", topics.join(","))], last_event_id).await?;
        let last_id = last_event_id.map(str::to_owned);
        Ok(EventStream { response, frames: Frames { last_id, ..Frames::default() }, events: VecDeque::new() })
    }
}

impl EventStream {
    /// The next event; `None` where the stream has ended or its connection is lost: follow again with the last id.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let chunk = tokio::time::timeout(SILENCE, self.response.chunk()).await.ok()?.ok()??;
            self.events.extend(self.frames.take(&chunk)?);
        }
    }

    /// Where to go on after the connection was lost.
    pub fn last_event_id(&self) -> Option<&str> {
        self.frames.last_id.as_deref()
    }
}

/// Bytes on their way to events.
#[derive(Default)]
struct Frames {
    rest: Vec<u8>,
    name: String,
    data: String,
    last_id: Option<String>,
}

impl Frames {
    /// The events that end in this chunk; `None` where this is no stream of events.
    fn take(&mut self, chunk: &[u8]) -> Option<Vec<StreamEvent>> {
        self.rest.extend_from_slice(chunk);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            events.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        (self.rest.len() + self.data.len() <= LONGEST).then_some(events)
    }

    fn line(&mut self, line: &str) -> Option<StreamEvent> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
                match name.as_str() {
                    "moved" => serde_json::from_str(&data).ok().map(StreamEvent::Moved),
                    "reload" => Some(StreamEvent::Reload),
                    // What a newer version may tell.
                    _ => None,
                }
            }
            "event" => {
                value.clone_into(&mut self.name);
                None
            }
            "data" => {
                self.data.push_str(value);
                None
            }
            "id" => {
                self.last_id = Some(value.to_owned());
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text =
            b"retry: 1000\r\nevent: moved\r\ndata: {\"topic\":\"runs\"}\r\n\r\n: still here\n\nevent: new\ndata: x\n\n\
            event:moved\ndata: {\"topic\":\"run:1\",\"sequence\":7}\nid: a.7\n\nevent: reload\ndata: {}\n\n";
        let expected = [
            StreamEvent::Moved(Moved { topic: "runs".into(), sequence: None }),
            StreamEvent::Moved(Moved { topic: "run:1".into(), sequence: Some(7) }),
            StreamEvent::Reload,
        ];
        for size in [1, 7, text.len()] {
            let mut frames = Frames::default();
            let events: Vec<StreamEvent> =
                text.chunks(size).flat_map(|chunk| frames.take(chunk).expect("events")).collect();
            assert_eq!(events, expected, "{size} bytes at a time");
            assert_eq!(frames.last_id.as_deref(), Some("a.7"));
        }
        assert_eq!(Frames::default().take(&[b'x'; LONGEST + 1]), None, "what has no end is no event");
    }
}
