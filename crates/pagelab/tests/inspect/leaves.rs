//! Tests that leaves and folios are distinguished: a leaf is what maps memory, a folio is how the memory is allocated. Memory
//! with large folios and without large leaves is not called large.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::causes::{SIZE, assert_cause_of, for_advised};
use super::provoked::{Provoked, causes};
use crate::common::{Bench, Runs};

/// Bytes that PMD leaves map at an address, by the kernel's own count.
fn mapped_by_pmd(pid: &str, address: u64) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let of_mapping = smaps.split(&format!("{address:x}-")).nth(1).unwrap();
    let line = of_mapping.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn code_whose_leaves_were_split_is_mapped_by_base_pages_and_held_in_large_folios() {
    let Some(_lease_guard) = for_advised() else { return };
    let split = Provoked::start("split_code").unwrap();
    let (bench, pid) = (&split.bench, split.pid());
    assert_eq!(mapped_by_pmd(&pid, split.address), 0);
    let region = assert_cause_of("split_code", &split, "leaf_split", SIZE, &[]);
    assert_eq!(region["could_be_larger_bytes"].as_u64(), Some(SIZE), "{region:#}");
    let row = &region["census"][0];
    assert_eq!((row["leaf_bytes"].as_u64(), row["folio_bytes"].as_u64()), (Some(4096), Some(2 << 20)), "{region:#}");
    for words in [&["inspect", &pid][..], &["inspect", &pid, "--sizes"]] {
        let ran = bench.pagelab(words).ran();
        let row = ran.stdout.lines().find(|line| line.contains("JIT code")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert!(cells.ends_with(&["16M", "by", "4K", "16M", "of", "2M"]), "{ran}");
        assert!(!ran.stdout.contains("16M by 2M"), "{ran}");
    }
    bench.pagelab(&["inspect", &pid, "--regions"]).ran().assert_stdout(&["16M by 4K (folios: 16M of 2M)"]);
    let tree = bench.pagelab(&["inspect", "--tree", &pid]).ran();
    let row: Vec<&str> = tree.stdout.lines().find(|line| line.contains("provoke")).unwrap().split("  ").collect();
    let shares: Vec<&str> = row.iter().map(|cell| cell.trim()).filter(|cell| cell.ends_with('%')).collect();
    assert_eq!(shares[0], "0 %", "no large leaf: {tree}");
    assert!(shares[1].trim_start_matches(">= ").trim_end_matches(" %").parse::<u32>().unwrap() > 80, "{tree}");
    let page = bench.word("map.html");
    assert_eq!(bench.pagelab(&["inspect", &pid, "--html", &page]).ran().code, Some(0));
    assert!(fs::read_to_string(page).unwrap().contains("<td>16M by 4K</td><td>16M of 2M</td>"));
}

#[test]
fn every_output_has_the_same_bytes_that_could_be_larger() {
    let Some(_lease_guard) = for_advised() else { return };
    let split = Provoked::start("split_code").unwrap();
    let (bench, pid) = (&split.bench, split.pid());
    let file = bench.word("pagelab.prom");
    let could = split.inspected()["could_be_larger_bytes"].as_u64().unwrap();
    let exported = |words: &[&str]| {
        let ran = bench.pagelab(&[&["inspect"], words, &["--openmetrics", &file]].concat()).ran();
        assert_eq!(ran.code, Some(0), "{ran}");
        let text = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        text
    };
    let larger = format!("pagelab_could_be_larger_bytes{{pid=\"{pid}\",name=\"provoke\"}} {could}\n");
    for words in [&[pid.as_str()][..], &["--tree", &pid], &["--all"]] {
        let text = exported(words);
        assert!(text.contains(&larger) && text.ends_with("# EOF\n"), "{words:?}: {larger} in {text}");
        let leaf =
            format!("pid=\"{pid}\",name=\"provoke\",backing=\"anonymous\",leaf_bytes=\"4096\",folio_bytes=\"2097152\"");
        assert!(text.contains(&leaf), "{words:?}: {text}");
        assert!(!text.contains(&leaf.replace("\"4096\"", "\"2097152\"")), "{words:?}: {text}");
    }

    let mut series = bench.pagelab(&["inspect", &pid, "--every", "10ms", "--json-lines"]);
    let mut watching = series.stdout(Stdio::piped()).begin();
    let mut line = String::new();
    BufReader::new(watching.stdout()).read_line(&mut line).unwrap();
    watching.kill();
    let look: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(look["could_be_larger_bytes"].as_u64(), Some(could), "{look:#}");
    let mut series = bench.pagelab(&["inspect", &pid, "--every", "10ms"]);
    let mut watching = series.stdout(Stdio::piped()).begin();
    let mut stdout = BufReader::new(watching.stdout());
    let mut lines = String::new();
    while lines.lines().count() < 3 {
        assert_ne!(stdout.read_line(&mut lines).unwrap(), 0, "{lines}");
    }
    watching.kill();
    let cells: Vec<&str> = lines.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(cells[3..5], ["100%", "0%"], "{lines}");
    assert!(cells[5].trim_end_matches('%').parse::<u32>().unwrap() > 80, "{lines}");
}

#[test]
fn text_in_anonymous_memory_is_not_called_generated_code() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    let file = bench.path("code");
    fs::write(&file, vec![7u8; SIZE as usize]).unwrap();
    let moved = Provoked::with("moved_text", Some(&file)).unwrap();
    let region = moved.region();
    assert_eq!(region["kind"], "moved_text", "{region:#}");
    assert!(region["text"].as_str().unwrap().contains(&bench.word("code")), "{region:#}");
    assert_eq!(causes(&region)[0].0, "not_advised", "{region:#}");
}
