//! Tests with programs whose LOAD segments are aligned to less than the base page size of other kernels.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Bench, Runs, needs, program, recording};

const SOURCE: &str = "#include <stdlib.h>\n#include <string.h>\n\
    int main(void) { char *all = malloc(4 << 20); memset(all, 1, 4 << 20); return all[9] - 1; }\n";

/// Links the program, statically, for base pages of at most `page_bytes`. Returns its path.
fn linked(bench: &Bench, page_bytes: u64) -> String {
    let (source, output) = (bench.word("little.c"), bench.word(&format!("little-{page_bytes}")));
    std::fs::write(&source, SOURCE).unwrap();
    let option = format!("-Wl,-z,max-page-size={page_bytes}");
    let status = Command::new("gcc").args(["-O1", "-static", &option, "-o", &output, &source]).status().unwrap();
    assert!(status.success());
    output
}

#[test]
fn programs_that_cannot_start_with_larger_base_pages_are_named() {
    if !needs(&[("x86-64", cfg!(target_arch = "x86_64")), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let base_pages = |page_bytes: u64| {
        let command = linked(&bench, page_bytes);
        let document = bench.pagelab(&["inspect", "--json", "--", &command]).ran().json();
        (command, document["processes"][0]["base_pages"].clone())
    };
    for (page_bytes, refused) in [(4096, Value::from(16384)), (16384, Value::from(65536)), (65536, Value::Null)] {
        let (command, found) = base_pages(page_bytes);
        assert_eq!(found["refused_bytes"], refused, "{page_bytes}: {found}");
        if !refused.is_null() {
            assert_eq!(found["files"], serde_json::json!([command]), "{page_bytes}: {found}");
            assert_eq!(found["aligned_to_bytes"], page_bytes, "{found}");
        }
    }
}

#[test]
fn a_trace_has_the_base_pages_that_its_program_refuses() {
    if !needs(&[program("gcc"), recording("qemu-x86_64"), ("x86-64", cfg!(target_arch = "x86_64"))]) {
        return;
    }
    let bench = Bench::new();
    let plugin = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")));
    let aligned = ["-static", "-Wl,-z,max-page-size=65536"];
    for (command, max_base_bytes, built_for_bytes) in [
        (linked(&bench, 4096), 4096, None),
        (linked(&bench, 65536), 65536, None),
        (with_jemalloc(&bench, 4096, &aligned), 65536, Some(json!(4096))),
        (with_jemalloc(&bench, 65536, &aligned), 65536, Some(json!(65536))),
        (with_jemalloc(&bench, 5000, &aligned), 65536, Some(Value::Null)),
    ] {
        let trace = format!("{command}.trace");
        let recorded =
            bench.pagelab(&["record", "-o", &trace, "--plugin", &plugin.display().to_string(), "--", &command]).ran();
        assert_eq!(recorded.code, Some(0), "{recorded}");
        let document = bench.pagelab(&["trace", "info", "--json", &trace]).ran().assert_exit(0, &[]).json();
        let header = &document["header"];
        assert_eq!(header["max_base_bytes"], max_base_bytes, "{command}: {document:#}");
        let jemalloc = Some(&header["jemalloc"]).filter(|jemalloc| !jemalloc.is_null());
        assert_eq!(
            jemalloc.map(|jemalloc| jemalloc["built_for_bytes"].clone()),
            built_for_bytes,
            "{command}: {document:#}"
        );
    }
}

/// Links a program that compares the system's page size as jemalloc does. Without optimisation, a compiler may make the comparison
/// in a form that pagelab does not recognise.
fn with_jemalloc(bench: &Bench, page_bytes: u64, options: &[&str]) -> String {
    let (source, output) = (bench.word("like.c"), bench.word(&format!("like-{page_bytes}")));
    let code = format!(
        "#include <stdio.h>\n#include <unistd.h>\nlong os_page;\nint main(void) {{ os_page = sysconf(_SC_PAGESIZE);\n\
         if ((unsigned long)os_page > {page_bytes}) {{ fputs(\"<jemalloc>: Unsupported system page size\\n\", stderr); \
         return 1; }}\nreturn 0; }}\n"
    );
    std::fs::write(&source, code).unwrap();
    let status = Command::new("gcc").arg("-O2").args(options).args(["-o", &output, &source]).status().unwrap();
    assert!(status.success());
    output
}

#[test]
fn jemalloc_is_named_with_the_page_that_it_was_built_for() {
    let is_known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if !needs(&[("x86-64 or arm64", is_known), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    for options in [&[][..], &["-static"], &["-fno-pie", "-no-pie"]] {
        for (page_bytes, shown) in [(4096, true), (16384, true), (65536, false)] {
            let command = with_jemalloc(&bench, page_bytes, options);
            let document = bench.pagelab(&["inspect", "--json", "--", &command]).ran().json();
            let found = &document["processes"][0]["jemalloc"];
            let expected = if shown { page_bytes.into() } else { Value::Null };
            assert_eq!(found[0]["built_for_bytes"], expected, "{options:?}, {page_bytes}: {found}");
            assert_eq!(found.as_array().map(Vec::len), Some(usize::from(shown)), "{options:?}, {page_bytes}: {found}");
        }
    }
    let text = bench.pagelab(&["inspect", "--", &with_jemalloc(&bench, 4096, &[])]).ran();
    if cfg!(target_arch = "x86_64") {
        assert!(!text.stdout.contains("jemalloc"), "x86 has no larger base pages: {text}");
        return;
    }
    text.assert_stdout(&["jemalloc in ", "like-4096 was built for base pages of 4K: it refuses larger ones"]);
    // The comparison has a form that pagelab does not recognise, so the file only shows that it contains jemalloc.
    let hidden = bench.pagelab(&["inspect", "--", &with_jemalloc(&bench, 5000, &[])]).ran();
    hidden.assert_stdout(&[
        "like-5000 refuses base pages larger than those that it was built for; the file does not show which",
    ]);
}
