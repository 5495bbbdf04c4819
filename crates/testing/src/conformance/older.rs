//! A store as the first schema left it, with the rows that it has: what later migrations brought is taken away.

use crate::place::{Kind, Place};
use anyhow::ensure;

const SQLITE: &str = include_str!("../../../store/migrations/sqlite/V1__gated_processes.sql");
const POSTGRES: &str = include_str!("../../../store/migrations/postgres/V1__gated_processes.sql");

/// Not of the engine: what tells which migrations ran.
const HISTORY: &str = "refinery_schema_history";

pub async fn as_the_first_schema_left_it(place: &Place) -> anyhow::Result<()> {
    let (first, views, tables, cascade) = match place.kind {
        Kind::Sqlite => (
            SQLITE,
            "SELECT name FROM sqlite_master WHERE type = 'view'",
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
            "",
        ),
        Kind::Postgres => (
            POSTGRES,
            "SELECT viewname::text FROM pg_views WHERE schemaname = current_schema()",
            "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()",
            "CASCADE",
        ),
    };
    let kept = tables_of(first);
    ensure!(kept.len() > 10, "the first schema has more tables: {kept:?}");
    let mut sql = String::new();
    for (table, columns) in &kept {
        sql.push_str(&format!("CREATE TABLE kept_{table} AS SELECT {columns} FROM {table};\n"));
    }
    for view in place.texts(views).await? {
        sql.push_str(&format!("DROP VIEW {view};\n"));
    }
    for table in place.texts(tables).await?.iter().filter(|table| *table != HISTORY) {
        sql.push_str(&format!("DROP TABLE {table} {cascade};\n"));
    }
    sql.push_str(first);
    for (table, columns) in &kept {
        sql.push_str(&format!(
            "DELETE FROM {table}; INSERT INTO {table} ({columns}) SELECT {columns} FROM kept_{table}; DROP TABLE kept_{table};\n"
        ));
    }
    // The governance chain has a row of its own since V40.
    let registry = "SELECT instance_id FROM instances ORDER BY instance_id LIMIT 1";
    sql.push_str(&format!("DELETE FROM instances WHERE sequence = 0 AND instance_id <> ({registry});\n"));
    sql.push_str(&format!("DELETE FROM {HISTORY} WHERE version > 1;"));
    place.sql(&sql).await
}

/// The tables of a migration, each with its columns: a column is the first word of a line of its own.
fn tables_of(migration: &str) -> Vec<(&str, String)> {
    let mut tables = vec![];
    for block in migration.split("CREATE TABLE ").skip(1) {
        let mut lines = block.lines();
        let Some(table) = lines.next().and_then(|line| line.split_whitespace().next()) else { continue };
        let body = lines.take_while(|line| !line.starts_with(')'));
        let words = body.filter_map(|line| line.split_whitespace().next());
        let columns: Vec<&str> = words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
        tables.push((table, columns.join(", ")));
    }
    tables
}
