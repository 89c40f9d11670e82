//! Tests that compare `pagelab list tcg-regions` with a started QEMU, which has one writable and executable mapping for
//! each region.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use common::*;
use serde_json::Value;

/// The size of a window in these tests, whatever the leaf size of this machine.
const PMD_BYTES: u64 = 2 << 20;

/// A paused QEMU, which ends with the thread that started it.
struct Paused(Child);

impl Paused {
    /// Starts QEMU, and waits until its monitor answers. By then the buffer is divided into regions.
    fn start(tb_size_mib: u64, max_cpus: u64) -> Paused {
        // If the number of processors is large, most are only declared, so that few threads are started.
        let smp = if max_cpus <= 8 { max_cpus.to_string() } else { format!("1,maxcpus={max_cpus}") };
        let accelerator = format!("tcg,thread=multi,tb-size={tb_size_mib}");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-aarch64", "-S", "-M", "virt,gic-version=3", "-m", "64M"]);
        command.args(["-display", "none", "-nodefaults", "-qmp", "stdio", "-smp", &smp, "-accel", &accelerator]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut qemu = Paused(command.spawn().expect("setpriv starts"));
        let (sender, receiver) = std::sync::mpsc::channel();
        let from = qemu.0.stdout.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(from).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        qemu.0.stdin.as_mut().unwrap().write_all(b"{\"execute\":\"qmp_capabilities\"}\n").unwrap();
        let next = || receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("QEMU answers within a minute");
        while !next().contains("\"return\"") {}
        qemu
    }

    /// Start and end of every mapping that is writable and executable.
    fn code(&self) -> Vec<(u64, u64)> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let range = |line: &str| {
            let (start, rest) = line.split_once('-')?;
            let (end, rest) = rest.split_once(' ')?;
            rest.starts_with("rwxp").then(|| (number(start), number(end)))
        };
        maps.lines().filter_map(range).collect()
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The buffers in the document of the list. Checks that all keys of the document are documented.
fn listed(bench: &Bench, options: &[&str]) -> Vec<Value> {
    let document = bench.pagelab(&[&["list", "tcg-regions", "--json"], options].concat()).ran().json();
    let buffers = document["buffers"].as_array().unwrap().clone();
    let formats = described_formats(document["schema"].as_str().unwrap());
    for key in buffers.iter().chain([&document]).flat_map(|part| part.as_object().unwrap().keys()) {
        assert!(formats.contains(&format!("`{key}`")), "{key}");
    }
    buffers
}

fn number(document: &Value, name: &str) -> u64 {
    document[name].as_u64().unwrap_or_else(|| panic!("no {name} in {document}"))
}

#[test]
fn qemu_maps_its_code_as_the_rule_says() {
    if !needs(&[program("qemu-system-aarch64"), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let buffers = listed(&bench, &["--tb-size", "30,32,128,256,1024,2048", "--smp", "1,4,8,64", "--pmd", "2M"]);
    assert_eq!(buffers.len(), 24);
    for buffer in &buffers {
        let (tb_size_mib, cpus) = (number(buffer, "tb_size_bytes") >> 20, number(buffer, "smp"));
        let found = Paused::start(tb_size_mib, cpus).code();
        let regions = number(buffer, "regions");
        let base = found[0].0;
        let expected: Vec<(u64, u64)> = (0..regions)
            .map(|region| {
                let last = region + 1 == regions;
                let usable = number(buffer, if last { "last_usable_bytes" } else { "usable_bytes" });
                let start = base + region * number(buffer, "stride_bytes");
                (start, start + usable)
            })
            .collect();
        assert_eq!(found, expected, "tb-size {tb_size_mib}, {cpus} vCPUs");
        if base.is_multiple_of(PMD_BYTES) {
            assert_eq!(free_windows(&found), number(buffer, "free_windows"), "{buffer}");
        }
    }
}

/// The number of aligned 2M windows that are completely within a mapping.
fn free_windows(mappings: &[(u64, u64)]) -> u64 {
    let free = |(start, end): &(u64, u64)| (end / PMD_BYTES).saturating_sub(start.div_ceil(PMD_BYTES));
    mappings.iter().map(free).sum()
}

/// Since Linux 6.12 the kernel aligns a mapping to 2M only if its size is a multiple of 2M.
#[test]
fn a_buffer_of_an_odd_size_is_where_the_kernel_places_it() {
    if !needs(&[program("qemu-system-aarch64"), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    for (options, starts) in [(["--tb-size", "777", "--smp", "5"], 4), (["--tb-size", "33", "--smp", "7,16"], 12)] {
        for buffer in listed(&bench, &[&options[..], &["--pmd", "2M"]].concat()) {
            let [least, most] = ["least_free_windows", "most_free_windows"].map(|name| number(&buffer, name));
            let (tb_size_mib, cpus) = (number(&buffer, "tb_size_bytes") >> 20, number(&buffer, "smp"));
            for _ in 0..starts {
                let found = Paused::start(tb_size_mib, cpus).code();
                let is_aligned = found[0].0.is_multiple_of(PMD_BYTES);
                assert!(is_aligned || buffer["placement"] == "any_page", "{:#x} in {buffer}", found[0].0);
                let free = free_windows(&found);
                assert!((least..=most).contains(&free), "{free} free windows from {:#x} on, {buffer}", found[0].0);
            }
        }
    }
}

#[test]
fn another_kernel_places_a_buffer_otherwise() {
    let bench = Bench::new();
    let of = |size: &str, kernel: &str| {
        let options = ["--tb-size", size, "--smp", "5", "--pmd", "2M", "--page", "4K", "--kernel", kernel];
        listed(&bench, &options).remove(0)
    };
    for (size, kernel, placement) in [
        ("777", "6.6", "any_page"),
        ("777", "6.8", "aligned"),
        ("777", "6.12.1-amd64", "any_page"),
        ("776", "6.6", "any_page"),
        ("776", "6.12", "aligned"),
    ] {
        let buffer = of(size, kernel);
        assert_eq!(buffer["placement"], placement, "{buffer}");
        let known = buffer["least_free_windows"] == buffer["most_free_windows"];
        assert_eq!(buffer["free_windows"].is_u64(), known, "{buffer}");
        assert!(known || placement == "any_page", "{buffer}");
    }
    let options = ["--tb-size", "33", "--smp", "7", "--pmd", "2M", "--page", "4K", "--kernel", "6.18"];
    let listed = bench.pagelab(&[&["list", "tcg-regions"], &options[..]].concat()).ran();
    listed.assert_stdout(&["0 to 1 of 15 to 16", "at a different base page in each run"]);
}

#[test]
fn the_map_is_written_as_a_picture_and_as_a_page() {
    let bench = Bench::new();
    let (svg, html) = (bench.word("map.svg"), bench.word("map.html"));
    let ran =
        bench.pagelab(&["list", "tcg-regions", "--pmd", "2M", "--page", "4K", "--svg", &svg, "--html", &html]).ran();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("1G       █1x1G") && ran.stdout.contains(" 512x2M"), "{}", ran.stdout);
    let [svg, html] = [svg, html].map(|file| std::fs::read_to_string(file).unwrap());
    assert_eq!(svg.matches("<g>").count(), 56);
    assert!(html.contains(svg.trim_end()) && svg.contains("256 of 512 windows of 2M are free"));
}

#[test]
fn refuses_impossible_buffers() {
    let bench = Bench::new();
    for (options, parts) in [
        (&["--tb-size", "0"][..], &["--tb-size", "at least 1"][..]),
        (&["--tb-size", "4096"], &["--tb-size", "at most 2G"]),
        (&["--tb-size", "1500K"], &["--tb-size", "whole MiB"]),
        (&["--smp", "0"], &["--smp", "1..=4096"]),
        (&["--smp", "8", "--max-cpus", "4"], &["--max-cpus", "at least --smp (8), found 4"]),
        (&["--rule", "9"], &["--rule", "2.11", "6.1"]),
        (&["--kernel", "six"], &["--kernel", "such as 6.6"]),
        (&["--page", "3K"], &["--page", "power of two"]),
        (&["--page", "2M", "--pmd", "2M"], &["--pmd", "more than a base page"]),
        (&["--svg", "/nonexistent/map.svg"], &["/nonexistent/map.svg cannot be written"]),
    ] {
        bench.pagelab(&[&["list", "tcg-regions"], options].concat()).ran().assert_exit(2, parts);
    }
    let aborts = listed(&bench, &["--tb-size", "1", "--smp", "256"]);
    assert!(aborts[0]["aborts"].as_str().unwrap().contains("QEMU aborts"), "{aborts:?}");
}
