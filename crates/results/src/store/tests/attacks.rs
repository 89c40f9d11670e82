//! Tests with stores that are almost valid: bytes of the file, or values of its rows, are changed. Reading and showing
//! such a store must end with a comparison or an error. `PAGELAB_TEST_TIMES=100` tries a hundred times as many.

use testing::{Random, mutation};

use super::*;
use crate::{advice, csv, html, json, sentence, table};

/// Number of stores that one process reads, and the limits of its memory and time, far above what it needs.
const ROUND: usize = 8;
const LIMITS: [&str; 3] = ["--as=4294967296", "--cpu=200", "--core=0"];

/// Environment variable with the directory of the changed stores, for the process that reads them.
const MUTATIONS: &str = "PAGELAB_TEST_MUTATIONS";

/// Creates a store with each kind of comparison.
fn valid_store(path: &Path) -> Vec<u8> {
    let store = Store::open(path).unwrap();
    for comparison in [sample::hostile(), sample::with_controls()] {
        store.begin(&comparison).unwrap();
    }
    std::fs::read(store.close().unwrap()).unwrap()
}

/// Sets a value of a row to something that pagelab never writes there.
fn change_row(path: &Path, random: &mut Random) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    let columns =
        "SELECT tables.name, columns.name FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
                   WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%'";
    let columns: Vec<(String, String)> = {
        let mut statement = connection.prepare(columns).unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    for _ in 0..=random.below(3) {
        let (table, column) = &columns[random.below(columns.len() as u64) as usize];
        let value: Box<dyn rusqlite::ToSql> = match random.below(5) {
            0 => Box::new(random.word()),
            1 => Box::new(rusqlite::types::Null),
            2 => Box::new([f64::MAX, f64::INFINITY, -0.0, -1e300][random.below(4) as usize]),
            _ => Box::new(random.number() as i64),
        };
        let some = match random.below(3) {
            0 => String::new(),
            _ => format!("WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {})", random.below(40)),
        };
        // Keys and constraints reject some of these values.
        let _ = connection.execute(&format!("UPDATE OR IGNORE {table} SET {column} = ?1 {some}"), [value]);
    }
    drop(connection);
}

/// Reads a store completely, and renders it in every form.
fn read_and_show(path: &Path) -> Result<(), Error> {
    let Some(store) = Store::find(path, || false)? else { return Ok(()) };
    store.check()?;
    for summary in store.list()? {
        let comparison = store.load(summary.id)?;
        let _ = table::render(&comparison, 100);
        let _ = json::document(&comparison).to_string();
        let _ = html::report(&comparison);
        let _ = sentence::conclude(&comparison);
        let _ = (advice::short(&comparison), advice::attempts(&comparison));
        csv::write(&comparison, &mut std::io::sink()).unwrap();
    }
    Ok(())
}

#[test]
#[ignore = "a helper of another test"]
fn reads_changed_stores() {
    let directory = PathBuf::from(std::env::var_os(MUTATIONS).unwrap());
    let mut stores: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    stores.sort();
    for store in stores.iter().filter(|path| path.extension().is_some_and(|ending| ending == "sqlite")) {
        println!("{}", store.display());
        println!("{:?}", read_and_show(store).map_err(|error| error.to_string()));
    }
    println!("all read");
}

#[test]
fn changed_stores_end_with_a_comparison_or_an_error() {
    if !Command::new("prlimit").arg("--version").output().is_ok_and(|output| output.status.success()) {
        testing::skip("prlimit");
        return;
    }
    let mut random = Random::new();
    let valid = valid_store(&tempfile::tempdir().unwrap().path().join("valid.sqlite"));
    for _ in 0..mutation::count(1) {
        let directory = tempfile::tempdir().unwrap();
        (0..ROUND)
            .for_each(|number| change(&directory.path().join(format!("{number:02}.sqlite")), &valid, &mut random));
        let mut limited = Command::new("prlimit");
        limited.args(LIMITS).arg(std::env::current_exe().unwrap());
        limited.args(["store::tests::attacks::reads_changed_stores", "--exact", "--ignored", "--nocapture"]);
        let output = limited.env(MUTATIONS, directory.path()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        if !(output.status.success() && stdout.contains("all read")) {
            let kept = directory.keep();
            let errors = String::from_utf8_lossy(&output.stderr);
            panic!("{}: {}; the last store of these: {stdout}\n{errors}", output.status, kept.display());
        }
    }
}

/// Writes a store with changed bytes, or with changed rows.
fn change(path: &Path, valid: &[u8], random: &mut Random) {
    let mut bytes = valid.to_vec();
    let is_of_bytes = random.below(4) == 0;
    if is_of_bytes {
        random.change_bytes(&mut bytes);
    }
    std::fs::write(path, &bytes).unwrap();
    if !is_of_bytes {
        change_row(path, random);
    }
}
