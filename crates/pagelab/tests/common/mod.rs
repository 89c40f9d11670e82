//! Helpers for the tests of the whole program: a directory with the program for each test, runs of commands, and the
//! host's settings.
#![allow(dead_code, unused_imports, reason = "every test program uses a part of it")]

mod bench;
mod c_programs;
mod needs;
mod processes;
mod runs;
mod settings;

use std::time::Duration;

use serde_json::Value;

pub use bench::*;
pub use c_programs::*;
pub use needs::*;
pub use processes::*;
pub use runs::*;
pub use settings::*;

/// The timeout for an event that must happen, on the slowest machine and while other processes hold the lease. If it takes longer,
/// something hangs. No test checks that something takes less time.
pub const LIMIT: Duration = Duration::from_secs(900);

/// The text of the pages of the book that describe files and documents. The title of one of these pages must contain
/// `schema`.
pub fn described_formats(schema: &str) -> String {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/formats");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let title = format!("`{schema}`");
    assert!(pages.iter().any(|page| page.lines().next().is_some_and(|line| line.contains(&title))), "{schema}");
    pages.concat()
}

/// The arm of a policy in a document.
pub fn arm<'a>(document: &'a Value, label: &str) -> &'a Value {
    let arms = document["arms"].as_array().unwrap_or_else(|| panic!("no arms in {document:#}"));
    arms.iter().find(|arm| arm["label"] == label).unwrap_or_else(|| panic!("no arm {label} in {document:#}"))
}

/// The value of a metric of a trial.
pub fn observed(trial: &Value, metric: &str) -> Option<f64> {
    trial["observations"].as_array().unwrap().iter().find(|one| one["metric"] == metric)?["value"].as_f64()
}

pub fn words_of(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

pub fn shell(text: &str) -> Vec<String> {
    words_of(&["sh", "-c", text])
}
