//! What a passkey has besides its public key, as records and rows state it.

use countersign_kernel::registry::Passkey;
use serde_json::{Map, Value};

pub fn to_json(passkey: &Passkey) -> Value {
    let Passkey { algorithm, credential_id, rp_id, origin, label } = passkey;
    let members = [("algorithm", algorithm), ("credential_id", credential_id), ("rp_id", rp_id), ("origin", origin)];
    let mut object: Map<String, Value> =
        members.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value.as_str()))).collect();
    if let Some(label) = label {
        object.insert("label".to_owned(), Value::from(label.as_str()));
    }
    Value::Object(object)
}

/// `None`: the text is not that of a passkey.
pub fn parse(text: &str) -> Option<Passkey> {
    let value: Value = serde_json::from_str(text).ok()?;
    let member = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(Passkey {
        algorithm: member("algorithm")?,
        credential_id: member("credential_id")?,
        rp_id: member("rp_id")?,
        origin: member("origin")?,
        label: member("label"),
    })
}
