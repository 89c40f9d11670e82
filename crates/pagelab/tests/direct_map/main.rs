//! Tests of the kernel's direct map: its status, refused demotions, the demotion of one leaf, and arms over boots.

#[path = "../common/mod.rs"]
mod common;

mod boots;
mod demote;
mod status;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use serde_json::{Value, json};

fn status(bench: &Bench, root: &Path) -> Value {
    bench.pagelab(&["direct-map", "status", "--json", "--root", root.to_str().unwrap()]).ran().json()
}

fn state_of(document: &Value, policy: &str) -> String {
    let policies = document["policies"].as_array().unwrap();
    let row = policies.iter().find(|row| row["policy"] == policy).unwrap_or_else(|| panic!("{policy}: {document:#}"));
    row["state"].as_str().unwrap().to_string()
}

fn this_boot() -> Value {
    status(&Bench::new(), Path::new("/"))
}

fn counts_leaves() -> (&'static str, bool) {
    ("a kernel that counts its direct map in /proc/meminfo (x86)", this_boot()["source"] == "/proc/meminfo")
}

fn secret_memory() -> (&'static str, bool) {
    let features = this_boot()["features"].clone();
    let has = |feature: &Value| feature["name"] == "memfd_secret" && feature["value"] == "available";
    ("memfd_secret", features.as_array().unwrap().iter().any(has))
}
