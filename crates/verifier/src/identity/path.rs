//! The request that a statement names: method and path, compared segment by segment after percent-decoding.

/// Whether `request` is this method on this path. An expected segment is given in plain text.
pub fn fits(request: &str, method: &str, segments: &[&str]) -> bool {
    let Some((found, path)) = request.split_once(' ') else { return false };
    let path = path.split('?').next().unwrap_or_default();
    let Some(path) = path.strip_prefix('/') else { return false };
    let given: Option<Vec<String>> = path.split('/').map(decode).collect();
    found == method && given.is_some_and(|given| given.iter().map(String::as_str).eq(segments.iter().copied()))
}

pub fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_compared_after_decoding() {
        let segments = ["v1", "actors", "a/b é", "keys"];
        assert!(fits("POST /v1/actors/a%2Fb%20%C3%A9/keys", "POST", &segments));
        assert!(fits("GET /v1/ledger/export?x=/y", "GET", &["v1", "ledger", "export"]));
        for wrong in [
            "POST /v1/actors/a/b%20%C3%A9/keys",
            "GET /v1/actors/a%2Fb%20%C3%A9/keys",
            "POST v1/actors/a%2Fb%20%C3%A9/keys",
            "POST /v1/actors/%zz/keys",
            "POST /v1/actors/%f",
            "POST",
            "",
        ] {
            assert!(!fits(wrong, "POST", &segments), "{wrong}");
        }
    }
}
