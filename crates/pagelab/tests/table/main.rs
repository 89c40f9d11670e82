//! Tests of `pagelab table`: the output of its subcommands, round trips through images, and refused input.

#[path = "../common/mod.rs"]
mod common;

mod build;
mod check;
mod decode;
mod refused;

use std::fs;

use common::*;
use serde_json::Value;

fn table(words: &[&str]) -> Ran {
    table_in(&Bench::new(), words)
}

fn table_in(bench: &Bench, words: &[&str]) -> Ran {
    bench.pagelab(&[&["table"][..], words].concat()).ran()
}

/// The lines of the output, with one space between words instead of the alignment.
fn squeezed(ran: &Ran) -> Vec<String> {
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "wider than 100 columns: {ran}");
    let lines = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty() && !line.starts_with('─')).collect()
}

/// Every format without options, and some formats with options.
fn formats(bench: &Bench) -> Vec<String> {
    let listed = bench.pagelab(&["list", "formats", "--json"]).ran().json();
    assert_eq!(listed["schema"], "pagelab.list-formats/1");
    let names =
        listed["formats"].as_array().unwrap().iter().map(|format| format["format"].as_str().unwrap().to_string());
    let with_options = ["x86-64+phys46+no-1g", "arm64-4k-48+dbm+bbm2", "sv39+svnapot+svpbmt", "sv48-64k+svnapot"];
    names.chain(with_options.map(String::from)).collect()
}

/// Builds one mapping, and returns the path of the image, its content and its document.
fn built(bench: &Bench, format: &str, options: &[&str]) -> (String, Vec<u8>, Value) {
    let image = bench.word("image.bin");
    let words = [&["build", "-f", format, "-o", &image, "--json"][..], options].concat();
    let document = table_in(bench, &words).json();
    (image.clone(), fs::read(&image).unwrap(), document)
}

fn entry(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

fn set(image: &mut [u8], at: usize, entry: u64) {
    image[at..at + 8].copy_from_slice(&entry.to_le_bytes());
}

#[test]
fn formats_are_listed_with_their_sizes() {
    let bench = Bench::new();
    let ran = bench.pagelab(&["list", "formats"]).ran();
    squeezed(&ran);
    ran.assert_stdout(&[
        "x86-64 PML4 39, PDPT 30, PD 21, PT 12 4K 2M 1G -",
        "arm64-16k-48 L0 47, L1 36, L2 25, L3 14 16K 32M 2M 1G",
        "sv39 VPN[2] 30, VPN[1] 21, VPN[0] 12 4K 2M 1G 64K (+svnapot)",
        "sv39-64k pgd 34, pmd 25, pte 16 64K 32M 16G -",
    ]);
}

#[test]
fn a_split_has_the_counts_of_kvm_and_reports_the_savings() {
    let words = ["split", "--bytes", "1G", "--rounds", "6", "--mode", "enable", "--granule", "4k,64k"];
    let document = table(&[&words[..], &["--json"]].concat()).json();
    assert_eq!(document["schema"], "pagelab.table-split/1");
    assert_eq!(document["provenance"]["times"], "measured");
    let cases = document["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 5, "with 64K pages 1G is a block like the others: {document:#}");
    for (granule, backing, variant, expected) in [
        (4 << 10, "pages", 0, [262_657, 262_144, 0, 0]),
        (4 << 10, "pages", 1, [513, 0, 0, 0]),
        (4 << 10, "block", 0, [262_657, 262_656, 262_144, 512]),
        (4 << 10, "block", 1, [513, 512, 262_144, 512]),
        (4 << 10, "1g", 0, [262_657, 262_145, 262_656, 513]),
        (4 << 10, "1g", 1, [513, 1, 262_656, 513]),
        (4 << 10, "1g", 2, [1, 1, 262_656, 513]),
        (64 << 10, "block", 0, [16_386, 16_386, 16_384, 2]),
        (64 << 10, "block", 1, [2, 2, 16_384, 2]),
    ] {
        let case = cases.iter().find(|case| case["granule_bytes"] == granule && case["backing"] == backing).unwrap();
        let counters = &case["variants"][variant]["counters"];
        let found =
            ["entries_read", "callbacks", "entries_built", "tables"].map(|name| counters[name].as_u64().unwrap());
        assert_eq!(found, expected, "{granule} {backing} {variant}");
        let samples = case["variants"][variant]["split_s"].as_array().unwrap();
        assert_eq!(samples.len(), 6);
        assert_eq!(case["variants"][variant]["split"].is_null(), variant == 0);
    }
    let ran = table(&["split", "--bytes", "64M", "--rounds", "2", "--granule", "4k", "--chunk", "2M"]);
    squeezed(&ran);
    ran.assert_stdout(&[
        "granule 4K, 2M blocks, when the log is cleared, chunks of 2M",
        "skip-children",
        "vanilla: reading entries",
    ]);
}

/// Every key of every document is described on a page about formats in the book.
#[test]
fn every_key_is_documented() {
    fn keys(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                found.push(name.clone());
                keys(value, found);
            }),
            Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let bench = Bench::new();
    let image = bench.word("image.bin");
    let (mut found, mut formats) = (Vec::new(), String::new());
    for words in [
        &["decode", "-f", "sv39-64k", "--va", "1000", "5", "--json"][..],
        &[
            "build",
            "-f",
            "x86-64",
            "--map",
            "0x200000:0:4M",
            "--largest",
            "4K",
            "--map",
            "0x40000000:0:4K",
            "--tree",
            "-o",
            &image,
            "--json",
        ],
        &["check", &image, "-f", "arm64-4k-48", "--root", "0x80000000", "--base", "0x80000000", "--tree", "--json"],
        &["check", &image, "-f", "x86-64", "--root", "0x80000000", "--base", "0x80000000", "--tree", "--json"],
        &["split", "--bytes", "64M", "--rounds", "1", "--granule", "4k", "--mode", "enable", "--json"],
    ] {
        let document = table_in(&bench, words).json();
        formats = described_formats(document["schema"].as_str().unwrap());
        keys(&document, &mut found);
    }
    keys(&bench.pagelab(&["list", "formats", "--json"]).ran().json(), &mut found);
    let missing: Vec<&String> = found.iter().filter(|name| !formats.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
