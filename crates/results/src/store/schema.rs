//! Checks that a store has exactly the schema that pagelab creates. A store that another user can write may contain triggers,
//! views and generated columns, which would run with the rights of the user who reads it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rusqlite::Connection;

/// Tables that SQLite adds when a user runs ANALYZE on the store.
const OF_SQLITE: [(&str, &str); 2] = [
    ("sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
];

/// Creates the schema of an empty store. Comments are left out: SQLite keeps the text of each statement, and the schemas of
/// stores are compared by that text.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let statements = include_str!("schema.sql").lines().map(|line| line.split("--").next().unwrap_or(line).trim_end());
    connection.execute_batch(&statements.collect::<Vec<_>>().join("\n"))
}

/// Each table, index, view and trigger of a store, by kind and name.
type Objects = BTreeMap<(String, String), Object>;

#[derive(PartialEq)]
struct Object {
    table: String,
    /// The statement that created the object; absent for the index of a key.
    sql: Option<String>,
}

/// The objects that pagelab creates.
static EXPECTED: LazyLock<Objects> = LazyLock::new(|| {
    let created = Connection::open_in_memory().and_then(|own| create(&own).and_then(|()| objects(&own)));
    created.expect("SQLite creates the tables of schema.sql in memory")
});

fn objects(connection: &Connection) -> rusqlite::Result<Objects> {
    let mut statement = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let rows = statement
        .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), Object { table: row.get(2)?, sql: row.get(3)? })))?;
    rows.collect()
}

/// The first difference between the schema of a store and pagelab's own; `None` if there is none.
pub(super) fn deviation(store: &Connection) -> rusqlite::Result<Option<String>> {
    let found = objects(store)?;
    for (key, object) in &found {
        let (kind, name) = key;
        let is_of_sqlite = OF_SQLITE.iter().any(|(own, sql)| own == name && object.sql.as_deref() == Some(sql));
        match EXPECTED.get(key) {
            Some(expected) if expected == object => {}
            Some(_) => return Ok(Some(format!("its {kind} {name} differs from the one that pagelab creates"))),
            None if is_of_sqlite => {}
            None if object.table != *name => {
                return Ok(Some(format!("it has {} {name} on {}", article(kind), object.table)));
            }
            None => return Ok(Some(format!("it has {} {name}", article(kind)))),
        }
    }
    let mut missing = EXPECTED.keys().filter(|key| !found.contains_key(*key));
    Ok(missing.next().map(|(kind, name)| format!("it lacks the {kind} {name}")))
}

fn article(kind: &str) -> String {
    if kind == "index" { "an index".to_string() } else { format!("a {kind}") }
}
