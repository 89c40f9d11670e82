//! Checks that a store has the tables that pagelab creates, and nothing else: a file that another user may write could
//! contain triggers, views and generated columns that execute arbitrary SQL on behalf of its reader.

use std::collections::BTreeMap;

use rusqlite::Transaction;

pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// Tables that SQLite creates itself: for AUTOINCREMENT, and for ANALYZE.
const OF_SQLITE: [(&str, &str); 3] = [
    ("sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)"),
    ("sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
];
/// Columns that were added later, with the version that added them and their table. They are the last columns of their
/// table, in this order.
pub(super) const LATER: &[(i64, &str, &str)] = &[
    (2, "comparisons", "prove_all INTEGER NOT NULL DEFAULT 0"),
    (3, "comparisons", "prepare TEXT"),
    (4, "comparisons", "trial_time_s REAL"),
    (4, "comparisons", "khugepaged TEXT NOT NULL DEFAULT 'as_is'"),
    (4, "arms", "role TEXT"),
    (4, "trials", "too_slow INTEGER NOT NULL DEFAULT 0"),
    (4, "verdicts", "peak_seen_bytes INTEGER"),
    (4, "verdicts", "peak_least_bytes INTEGER"),
    (4, "verdicts", "peak_most_bytes INTEGER"),
    (5, "comparisons", "fragmented TEXT"),
    (6, "arms", "variant TEXT"),
    (6, "trials", "stated TEXT"),
];

/// Tables that were added later, with the version that added them.
pub(super) const LATER_TABLES: &[(i64, &str)] =
    &[(5, "resumptions"), (5, "study_comparisons"), (5, "study_simulations")];

/// Adds what a version lacks.
pub(super) fn upgrade(transaction: &Transaction<'_>, found: i64) -> rusqlite::Result<()> {
    for (_, table, column) in LATER.iter().filter(|(since, ..)| *since > found) {
        transaction.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column}"))?;
    }
    for (_, table) in LATER_TABLES.iter().filter(|(since, _)| *since > found) {
        let begins = format!("CREATE TABLE {table} ");
        let mut own = SCHEMA.split_inclusive(';').filter_map(|statement| Some(&statement[statement.find(&begins)?..]));
        own.try_for_each(|statement| transaction.execute_batch(statement))?;
    }
    Ok(())
}

/// The objects of a store: kind and name, and the words of the statement that creates them.
type Objects = BTreeMap<(String, String), Vec<String>>;

/// A difference between the schema of a store and that of a version; `None` if there is none.
pub(super) fn deviation(transaction: &Transaction<'_>, version: i64) -> rusqlite::Result<Option<String>> {
    let expected = expected(version);
    let mut missing = expected.clone();
    let mut statement = transaction.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, name, of): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let Some(sql) = row.get::<_, Option<String>>(3)? else {
            // The index of a key has no statement.
            if kind == "index" && name.starts_with("sqlite_autoindex_") {
                continue;
            }
            return Ok(Some(format!("it has {} {name} without a statement", article(&kind))));
        };
        if OF_SQLITE.iter().any(|(own, made)| *own == name && words(made) == words(&sql)) {
            continue;
        }
        let key = (kind, name);
        missing.remove(&key);
        let (kind, name) = &key;
        match expected.get(&key) {
            Some(made) if *made == words(&sql) => {}
            Some(_) => return Ok(Some(format!("its {kind} {name} is another one than pagelab makes"))),
            None if of != *name => return Ok(Some(format!("it has {} {name} on {of}", article(kind)))),
            None => return Ok(Some(format!("it has {} {name}", article(kind)))),
        }
    }
    Ok(missing.keys().next().map(|(kind, name)| format!("it lacks the {kind} {name}")))
}

fn article(kind: &str) -> String {
    if kind == "index" { "an index".to_string() } else { format!("a {kind}") }
}

/// The objects of a store of a version.
fn expected(version: i64) -> Objects {
    let all = words(SCHEMA);
    let mut objects = Objects::new();
    for statement in all.split(|word| word == ";").filter(|statement| statement.len() > 2) {
        let mut words = statement.to_vec();
        let table = words[2].clone();
        if LATER_TABLES.iter().any(|(since, of)| *since > version && *of == table) {
            continue;
        }
        for (.., column) in LATER.iter().filter(|(since, of, _)| *since > version && *of == table) {
            let column = self::words(&format!(", {column}"));
            let at = words.windows(column.len()).position(|some| some == column);
            debug_assert!(at.is_some(), "{column:?}");
            if let Some(at) = at {
                words.drain(at..at + column.len());
            }
        }
        objects.insert((words[1].to_lowercase(), words[2].clone()), words);
    }
    objects
}

/// The words and symbols of a statement, without comments and white space: a column added by ALTER TABLE to a commented
/// statement compares equal to one created with it. A quoted text is one word, including its quotation marks.
fn words(sql: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            '\'' | '"' | '`' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            '[' => rest.find(']').map_or(rest.len(), |end| end + 1),
            _ if is_of_word(first) => rest.find(|other| !is_of_word(other)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        let is_nothing = first.is_ascii_whitespace() || word.starts_with("--") || word.starts_with("/*");
        if !is_nothing {
            words.push(word.to_string());
        }
        rest = after;
    }
    words
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_depend_on_space_and_comments() {
        let one = words("CREATE TABLE a (b INTEGER, -- it's\n c TEXT/* ' */)");
        assert_eq!(one, words("CREATE  TABLE a(b INTEGER,c TEXT)"));
        assert_eq!(one, ["CREATE", "TABLE", "a", "(", "b", "INTEGER", ",", "c", "TEXT", ")"]);
        assert_eq!(words("a'-- b'\"/*\"[--]`'"), ["a", "'-- b'", "\"/*\"", "[--]", "`'"]);
        assert_ne!(words("a - - b"), words("a -- b"));
    }

    #[test]
    fn earlier_versions_lack_their_columns() {
        let comparisons = |version| expected(version)[&("table".to_string(), "comparisons".to_string())].clone();
        let has = |version, column: &str| comparisons(version).iter().any(|word| word == column);
        assert_eq!([1, 2, 3].map(|version| has(version, "prove_all")), [false, true, true]);
        assert_eq!([1, 2, 3].map(|version| has(version, "prepare")), [false, false, true]);
        assert_eq!([3, 4, 5].map(|version| expected(version).len()), [15, 15, 18]);
    }
}
