//! Values as both databases take them, and rows as both give them.

use countersign_engine::port::StoreError;
use countersign_kernel::{Digest, Time};
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Bool(bool),
    Text(&'a str),
    /// A text that was made for this one row.
    OwnText(String),
    Bytes(&'a [u8]),
    Id(Uuid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int,
    Bool,
    Text,
    Bytes,
    Id,
}

impl<'a> Value<'a> {
    pub fn text(text: Option<&'a str>) -> Self {
        text.map_or(Value::Null, Value::Text)
    }

    /// A text as JSON.
    pub fn json(text: &str) -> Self {
        Value::OwnText(serde_json::Value::from(text).to_string())
    }

    pub fn digest(digest: &'a Digest) -> Self {
        Value::Bytes(&digest.0)
    }

    pub fn time(time: Time) -> Self {
        Value::Int(time.0)
    }

    pub fn optional_time(time: Option<Time>) -> Self {
        time.map_or(Value::Null, Value::time)
    }

    pub fn count(count: u64) -> Self {
        // Sequences stay far below 2^63; the database refuses what does not.
        Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub fn optional_id(id: Option<Uuid>) -> Self {
        id.map_or(Value::Null, Value::Id)
    }
}

/// One row of a result, whichever database it came from.
pub trait Columns {
    fn int(&self, i: usize) -> Result<i64, StoreError>;
    fn optional_int(&self, i: usize) -> Result<Option<i64>, StoreError>;
    fn bool(&self, i: usize) -> Result<bool, StoreError>;
    fn text(&self, i: usize) -> Result<String, StoreError>;
    fn optional_text(&self, i: usize) -> Result<Option<String>, StoreError>;
    fn bytes(&self, i: usize) -> Result<Vec<u8>, StoreError>;
    fn optional_bytes(&self, i: usize) -> Result<Option<Vec<u8>>, StoreError>;
    /// A digest or a salt, without a copy on the heap: a log has millions of them.
    fn optional_bytes32(&self, i: usize) -> Result<Option<[u8; 32]>, StoreError>;
    fn id(&self, i: usize) -> Result<Uuid, StoreError>;
    fn optional_id(&self, i: usize) -> Result<Option<Uuid>, StoreError>;

    fn time(&self, i: usize) -> Result<Time, StoreError> {
        self.int(i).map(Time)
    }

    fn count(&self, i: usize) -> Result<u64, StoreError> {
        u64::try_from(self.int(i)?).map_err(|_| StoreError::Corrupt(format!("column {i} is negative")))
    }

    fn digest(&self, i: usize) -> Result<Digest, StoreError> {
        let digest = self.optional_bytes32(i)?.map(Digest);
        digest.ok_or_else(|| StoreError::Corrupt(format!("column {i} is no digest")))
    }
}

/// A token of ours that must be one of a known set.
pub fn token<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    parse(text).ok_or_else(|| StoreError::Corrupt(format!("`{text}` is not a known token")))
}
