//! Values as parameters, one by one or a column at a time, and rows as both databases give them.

use crate::statement::Statement;
use crate::value::{Columns, Type, Value};
use countersign_engine::port::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type as PgType};
use uuid::Uuid;

/// The rows of one statement.
pub struct RowSet<'a> {
    statement: &'static Statement,
    rows: Vec<Vec<Value<'a>>>,
}

/// One column of a row set, as an array parameter.
pub enum Column<'a> {
    Int(Vec<Option<i64>>),
    Bool(Vec<Option<bool>>),
    Text(Vec<Option<&'a str>>),
    Bytes(Vec<Option<&'a [u8]>>),
    Id(Vec<Option<Uuid>>),
}

impl Column<'_> {
    pub fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Column::Int(values) => values,
            Column::Bool(values) => values,
            Column::Text(values) => values,
            Column::Bytes(values) => values,
            Column::Id(values) => values,
        }
    }
}

impl<'a> RowSet<'a> {
    pub fn of(statement: &'static Statement, rows: Vec<Vec<Value<'a>>>) -> Self {
        RowSet { statement, rows }
    }

    pub fn columns(&self) -> Vec<Column<'_>> {
        self.statement.columns.iter().enumerate().map(|(i, (_, r#type))| self.column(i, *r#type)).collect()
    }

    fn column(&self, i: usize, r#type: Type) -> Column<'_> {
        let values = self.rows.iter().map(|row| &row[i]);
        match r#type {
            Type::Int => Column::Int(values.map(|v| if let Value::Int(int) = v { Some(*int) } else { None }).collect()),
            Type::Bool => {
                Column::Bool(values.map(|v| if let Value::Bool(bool) = v { Some(*bool) } else { None }).collect())
            }
            Type::Text => Column::Text(values.map(text).collect()),
            Type::Bytes => {
                Column::Bytes(values.map(|v| if let Value::Bytes(bytes) = v { Some(*bytes) } else { None }).collect())
            }
            Type::Id => Column::Id(values.map(|v| if let Value::Id(id) = v { Some(*id) } else { None }).collect()),
        }
    }
}

fn text<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::Text(text) => Some(text),
        Value::OwnText(text) => Some(text),
        _ => None,
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        r#type: &PgType,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(tokio_postgres::types::IsNull::Yes),
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
