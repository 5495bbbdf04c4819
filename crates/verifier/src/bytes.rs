//! Digests and ids: the small fixed-size values that everything is keyed by.

use sha2::{Digest as _, Sha256};
use std::fmt;

/// The instance id of the registry.
pub const REGISTRY: Id = Id([0; 16]);
/// The governance chain (`spec/governance.md`).
pub const GOVERNANCE: Id = Id([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

/// A UUID in lower-case hyphenated form. Its order is that of the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub [u8; 16]);

pub fn sha256(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Digest(hasher.finalize().into())
}

impl Digest {
    pub const ZERO: Digest = Digest([0; 32]);

    /// 64 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Digest> {
        from_hex(text).map(Digest)
    }

    /// Half of it: enough to tell statements and texts apart in memory.
    pub fn short(&self) -> [u8; 16] {
        let mut short = [0; 16];
        short.iter_mut().zip(self.0).for_each(|(to, from)| *to = from);
        short
    }
}

impl Id {
    pub fn parse(text: &str) -> Option<Id> {
        let bytes = text.as_bytes();
        let hyphens = [8, 13, 18, 23];
        if bytes.len() != 36 || hyphens.iter().any(|at| bytes.get(*at) != Some(&b'-')) {
            return None;
        }
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        from_hex(&digits).map(Id)
    }

    pub fn is_version_7(&self) -> bool {
        let [.., version, _, variant, _, _, _, _, _, _, _] = self.0;
        version >> 4 == 7 && variant >> 6 == 0b10
    }
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// The 32 bytes of a salt or of anything else written as 64 hex digits.
pub fn bytes32(text: &str) -> Option<[u8; 32]> {
    from_hex(text)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = hex(&self.0);
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        write!(f, "{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_written_in_one_form() {
        let text = "0192f0c1-2345-7abc-8def-0123456789ab";
        let id = Id::parse(text).expect("an id");
        assert_eq!(id.to_string(), text);
        assert!(id.is_version_7());
        assert!(!REGISTRY.is_version_7());
        for wrong in ["", "0192F0C1-2345-7abc-8def-0123456789ab", "0192f0c123457abc8def0123456789ab", "é"] {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Digest::parse(&"0".repeat(64)), Some(Digest::ZERO));
        assert_eq!(Digest::parse(&"A".repeat(64)), None);
    }
}
