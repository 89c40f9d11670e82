//! Reads columns of rows in SQLite: words, numbers and documents.

use rusqlite::types::{FromSql, Type};
use rusqlite::{Params, Row, Transaction};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(super) type Read<T> = rusqlite::Result<T>;

/// All rows of a query.
pub(super) fn rows<T>(
    transaction: &Transaction<'_>,
    query: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Read<T>,
) -> Read<Vec<T>> {
    transaction.prepare_cached(query)?.query_map(params, read)?.collect()
}

/// Reads a column and parses it. A failure to parse is an error that names the column.
pub(super) fn parsed<S: FromSql, T, E: std::fmt::Display>(
    row: &Row<'_>,
    name: &'static str,
    parse: impl FnOnce(S) -> Result<T, E>,
) -> Read<T> {
    parse(row.get(name)?).map_err(|error| unreadable(row, name, error.to_string()))
}

pub(super) fn unreadable(row: &Row<'_>, name: &'static str, why: String) -> rusqlite::Error {
    let column = row.as_ref().column_index(name).unwrap_or_default();
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("column {name}: {why}").into())
}

pub(super) fn document<T: DeserializeOwned>(row: &Row<'_>, name: &'static str) -> Read<T> {
    parsed(row, name, |json: String| serde_json::from_str(&json))
}

pub(super) fn optional_document<T: DeserializeOwned>(row: &Row<'_>, name: &'static str) -> Read<Option<T>> {
    parsed(row, name, |json: Option<String>| json.map(|json| serde_json::from_str(&json)).transpose())
}

pub(super) fn word<T: DeserializeOwned>(row: &Row<'_>, name: &'static str) -> Read<T> {
    parsed(row, name, |word: String| serde_json::from_value(Value::String(word)))
}

pub(super) fn unsigned<T: TryFrom<i64>>(row: &Row<'_>, name: &'static str) -> Read<T> {
    parsed(row, name, |value: i64| T::try_from(value).map_err(|_| format!("{value} is out of range")))
}
