//! The end of a process's output. Everything is read, so the process never waits for us. Only the last part is kept,
//! because the result is the last line and an error is among the last lines.

use tokio::io::{AsyncRead, AsyncReadExt};

pub struct Tail {
    kept: Vec<u8>,
    cap: usize,
    total: u64,
}

impl Tail {
    pub const fn new(cap: usize) -> Self {
        Tail { kept: Vec::new(), cap, total: 0 }
    }

    /// Reads to the end. A pipe that breaks has ended.
    pub async fn drain(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.kept.extend_from_slice(bytes);
        // Now and then rather than at every read: moving a whole buffer for a few bytes would be slow.
        if self.kept.len() > 2 * self.cap {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let excess = self.kept.len().saturating_sub(self.cap);
        self.kept.drain(..excess);
    }

    /// At most as many bytes as were to be kept.
    pub fn bytes(&self) -> &[u8] {
        &self.kept[self.kept.len().saturating_sub(self.cap)..]
    }

    /// Whether the beginning was forgotten.
    pub fn is_cut(&self) -> bool {
        self.total > self.cap as u64
    }

    /// The last line that is not blank; `None` where it is longer than what is kept.
    pub fn last_line(&self) -> Option<&[u8]> {
        let bytes = self.bytes().trim_ascii_end();
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => Some(bytes[newline + 1..].trim_ascii()),
            None if self.total > bytes.len() as u64 && self.total > self.cap as u64 => None,
            None => Some(bytes.trim_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(cap: usize, pieces: &[&[u8]]) -> Tail {
        let mut tail = Tail::new(cap);
        pieces.iter().for_each(|piece| tail.push(piece));
        tail
    }

    #[test]
    fn the_end_is_kept_and_the_rest_forgotten() {
        let tail = filled(4, &[b"abcdef", b"ghijkl", b"mn"]);
        assert_eq!(tail.bytes(), b"klmn");
        assert!(tail.kept.len() <= 8);
    }

    #[test]
    fn the_last_line_is_the_last_that_is_not_blank() {
        assert_eq!(filled(100, &[b"one\ntwo\n\n  \n"]).last_line(), Some(&b"two"[..]));
        assert_eq!(filled(100, &[b""]).last_line(), Some(&b""[..]));
        assert_eq!(filled(100, &[b"one"]).last_line(), Some(&b"one"[..]));
        assert_eq!(filled(5, &[b"noise noise\n{}\n"]).last_line(), Some(&b"{}"[..]));
    }

    #[test]
    fn a_last_line_that_was_cut_is_no_line() {
        assert_eq!(filled(4, &[b"[1,2,3]\n"]).last_line(), None);
        assert_eq!(filled(4, &[b"1234"]).last_line(), Some(&b"1234"[..]));
    }
}
