//! Tests of `table check`: images of tables, and the errors in them.

use super::*;

#[test]
fn every_kind_of_damage_is_named_at_its_address() {
    const BASE: u64 = 0x8000_0000;
    let bench = Bench::new();
    // These are the root, one table of each level below it, and the leaves in the last table.
    let pages: &[&str] = &["--map", "0:0x40000000:64K:rw", "--largest", "4K"];
    let (last, middle) = (0x3000usize, 0x2000usize);
    // Format, description of the damage, options of the mapping, offset of the entry, change to the entry, and the rule
    // that is then broken.
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
        // A fault in a group of entries is reported at the address of the group's first entry, or of the entry that
        // differs.
        assert!(address == BASE + at as u64 || address == BASE + (at as u64 & !0x7f), "{what}: {fault:#}");
        let text = table_in(&bench, &["check", &path, "-f", format, "--root", root, "--base", "0x80000000"]);
        text.assert_exit(1, &["not legal"]).assert_stdout(&[&format!("error: {rule}"), &format!("{address:#x}")]);
        assert!(text.stdout.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn reports_warnings_without_counting_them_as_faults() {
    let bench = Bench::new();
    let (path, mut image, _) = built(&bench, "x86-64", &["--map", "0:0x40000000:4K:rw"]);
    let leaf = entry(&image, 0x3000);
    set(&mut image, 0x3000, leaf & !2);
    let shared = entry(&image, 0);
    set(&mut image, 8, shared);
    fs::write(&path, &image).unwrap();
    let at = ["-f", "x86-64", "--base", "0x80000000"];
    let check = |root: &str| table_in(&bench, &[&["check", path.as_str(), "--root", root][..], &at].concat());
    check("0x80000000").assert_exit(0, &[]).assert_stdout(&[
        "legal: no rule is broken, 2 warnings",
        "warning: shadow-stack",
        "warning: shared-table",
    ]);
    check("0x80000008").assert_exit(1, &["not legal"]).assert_stdout(&["error: root-alignment: the root:"]);
    check("0x90000000")
        .assert_exit(1, &["1 fault"])
        .assert_stdout(&["error: table-outside: the root: the table at 0x90000000"]);
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
    ran.assert_exit(1, &["16 faults"])
        .assert_stdout(&["address-too-large in 16 PT (pte) entries from 0x80003000 on, for 0x0 to 0xffff"]);
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
    check(&bench.word("missing"), &[]).assert_exit(2, &["missing cannot be read", "No such file"]);
    check("/", &[]).assert_exit(2, &["cannot be read", "directory"]);
    check(&file("empty", &[]), &[]).assert_exit(2, &["is empty", "raw memory"]);
    check(&file("one", &[1]), &[]).assert_exit(2, &["has 1 byte;"]);
    check(&file("odd", &[1; 4097]), &[]).assert_exit(2, &["4,097 bytes", "whole 8-byte entries"]);
    check(&file("large", &[0; 8192]), &["--limit", "4K"]).assert_exit(2, &["larger than 4K", "--limit"]);
    check("/dev/zero", &["--limit", "64K"]).assert_exit(2, &["larger than 64K"]);
    check(&file("short", &[0; 64]), &[]).assert_exit(1, &["not legal"]).assert_stdout(&["table-outside"]);
    let (cut, image, _) = built(&bench, "x86-64", &["--map", "0:0x40000000:64K"]);
    fs::write(&cut, &image[..5000]).unwrap();
    check(&cut, &[])
        .assert_exit(1, &["not legal"])
        .assert_stdout(&["is outside the 5,000 bytes of memory at 0x80000000"]);
    let words = |root: &str, base: &str| format!("check {cut} -f x86-64 --root {root} --base {base}");
    let run = |words: String| table_in(&bench, &words.split(' ').collect::<Vec<_>>());
    run(words("0x80000003", "0x80000000"))
        .assert_exit(1, &["not legal"])
        .assert_stdout(&["without the other fields of a register"]);
    run(words("0", "0xfffffffffffff000")).assert_exit(2, &["5000 bytes at 0xfffffffffffff000", "below 2^64"]);
    let core = [b"\x7fELF\x02\x01\x01\x00".as_slice(), &[0xff; 8184]].concat();
    check(&file("core", &core), &[])
        .assert_exit(1, &["not legal"])
        .assert_stdout(&["begins like an ELF core file", "raw memory"]);
    let all_ones = file("ones", &[0xff; 1 << 16]);
    for format in formats(&bench) {
        let ran = table_in(&bench, &["check", &all_ones, "-f", &format, "--root", "0", "--base", "0", "--tree"]);
        ran.assert_exit(1, &["not legal"]);
    }
    let escape = file("a\u{1b}[31mb", &[0; 4096]);
    let ran = check(&escape, &[]);
    assert!(ran.code == Some(0) && !ran.stdout.contains('\u{1b}') && ran.stdout.contains("\\x1b[31m"), "{ran}");
}
