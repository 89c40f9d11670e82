//! `pagelab table`: what its subcommands print, round trips through images, and what they refuse.

#[path = "../common/mod.rs"]
mod common;

use std::fs;

use common::*;
use serde_json::Value;

fn table(words: &[&str]) -> Ran {
    table_in(&Bench::new(), words)
}

fn table_in(bench: &Bench, words: &[&str]) -> Ran {
    bench.pagelab(&[&["table"][..], words].concat()).ran()
}

/// The text without what aligns it: one space between words.
fn squeezed(ran: &Ran) -> Vec<String> {
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "wider than 100 columns: {ran}");
    let lines = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty() && !line.starts_with('─')).collect()
}

#[test]
fn an_x86_page_is_decoded_field_by_field() {
    let decoded = squeezed(&table(&["decode", "--format", "x86-64+phys46", "--level", "PD", "80000001402000e7"]));
    assert_eq!(
        decoded,
        [
            "0x80000001402000e7 as an entry of PD (pmd)",
            "maps 2M at 0x140200000: read and write, not executable, user, accessed, dirty, PAT index 0",
            "bits field value meaning",
            "63 XD 1 no instruction fetches",
            "62:59 key 0x0 protection key",
            "58:52 ignored 0x0 software's",
            "51:46 reserved 0x0 must be zero: past MAXPHYADDR",
            "45:21 address 0xa01 maps 0x140200000",
            "20:13 reserved 0x0 must be zero",
            "12 PAT 0 adds nothing to the PAT index",
            "11:9 ignored 0 software's (bit 11: R of HLAT paging)",
            "8 G 0 of this address space",
            "7 PS 1 a leaf of 2M",
            "6 D 1 written",
            "5 A 1 accessed",
            "4 PCD 0 adds nothing to the PAT index",
            "3 PWT 0 adds nothing to the PAT index",
            "2 U/S 1 user-mode access allowed",
            "1 R/W 1 writes allowed",
            "0 P 1 present",
        ]
    );
}

#[test]
fn without_a_level_every_level_says_what_it_would_make_of_the_entry() {
    let ran = table(&["decode", "--format", "x86-64", "0x8000000012345067"]);
    ran.prints(&[
        "as an entry of PT (pte), the level of pages: no --level was said",
        "maps 4K at 0x12345000: read and write, not executable, user, accessed, dirty",
        "PML4 (pgd) points to the PDPT (pud) table at 0x12345000",
        "PD (pmd) points to the PT (pte) table at 0x12345000",
    ]);
}

#[test]
fn the_families_of_arm64_and_risc_v_are_decoded() {
    for (format, level, entry, parts) in [
        (
            "arm64-4k-48",
            "2",
            "60000080000f05",
            &["level 2 (pmd)", "maps 2M at 0x80000000", "AttrIndx 1", "53 PXN 1", "11 nG 1 of this ASID"][..],
        ),
        (
            "arm64-4k-48",
            "level 3",
            "0078000080010f03",
            &["as an entry of level 3 (pte)", "maps 4K at 0x80010000", "not executable"],
        ),
        ("arm64-16k-47", "L3", "0070000080000f43", &["as a part of a contiguous group of 2M", "one of 128 entries"]),
        (
            "arm64-s2-4k-40",
            "pmd",
            "400000402007fd",
            &[
                "maps 2M at 0x40200000: read and write, not executable, accessed, MemAttr 0b1111",
                "7:6 S2AP 3 read and write",
            ],
        ),
        ("sv39", "VPN[1]", "200000cf", &["VPN[1] (megapage, pmd)", "maps 2M at 0x80000000", "9:8 RSW 0 software's"]),
        (
            "sv48+svnapot",
            "0",
            "80000000200020cf",
            &["as a part of a contiguous group of 64K", "one of 16 entries that map 64K"],
        ),
        (
            "sv57x4",
            "3",
            "20000001",
            &["as an entry of VPN[3] (terapage, p4d)", "points to the VPN[2] (gigapage, pud) table at 0x80000000"],
        ),
        ("sv39-64k", "pmd", "200000cf", &["as an entry of pmd", "maps 2M at 0x80000000"]),
    ] {
        let ran = table(&["decode", "--format", format, "--level", level, entry]);
        squeezed(&ran);
        ran.prints(parts);
    }
}

#[test]
fn what_is_illegal_is_named_with_its_rule() {
    for (format, level, entry, parts) in [
        (
            "x86-64",
            "pmd",
            "402187",
            &["illegal: the hardware faults when it meets it (misaligned-leaf)", "error: misaligned-leaf:", "0x2000"][..],
        ),
        (
            "x86-64",
            "pml4",
            "80000087",
            &["illegal: the hardware faults when it meets it (leaf-level)", "error: leaf-level:"],
        ),
        ("x86-64+phys39", "pte", "8000000001", &["error: address-too-large:", "0x8000000000"]),
        ("arm64-4k-48+phys40", "3", "10000000703", &["error: address-too-large:", "0x10000000000"]),
        ("sv39+phys40", "0", "40000000cf", &["illegal", "error: address-too-large:", "0x10000000000"]),
        ("sv39", "0", "5", &["illegal", "error: write-without-read:"]),
        ("arm64-4k-48", "0", "701", &["illegal", "leaf-level"]),
    ] {
        let ran = table(&["decode", "--format", format, "--level", level, entry]);
        squeezed(&ran);
        ran.prints(parts);
        let document = table(&["decode", "--format", format, "--level", level, entry, "--json"]).json();
        assert!(!document["entries"][0]["broken_rules"].as_array().unwrap().is_empty(), "{document:#}");
    }
}

#[test]
fn the_last_line_of_an_oops_is_decoded_as_it_is() {
    let words = "decode --format x86-64 --va ffff888012345678 PGD 100000067 P4D 100000067 PUD 1001f4067 PMD 0";
    let ran = table(&words.split(' ').collect::<Vec<_>>());
    squeezed(&ran);
    ran.prints(&[
        "canonical, the upper half",
        "PML4 (pgd) 47:39 273 of 512 0x111 table + 0x888 512G",
        "PDPT (pud) 0x00000001001f4067 points to the PD (pmd) table at 0x1001f4000",
        "PD (pmd) 0x0000000000000000 a hole: not valid, all zero",
    ]);
    assert_eq!(ran.stdout.matches("0x0000000100000067 as an entry").count(), 1, "the folded level once: {ran}");
    table(&["decode", "--format", "arm64-4k-48", "pgd=1000000081a3c003,", "pud=0000000000000000,"]).prints(&[
        "level 0 (pgd)",
        "points to the level 1 (pud) table at 0x81a3c000",
        "level 1 (pud)",
    ]);
}

#[test]
fn an_address_is_looked_up_level_by_level() {
    let document = table(&["decode", "--format", "arm64-16k-48", "--va", "0x812345678abc", "--json"]).json();
    let address = &document["address"];
    assert_eq!(address["canonical"], true);
    // 1 bit, then eleven each, and an offset of 14 (Arm ARM D8.2).
    let va: u64 = 0x8123_4567_8abc;
    let expected: Vec<Value> = [(47, 1), (36, 11), (25, 11), (14, 11)]
        .map(|(shift, bits): (u32, u32)| Value::from(va >> shift & ((1 << bits) - 1)))
        .to_vec();
    let indexes: Vec<Value> =
        address["levels"].as_array().unwrap().iter().map(|level| level["index"].clone()).collect();
    assert_eq!(indexes, expected);
    table(&["decode", "--format", "arm64-4k-48", "--va", "ffff000000000000"])
        .prints(&["not canonical: bits 63:48 must be zero, and are 0xffff", "+upper"]);
    table(&["decode", "--format", "x86-64", "--va", "800000000000"])
        .prints(&["not canonical", "copies of bit 47, which is 1"]);
    table(&["decode", "--format", "sv39-64k", "--va", "12345678"]).prints(&[
        "pmd 33:25 9 of 512",
        "pte 24:16 52 of 512",
        "VPN[0] 20:12 325 of 512",
    ]);
}

/// Every format without options, and some with.
fn formats(bench: &Bench) -> Vec<String> {
    let listed = bench.pagelab(&["list", "formats", "--json"]).ran().json();
    assert_eq!(listed["schema"], "pagelab.list-formats/1");
    let names =
        listed["formats"].as_array().unwrap().iter().map(|format| format["format"].as_str().unwrap().to_string());
    let with_options = ["x86-64+phys46+no-1g", "arm64-4k-48+dbm+bbm2", "sv39+svnapot+svpbmt", "sv48-64k+svnapot"];
    names.chain(with_options.map(String::from)).collect()
}

#[test]
fn what_is_built_is_legal_in_every_format() {
    let bench = Bench::new();
    let (image, formats) = (bench.word("image.bin"), formats(&bench));
    assert!(formats.len() > 70, "{formats:?}");
    for format in &formats {
        let built = table_in(
            &bench,
            &[
                "build",
                "-f",
                format,
                "--map",
                "0x400000:0x40000000:70M:rwx",
                "--map",
                "0x10000000:0x50010000:192K:r",
                "-o",
                &image,
                "--json",
            ],
        );
        assert_eq!(built.code, Some(0), "{format}: {built}");
        let built = built.json();
        let (root, base) = (built["root"].as_str().unwrap(), built["base"].as_str().unwrap());
        assert_eq!(fs::metadata(&image).unwrap().len(), built["image_bytes"].as_u64().unwrap());
        let checked = table_in(&bench, &["check", &image, "-f", format, "--root", root, "--base", base, "--json"]);
        assert_eq!(checked.code, Some(0), "{format}: {checked}");
        let checked = checked.json();
        assert_eq!((checked["legal"].as_bool(), checked["errors"].as_u64()), (Some(true), Some(0)), "{format}");
        assert_eq!(checked["census"], built["census"], "{format}");
        assert_eq!(built["census"]["mapped_bytes"], (70 << 20) + (192 << 10), "{format}");
    }
}

#[test]
fn the_census_counts_leaves_and_groups() {
    let built =
        table(&["build", "-f", "arm64-4k-48", "--map", "0:0x40000000:2M:r", "--largest", "4K", "--json"]).json();
    assert_eq!(built["census"]["by_size"][0]["group_bytes"], 64 << 10);
    let alone = table(&[
        "build",
        "-f",
        "arm64-4k-48",
        "--map",
        "0:0x40000000:2M:r",
        "--largest",
        "4K",
        "--no-contiguous",
        "--json",
    ])
    .json();
    assert_eq!(alone["census"]["by_size"][0]["group_bytes"], 4 << 10);
    assert_eq!(alone["image"], Value::Null);
}

#[test]
fn the_tree_has_runs_and_holes() {
    let ran = table(&[
        "build",
        "-f",
        "x86-64",
        "--map",
        "0xffff888000000000:0:5G:rwg",
        "--map",
        "0x400000:0x123456000:4M:rxu",
        "--tree",
    ]);
    let lines = squeezed(&ran);
    let tree: Vec<&str> = lines.iter().map(String::as_str).skip_while(|line| !line.starts_with("PML4 table")).collect();
    assert_eq!(
        tree,
        [
            "PML4 table at 0x80000000",
            "├ 0 0x0000000000000000 PDPT table at 0x80002000",
            "│ ├ 0 0x0000000000000000 PD table at 0x80003000",
            "│ │ ├ 0-1 empty: 4M",
            "│ │ ├ 2-3 0x0000000000400000 2 PT tables: 1,024 x 4K → 0x123456000 r-xu-",
            "│ │ └ 4-511 empty: 1016M",
            "│ └ 1-511 empty: 511G",
            "├ 1-272 empty: 136T",
            "├ 273 0xffff888000000000 PDPT table at 0x80001000",
            "│ ├ 0-4 0xffff888000000000 5 x 1G → 0x0 rw--g",
            "│ └ 5-511 empty: 507G",
            "└ 274-511 empty: 119T",
        ]
    );
}

/// Builds one mapping, and gives the image with its document.
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
fn every_kind_of_damage_is_named_at_its_address() {
    const BASE: u64 = 0x8000_0000;
    let bench = Bench::new();
    // Root, one table of each level below, the leaves in the last.
    let pages: &[&str] = &["--map", "0:0x40000000:64K:rw", "--largest", "4K"];
    let (last, middle) = (0x3000usize, 0x2000usize);
    // Format, what is done, the mapping, where, how, and the rule that it breaks.
    type Damage<'a> = (&'a str, &'a str, &'a [&'a str], usize, fn(u64) -> u64, &'a str);
    let damages: [Damage<'_>; 17] = [
        ("x86-64+phys46", "reserved", pages, last + 8, |entry| entry | 1 << 50, "address-too-large"),
        ("x86-64", "loop", pages, middle + 8, |_| BASE | 0x63, "loop"),
        ("x86-64", "outside", pages, middle + 8, |_| 0x9900_0063, "table-outside"),
        ("x86-64", "leaf", pages, 0, |entry| entry | 0x80, "leaf-level"),
        ("x86-64", "misaligned", &["--map", "0:0x40000000:2M:rw"], middle, |entry| entry | 0x2000, "misaligned-leaf"),
        ("arm64-4k-48", "hole in a group", pages, last + 8, |_| 0, "group-incomplete"),
        ("arm64-4k-48", "wrong address", pages, last + 8, |entry| entry + 0x1000, "group-addresses"),
        ("arm64-4k-48", "attributes differ", pages, last + 8, |entry| entry ^ 0x80, "group-attributes"),
        ("arm64-4k-48", "shareability", pages, last + 8, |entry| entry & !0x300 | 0x100, "shareability"),
        ("arm64-s2-4k-40", "memory type", pages, last + 8, |entry| entry & !0x3c | 0x10, "memory-type"),
        ("sv48", "write only", pages, last + 8, |entry| entry & !2, "write-without-read"),
        ("sv48", "reserved", pages, last + 8, |entry| entry | 1 << 54, "reserved-bits"),
        ("sv48", "no permission", pages, last + 8, |entry| entry & !0xe, "table-at-leaf-level"),
        ("sv48+svpbmt", "a type in a table", pages, middle, |entry| entry | 1 << 61, "leaf-bit-in-table"),
        ("sv48+svnapot", "a pattern of 32K", pages, last + 8, |entry| entry ^ 0x3000, "napot-pattern"),
        ("sv48-64k", "15 of 16", &pages[..2], 0x30008, |_| 0, "run-incomplete"),
        ("sv48-64k", "not side by side", &pages[..2], 0x20008, |entry| entry + 0x400, "run-addresses"),
    ];
    for (format, what, options, at, change, rule) in damages {
        let (path, mut image, document) = built(&bench, format, options);
        let new = change(entry(&image, at));
        set(&mut image, at, new);
        fs::write(&path, &image).unwrap();
        let root = document["root"].as_str().unwrap();
        let ran = table_in(&bench, &["check", &path, "-f", format, "--root", root, "--base", "0x80000000", "--json"]);
        assert_eq!(ran.code, Some(1), "{what}: {ran}");
        let faults = ran.json()["faults"].clone();
        let found = |fault: &Value| fault["rule"] == rule;
        assert!(faults.as_array().unwrap().iter().any(found), "{what}: expected {rule} in {faults:#}");
        let near = |fault: &&Value| fault["rule"] == rule;
        let fault = faults.as_array().unwrap().iter().find(near).unwrap();
        let address = u64::from_str_radix(&fault["entry_address"].as_str().unwrap()[2..], 16).unwrap();
        // A group is named by the first of its entries, or by the one that differs.
        assert!(address == BASE + at as u64 || address == BASE + (at as u64 & !0x7f), "{what}: {fault:#}");
        let text = table_in(&bench, &["check", &path, "-f", format, "--root", root, "--base", "0x80000000"]);
        text.says(1, &["not legal"]).prints(&[&format!("error: {rule}"), &format!("{address:#x}")]);
        assert!(text.stdout.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn warnings_are_told_and_do_not_count_as_faults() {
    let bench = Bench::new();
    let (path, mut image, _) = built(&bench, "x86-64", &["--map", "0:0x40000000:4K:rw"]);
    let leaf = entry(&image, 0x3000);
    set(&mut image, 0x3000, leaf & !2);
    let shared = entry(&image, 0);
    set(&mut image, 8, shared);
    fs::write(&path, &image).unwrap();
    let at = ["-f", "x86-64", "--base", "0x80000000"];
    let check = |root: &str| table_in(&bench, &[&["check", path.as_str(), "--root", root][..], &at].concat());
    check("0x80000000").says(0, &[]).prints(&[
        "legal: no rule is broken, 2 warnings",
        "warning: shadow-stack",
        "warning: shared-table",
    ]);
    check("0x80000008").says(1, &["not legal"]).prints(&["error: root-alignment: the root:"]);
    check("0x90000000").says(1, &["1 fault"]).prints(&["error: table-outside: the root: the table at 0x90000000"]);
}

#[test]
fn neighbours_that_break_one_rule_are_one_fault_in_print() {
    let bench = Bench::new();
    let (path, mut image, _) = built(&bench, "x86-64+phys46", &["--map", "0:0x40000000:64K:rw", "--largest", "4K"]);
    for at in (0x3000..0x3080).step_by(8) {
        let leaf = entry(&image, at);
        set(&mut image, at, leaf | 1 << 50);
    }
    fs::write(&path, &image).unwrap();
    let ran =
        table_in(&bench, &["check", &path, "-f", "x86-64+phys46", "--root", "0x80000000", "--base", "0x80000000"]);
    ran.says(1, &["16 faults"])
        .prints(&["address-too-large in 16 PT (pte) entries from 0x80003000 on, for 0x0 to 0xffff"]);
    assert_eq!(ran.stdout.matches("error: ").count(), 1, "{ran}");
}

#[test]
fn an_image_that_is_none_is_refused_or_found_illegal() {
    let bench = Bench::new();
    let at = ["--root", "0x80000000", "--base", "0x80000000"];
    let check =
        |path: &str, options: &[&str]| table_in(&bench, &[&["check", path, "-f", "x86-64"][..], &at, options].concat());
    let file = |name: &str, bytes: &[u8]| {
        fs::write(bench.path(name), bytes).unwrap();
        bench.word(name)
    };
    check(&bench.word("missing"), &[]).says(2, &["missing cannot be read", "No such file"]);
    check("/", &[]).says(2, &["cannot be read", "directory"]);
    check(&file("empty", &[]), &[]).says(2, &["is empty", "raw memory"]);
    check(&file("one", &[1]), &[]).says(2, &["has 1 byte;"]);
    check(&file("odd", &[1; 4097]), &[]).says(2, &["4,097 bytes", "whole 8-byte entries"]);
    check(&file("large", &[0; 8192]), &["--limit", "4K"]).says(2, &["larger than 4K", "--limit"]);
    check("/dev/zero", &["--limit", "64K"]).says(2, &["larger than 64K"]);
    check(&file("short", &[0; 64]), &[]).says(1, &["not legal"]).prints(&["table-outside"]);
    let (cut, image, _) = built(&bench, "x86-64", &["--map", "0:0x40000000:64K"]);
    fs::write(&cut, &image[..5000]).unwrap();
    check(&cut, &[]).says(1, &["not legal"]).prints(&["lies outside the 5,000 bytes of memory at 0x80000000"]);
    let words = |root: &str, base: &str| format!("check {cut} -f x86-64 --root {root} --base {base}");
    let run = |words: String| table_in(&bench, &words.split(' ').collect::<Vec<_>>());
    run(words("0x80000003", "0x80000000")).says(1, &["not legal"]).prints(&["without the other fields of a register"]);
    run(words("0", "0xfffffffffffff000")).says(2, &["5000 bytes at 0xfffffffffffff000", "below 2^64"]);
    let core = [b"\x7fELF\x02\x01\x01\x00".as_slice(), &[0xff; 8184]].concat();
    check(&file("core", &core), &[]).says(1, &["not legal"]).prints(&["as an ELF core file does", "raw memory"]);
    let all_ones = file("ones", &[0xff; 1 << 16]);
    for format in formats(&bench) {
        let ran = table_in(&bench, &["check", &all_ones, "-f", &format, "--root", "0", "--base", "0", "--tree"]);
        ran.says(1, &["not legal"]);
    }
    let escape = file("a\u{1b}[31mb", &[0; 4096]);
    let ran = check(&escape, &[]);
    assert!(ran.code == Some(0) && !ran.stdout.contains('\u{1b}') && ran.stdout.contains("\\x1b[31m"), "{ran}");
}

#[test]
fn wrong_arguments_end_with_2_and_say_what_was_expected() {
    let bench = Bench::new();
    for (words, parts) in [
        ("decode -f x86_64 67", &["there is no format \"x86_64\"", "nearest is \"x86-64\"", "list formats"][..]),
        ("decode -f x86-64+svnapot 67", &["\"svnapot\" is no option", "no-nx"]),
        ("decode -f x86-64", &["required", "ENTRY"]),
        ("decode 67", &["required", "--format"]),
        ("decode -f x86-64 12345zz", &["hexadecimal", "\"12345zz\""]),
        ("decode -f x86-64 11111111111111111", &["does not fit in 64 bits"]),
        ("decode -f x86-64 --level 1 67", &["no level \"1\"", "PML4 (pgd), PDPT (pud), PD (pmd) or PT (pte)"]),
        ("decode -f arm64-16k-47 --level 0 67", &["no level \"0\"", "level 1 (pgd), level 2 (pmd) or level 3 (pte)"]),
        ("decode -f x86-64 pmx=67", &["no level \"pmx\""]),
        ("decode -f x86-64 PMD", &["expected an entry after \"PMD\""]),
        ("decode -f x86-64 --va canonical", &["--va", "hexadecimal"]),
        ("build -f x86-64", &["required", "--map"]),
        ("build -f x86-64 --map 0:0", &["VA:PA:SIZE", "2 parts"]),
        ("build -f x86-64 --map ffff8880:0:4K", &["hexadecimal begins with 0x"]),
        ("build -f x86-64 --map 0:0:4K:rz", &["no permission 'z'"]),
        (
            "build -f x86-64 --map 0x1800:0:4K",
            &["--map 0x1800:0:4K", "input address 0x1800", "multiple of the page size 0x1000"],
        ),
        ("build -f x86-64 --map 0:0x800:4K", &["output address 0x800"]),
        ("build -f x86-64 --map 0:0:5000", &["length 0x1388"]),
        ("build -f x86-64 --map 0:0:0", &["empty"]),
        (
            "build -f x86-64 --map 0x800000000000:0:4K",
            &["0x800000000000", "copies of the highest bit above its 48 bits"],
        ),
        ("build -f x86-64+phys40 --map 0:0x10000000000:4K", &["0x10000000000", "40 bits"]),
        (
            "build -f x86-64 --map 0:0:2M --map 0x1000:0:4K",
            &["--map 0x1000:0:4K", "0x1000 is mapped already", "PD (pmd) entry"],
        ),
        ("build -f arm64-4k-48 --map 0:0:2M --map 0x1000:0:4K", &["level 2 (pmd) entry"]),
        ("build -f arm64-64k-48 --map 0:0:64K --largest 4K", &["no leaf of at most 4K", "64K, 512M"]),
        ("build -f x86-64 --map 0:0:4K:w", &["cannot be read", "x86-64 entries cannot express"]),
        ("build -f sv39 --map 0:0:4K:rw,m=1", &["this memory type"]),
        ("build -f x86-64 --map 0:0:64G --largest 4K --limit 1M", &["do not fit in 1M", "--limit"]),
        ("build -f x86-64 --base 0x80000000000000 --map 0:0:4K", &["--base", "52 bits"]),
        (
            "build -f x86-64+phys40 --base 0xfffffff000 --map 0:0:4K",
            &["do not fit in the 4K from --base 0xfffffff000", "40-bit physical address space", "lower"],
        ),
        ("decode -f arm64-4k-48+phys41 67", &["\"phys41\" is no option", "40, 42"]),
        ("decode -f arm64-s2-4k-42+phys40 67", &["\"phys40\" is no option", "no fewer than of IPA"]),
        ("build -f sv39+phys40 --map 0:0x10000000000:4K", &["0x10000000000", "40 bits"]),
        ("build -f x86-64 --base 4 --map 0:0:4K", &["--base 0x4", "aligned"]),
        (
            "build -f x86-64 --map 0:0:4K -o /nonexistent/image",
            &["/nonexistent/image cannot be written", "No such file"],
        ),
        ("build -f x86-64 --map 0:0:4K -o /tmp", &["/tmp cannot be written", "directory"]),
        ("check", &["required", "IMAGE"]),
        ("check x -f x86-64 --root 0", &["required", "--base"]),
        ("split --format x86-64", &["stage 2", "arm64-s2-4k-48"]),
        ("split --granule 8k", &["8k", "16k"]),
        ("split --granule 16k --chunk 2M --bytes 1G", &["--chunk 2M", "16K, 32M"]),
        ("split --granule 4k --bytes 3K", &["--bytes 3K", "multiple"]),
        ("split --granule 4k --bytes 0", &["empty"]),
        ("split --bytes 4T", &["at most 2T"]),
        ("split --granule 4k --bytes 1T", &["40 bits"]),
        ("split --rounds 0", &["1..=1000"]),
        ("split --granule 4k --format arm64-s2-4k-40", &["cannot be used with"]),
        ("split --variant faster", &["faster", "skip-level3"]),
    ] {
        table_in(&bench, &words.split(' ').collect::<Vec<_>>()).says(2, parts);
    }
}

#[test]
fn a_split_has_the_counts_of_kvm_and_says_what_is_saved() {
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
    ran.prints(&[
        "granule 4K, 2M blocks, when the log is cleared, chunks of 2M",
        "skip-children",
        "vanilla: reading entries",
    ]);
}

#[test]
fn formats_are_listed_with_their_sizes() {
    let bench = Bench::new();
    let ran = bench.pagelab(&["list", "formats"]).ran();
    squeezed(&ran);
    ran.prints(&[
        "x86-64 PML4 39, PDPT 30, PD 21, PT 12 4K 2M 1G -",
        "arm64-16k-48 L0 47, L1 36, L2 25, L3 14 16K 32M 2M 1G",
        "sv39 VPN[2] 30, VPN[1] 21, VPN[0] 12 4K 2M 1G 64K (+svnapot)",
        "sv39-64k pgd 34, pmd 25, pte 16 64K 32M 16G -",
    ]);
}

/// Every key of every document stands in FORMATS.md.
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
    let formats = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../FORMATS.md")).unwrap();
    let bench = Bench::new();
    let image = bench.word("image.bin");
    let mut found = Vec::new();
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
        let schema = document["schema"].as_str().unwrap();
        assert!(formats.contains(&format!("`{schema}`")), "{schema}");
        keys(&document, &mut found);
    }
    keys(&bench.pagelab(&["list", "formats", "--json"]).ran().json(), &mut found);
    let missing: Vec<&String> = found.iter().filter(|name| !formats.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
