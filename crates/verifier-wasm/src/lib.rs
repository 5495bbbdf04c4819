//! The offline verifier for a browser. The page gives the bundle and the trusted key, word by word, and reads the answer in the
//! same way: no pointer crosses the border, so nothing here has to be trusted about memory.

use countersign_verifier::{Detail, KeyKind, Trust, VerifierKey, bundled_key, report, verify};
use std::cell::RefCell;
use std::io::Cursor;

#[derive(Default)]
struct Desk {
    bundle: Vec<u8>,
    key: Vec<u8>,
    answer: Vec<u8>,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

/// Forgets everything that was given before.
#[allow(
    unsafe_code,
    reason = "a browser finds an export by its name, and naming a symbol is unsafe by declaration; the function is not"
)]
#[unsafe(no_mangle)]
pub extern "C" fn clear() {
    DESK.with_borrow_mut(|desk| *desk = Desk::default());
}

/// Takes the next `count` bytes (1 to 4, the lowest first) of the bundle (`which` = 0) or of the key (1).
#[allow(unsafe_code, reason = "as above")]
#[unsafe(no_mangle)]
pub extern "C" fn give(which: u32, word: u32, count: u32) {
    let bytes = word.to_le_bytes();
    let bytes = &bytes[..(count as usize).min(bytes.len())];
    DESK.with_borrow_mut(|desk| match which {
        0 => desk.bundle.extend_from_slice(bytes),
        _ => desk.key.extend_from_slice(bytes),
    });
}

/// Verifies, and says how many bytes the answer has: JSON, as `countersign-verify --json` prints it, or `{"unreadable": …}`.
#[allow(unsafe_code, reason = "as above")]
#[unsafe(no_mangle)]
pub extern "C" fn check() -> u32 {
    DESK.with_borrow_mut(|desk| {
        let bundle = std::mem::take(&mut desk.bundle);
        let answer = answer(bundle, &String::from_utf8_lossy(&desk.key));
        desk.answer =
            answer.unwrap_or_else(|problem| serde_json::json!({ "unreadable": problem }).to_string()).into_bytes();
        u32::try_from(desk.answer.len()).unwrap_or(0)
    })
}

/// The four bytes of the answer from `at` on, the lowest first.
#[allow(unsafe_code, reason = "as above")]
#[unsafe(no_mangle)]
pub extern "C" fn take(at: u32) -> u32 {
    DESK.with_borrow(|desk| {
        let from = desk.answer.get(at as usize..).unwrap_or_default();
        let mut word = [0; 4];
        word.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        u32::from_le_bytes(word)
    })
}

/// The verdict on a bundle under one trusted key of the log.
pub fn answer(bundle: Vec<u8>, key: &str) -> Result<String, String> {
    let mut trust = Trust::default();
    if key.trim().is_empty() {
        let bundled = bundled_key(Cursor::new(&bundle)).map_err(|unreadable| unreadable.0)?;
        return Ok(serde_json::json!({ "needs_key": true, "bundled_key": bundled }).to_string());
    }
    let key = VerifierKey::parse(key)?;
    if key.kind != KeyKind::Log {
        return Err("this is the key of a witness, not of a log".to_owned());
    }
    trust.log_keys.push(key);
    let verdict = verify(Cursor::new(bundle), &trust, Detail::Verdict).map_err(|unreadable| unreadable.0)?;
    report::json(&verdict).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of a page: four bytes at a time, in and out.
    fn through_the_window(bundle: &[u8], key: &str) -> serde_json::Value {
        clear();
        for (which, bytes) in [(0, bundle), (1, key.as_bytes())] {
            for chunk in bytes.chunks(4) {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                give(which, u32::from_le_bytes(word), u32::try_from(chunk.len()).expect("at most 4"));
            }
        }
        let length = check();
        let answer: Vec<u8> =
            (0..length).step_by(4).flat_map(|at| take(at).to_le_bytes()).take(length as usize).collect();
        serde_json::from_slice(&answer).expect("an answer in JSON")
    }

    #[test]
    fn what_is_no_bundle_is_unreadable() {
        let answer = through_the_window(b"no bundle", "log+00000000+AQ==");
        assert!(answer["unreadable"].is_string(), "{answer}");
        assert!(through_the_window(b"", "")["unreadable"].is_string());
    }
}
