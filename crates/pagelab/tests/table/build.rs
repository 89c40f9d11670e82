//! Tests of `table build`: the tables are legal in every format, counted, and drawn.

use super::*;

#[test]
fn built_tables_are_legal_in_every_format() {
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
