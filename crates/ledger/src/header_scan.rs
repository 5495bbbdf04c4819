//! Reads headers in our own form (`spec/record.md`, section 2: members in one order, no white space) without a JSON
//! parser, because verifying a whole log reads millions. For any other header this module gives no answer: serde then
//! reads or refuses it. So there is one definition of a header, and a test compares the two readers.

use crate::record::{HeaderView, RetentionView};
use std::borrow::Cow;

/// The header, if it has exactly the specified form and no character of it is escaped.
pub fn scan(bytes: &[u8]) -> Option<HeaderView<'_>> {
    // Looked for everywhere at once: what is left of a string is then the characters up to the next quotation mark.
    if bytes.iter().fold(false, |found, byte| found | (*byte < 0x20) | (*byte == b'\\')) {
        return None;
    }
    let mut rest = Rest(std::str::from_utf8(bytes).ok()?);
    rest.skip(r#"{"v":1,"event_id":"#)?;
    let event_id = rest.string()?;
    rest.skip(r#","instance_id":"#)?;
    let instance_id = rest.string()?;
    rest.skip(r#","sequence":"#)?;
    let sequence = rest.number()?;
    rest.skip(r#","prev":"#)?;
    let prev = rest.string()?;
    rest.skip(r#","action_ref":"#)?;
    let action_ref = rest.string()?;
    rest.skip(r#","actor_ref":"#)?;
    let actor_ref = rest.string()?;
    rest.skip(r#","recorded_at_us":"#)?;
    let recorded_at_us = rest.time()?;
    rest.skip(r#","registry_seq":"#)?;
    let registry_seq = rest.number()?;
    rest.skip(r#","assurance":"#)?;
    let assurance = rest.string()?;
    rest.skip(r#","retention":{"policy_ref":"#)?;
    let policy_ref = rest.string()?;
    rest.skip(r#","retention_until_us":"#)?;
    let retention_until_us = rest.optional_time()?;
    rest.skip(r#","purge_deadline_us":"#)?;
    let purge_deadline_us = rest.optional_time()?;
    rest.skip(r#"},"payload_digest":"#)?;
    let payload_digest = rest.string()?;
    rest.skip(r#","attestation_digest":"#)?;
    let attestation_digest = rest.string()?;
    let retention = RetentionView { policy_ref, retention_until_us, purge_deadline_us };
    (rest.0 == "}").then_some(HeaderView {
        v: 1,
        event_id,
        instance_id,
        sequence,
        prev,
        action_ref,
        actor_ref,
        recorded_at_us,
        registry_seq,
        assurance,
        retention,
        payload_digest,
        attestation_digest,
    })
}

/// What has not been read yet.
struct Rest<'h>(&'h str);

impl<'h> Rest<'h> {
    fn skip(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn string(&mut self) -> Option<Cow<'h, str>> {
        let (string, rest) = self.0.strip_prefix('"')?.split_once('"')?;
        self.0 = rest;
        Some(Cow::Borrowed(string))
    }

    /// Digits without a sign; a zero leads nothing but itself.
    fn number(&mut self) -> Option<u64> {
        let length = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at_checked(length)?;
        if length > 1 && digits.starts_with('0') {
            return None;
        }
        self.0 = rest;
        digits.parse().ok()
    }

    fn time(&mut self) -> Option<i64> {
        // Before 1970 is not wrong, only rare.
        self.number().and_then(|time| i64::try_from(time).ok())
    }

    fn optional_time(&mut self) -> Option<Option<i64>> {
        if self.skip("null").is_some() {
            return Some(None);
        }
        self.time().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Attestation, Draft, Retention};
    use crate::{ZERO_HASH, record::HeaderView};
    use countersign_kernel::{IdSource, Time};

    fn header(actor_ref: &str, recorded_at: Time, retention_until: Option<Time>) -> Vec<u8> {
        let draft = Draft {
            event_id: IdSource::new(Time(1_000_000), 5).make(),
            instance_id: IdSource::new(Time(1), 1).make(),
            sequence: 10,
            prev: ZERO_HASH,
            action_ref: "transition_fired",
            actor_ref,
            recorded_at,
            registry_seq: 0,
            retention: Retention { policy_ref: "sox_7_year", retention_until, purge_deadline: None },
            attestation: Attestation::Server { credential_id: None },
            payload: br#"{"action":"release"}"#.to_vec(),
            salt: [7; 32],
        };
        draft.into_record().unwrap().header
    }

    fn by_serde(bytes: &[u8]) -> Option<HeaderView<'_>> {
        serde_json::from_slice(bytes).ok()
    }

    #[test]
    fn what_we_write_is_scanned_unless_it_is_escaped_or_before_1970() {
        for (actor_ref, at, scanned) in
            [("qa", Time(1), true), ("Zoë", Time(i64::MAX), true), ("q\"a", Time(1), false), ("qa", Time(-1), false)]
        {
            for until in [None, Some(Time(0)), Some(Time(17))] {
                let header = header(actor_ref, at, until);
                assert!(by_serde(&header).is_some());
                assert_eq!(scan(&header), by_serde(&header).filter(|_| scanned), "{actor_ref} {at:?}");
                assert_eq!(HeaderView::parse(&header).ok(), by_serde(&header));
            }
        }
    }

    /// Whatever is changed, cut, doubled or put in: what the scan takes, serde takes in the same sense.
    #[test]
    fn the_scan_never_says_what_serde_does_not() {
        let header = header("qa", Time(1_700_000_000_000_000), Some(Time(2)));
        let agree = |bytes: &[u8]| {
            if let Some(scanned) = scan(bytes) {
                assert_eq!(Some(scanned), by_serde(bytes), "{}", String::from_utf8_lossy(bytes));
            }
        };
        let put = b"\"\\{}[],:0123456789-+.eEnulaft \n\0\x1f\x7f\x80\xc3\xff";
        for at in 0..header.len() {
            agree(&header[..at]);
            for byte in put {
                let mut changed = header.clone();
                changed[at] = *byte;
                agree(&changed);
                changed.insert(at, header[at]);
                agree(&changed);
            }
            let mut cut = header.clone();
            cut.remove(at);
            agree(&cut);
        }
        for number in [
            "18446744073709551615",
            "18446744073709551616",
            "9223372036854775808",
            "00",
            "01",
            "-0",
            "-1",
            "1.0",
            "1e1",
            "",
        ] {
            let text = String::from_utf8(header.clone()).unwrap();
            for member in [
                "\"sequence\":10",
                "\"recorded_at_us\":1700000000000000",
                "\"registry_seq\":0",
                "\"retention_until_us\":2",
            ] {
                let name = member.split_once(':').unwrap().0;
                assert!(text.contains(member));
                agree(text.replace(member, &format!("{name}:{number}")).as_bytes());
            }
        }
    }
}
