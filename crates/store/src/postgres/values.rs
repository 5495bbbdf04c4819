//! Values as parameters, one by one or as all rows of a statement, and rows as both databases give them.

use crate::statement::Statement;
use crate::value::{Columns, Value};
use countersign_engine::port::StoreError;
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Field, IsNull, Kind, ToSql, Type as PgType};
use uuid::Uuid;

type Encoded = Result<IsNull, Box<dyn Error + Sync + Send>>;

// Parts of an array in the binary format of PostgreSQL.
const DIMENSIONS: i32 = 1;
const HAS_NULLS: i32 = 0;
const LOWER_BOUND: i32 = 1;
/// A length that says that there is no value.
const NO_VALUE: i32 = -1;

/// The rows of one statement: an array of the row type of its table. Columns that the statement does not write are NULL in
/// it. One array costs the server half of what an array for each column does.
#[derive(Debug)]
pub struct RowSet<'a> {
    statement: &'static Statement,
    rows: Vec<Vec<Value<'a>>>,
}

impl<'a> RowSet<'a> {
    pub fn of(statement: &'static Statement, rows: Vec<Vec<Value<'a>>>) -> Self {
        RowSet { statement, rows }
    }
}

impl ToSql for RowSet<'_> {
    fn to_sql(&self, r#type: &PgType, out: &mut BytesMut) -> Encoded {
        let Kind::Array(row_type) = r#type.kind() else { return Err(format!("{type} is not an array").into()) };
        let Kind::Composite(fields) = row_type.kind() else { return Err(format!("{row_type} is not a row").into()) };
        let place = |field: &Field| self.statement.columns.iter().position(|(name, _)| *name == field.name());
        let fields: Vec<(&PgType, Option<usize>)> = fields.iter().map(|field| (field.type_(), place(field))).collect();
        let rows = i32::try_from(self.rows.len())?;
        for header in [DIMENSIONS, HAS_NULLS, row_type.oid().cast_signed(), rows, LOWER_BOUND] {
            out.extend_from_slice(&header.to_be_bytes());
        }
        for row in &self.rows {
            sized(out, |out| {
                out.extend_from_slice(&i32::try_from(fields.len())?.to_be_bytes());
                for (r#type, place) in &fields {
                    out.extend_from_slice(&r#type.oid().to_be_bytes());
                    sized(out, |out| place.map_or(Ok(IsNull::Yes), |place| row[place].to_sql(r#type, out)))?;
                }
                Ok(IsNull::No)
            })?;
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &PgType) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// Writes a value behind its length.
fn sized(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> Encoded) -> Result<(), Box<dyn Error + Sync + Send>> {
    let at = out.len();
    out.extend_from_slice(&NO_VALUE.to_be_bytes());
    let begin = out.len();
    if let IsNull::No = write(out)? {
        let length = i32::try_from(out.len() - begin)?;
        out[at..begin].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

impl ToSql for Value<'_> {
    fn to_sql(&self, r#type: &PgType, out: &mut BytesMut) -> Encoded {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(int) => int.to_sql(r#type, out),
            Value::Bool(bool) => bool.to_sql(r#type, out),
            Value::Text(text) => text.to_sql(r#type, out),
            Value::OwnText(text) => text.to_sql(r#type, out),
            Value::Bytes(bytes) => bytes.to_sql(r#type, out),
            Value::Id(id) => id.to_sql(r#type, out),
        }
    }

    fn accepts(_: &PgType) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

fn column<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, i: usize) -> Result<T, StoreError> {
    row.try_get(i).map_err(|e| StoreError::Corrupt(format!("column {i}: {e}")))
}

impl Columns for Row {
    fn int(&self, i: usize) -> Result<i64, StoreError> {
        column(self, i)
    }
    fn optional_int(&self, i: usize) -> Result<Option<i64>, StoreError> {
        column(self, i)
    }
    fn bool(&self, i: usize) -> Result<bool, StoreError> {
        column(self, i)
    }
    fn text(&self, i: usize) -> Result<String, StoreError> {
        column(self, i)
    }
    fn optional_text(&self, i: usize) -> Result<Option<String>, StoreError> {
        column(self, i)
    }
    fn bytes(&self, i: usize) -> Result<Vec<u8>, StoreError> {
        column(self, i)
    }
    fn optional_bytes(&self, i: usize) -> Result<Option<Vec<u8>>, StoreError> {
        column(self, i)
    }
    fn optional_bytes32(&self, i: usize) -> Result<Option<[u8; 32]>, StoreError> {
        let bytes: Option<&[u8]> = column(self, i)?;
        let bytes = bytes.map(TryInto::try_into).transpose();
        bytes.map_err(|_| StoreError::Corrupt(format!("column {i} is not 32 bytes long")))
    }
    fn id(&self, i: usize) -> Result<Uuid, StoreError> {
        column(self, i)
    }
    fn optional_id(&self, i: usize) -> Result<Option<Uuid>, StoreError> {
        column(self, i)
    }
}
