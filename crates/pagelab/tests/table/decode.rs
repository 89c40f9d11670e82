//! Tests of `table decode`: entries and addresses, explained field by field and level by level.

use super::*;

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
    ran.assert_stdout(&[
        "as an entry of PT (pte), the level of pages: no --level was given",
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
        ran.assert_stdout(parts);
    }
}

#[test]
fn names_the_rule_that_an_illegal_entry_breaks() {
    for (format, level, entry, parts) in [
        (
            "x86-64",
            "pmd",
            "402187",
            &["illegal: the hardware faults on it (misaligned-leaf)", "error: misaligned-leaf:", "0x2000"][..],
        ),
        ("x86-64", "pml4", "80000087", &["illegal: the hardware faults on it (leaf-level)", "error: leaf-level:"]),
        ("x86-64+phys39", "pte", "8000000001", &["error: address-too-large:", "0x8000000000"]),
        ("arm64-4k-48+phys40", "3", "10000000703", &["error: address-too-large:", "0x10000000000"]),
        ("sv39+phys40", "0", "40000000cf", &["illegal", "error: address-too-large:", "0x10000000000"]),
        ("sv39", "0", "5", &["illegal", "error: write-without-read:"]),
        ("arm64-4k-48", "0", "701", &["illegal", "leaf-level"]),
    ] {
        let ran = table(&["decode", "--format", format, "--level", level, entry]);
        squeezed(&ran);
        ran.assert_stdout(parts);
        let document = table(&["decode", "--format", format, "--level", level, entry, "--json"]).json();
        assert!(!document["entries"][0]["broken_rules"].as_array().unwrap().is_empty(), "{document:#}");
    }
}

#[test]
fn the_last_line_of_an_oops_is_decoded_as_it_is() {
    let words = "decode --format x86-64 --va ffff888012345678 PGD 100000067 P4D 100000067 PUD 1001f4067 PMD 0";
    let ran = table(&words.split(' ').collect::<Vec<_>>());
    squeezed(&ran);
    ran.assert_stdout(&[
        "canonical, the upper half",
        "PML4 (pgd) 47:39 273 of 512 0x111 table + 0x888 512G",
        "PDPT (pud) 0x00000001001f4067 points to the PD (pmd) table at 0x1001f4000",
        "PD (pmd) 0x0000000000000000 a hole: not valid, all zero",
    ]);
    assert_eq!(ran.stdout.matches("0x0000000100000067 as an entry").count(), 1, "the folded level once: {ran}");
    table(&["decode", "--format", "arm64-4k-48", "pgd=1000000081a3c003,", "pud=0000000000000000,"]).assert_stdout(&[
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
    // The first index has 1 bit, the others eleven bits each, and the offset 14 bits (Arm ARM D8.2).
    let va: u64 = 0x8123_4567_8abc;
    let expected: Vec<Value> = [(47, 1), (36, 11), (25, 11), (14, 11)]
        .map(|(shift, bits): (u32, u32)| Value::from(va >> shift & ((1 << bits) - 1)))
        .to_vec();
    let indexes: Vec<Value> =
        address["levels"].as_array().unwrap().iter().map(|level| level["index"].clone()).collect();
    assert_eq!(indexes, expected);
    table(&["decode", "--format", "arm64-4k-48", "--va", "ffff000000000000"])
        .assert_stdout(&["not canonical: bits 63:48 must be zero, and are 0xffff", "+upper"]);
    table(&["decode", "--format", "x86-64", "--va", "800000000000"])
        .assert_stdout(&["not canonical", "copies of bit 47, which is 1"]);
    table(&["decode", "--format", "sv39-64k", "--va", "12345678"]).assert_stdout(&[
        "pmd 33:25 9 of 512",
        "pte 24:16 52 of 512",
        "VPN[0] 20:12 325 of 512",
    ]);
}
