//! Programs whose LOAD segments are aligned to less than a base page of other kernels.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

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
    let small = linked(&bench, 4096);
    let text = bench.pagelab(&["inspect", "--", &small]).ran();
    text.prints(&["cannot start with base pages of 16K: LOAD segments of ", "little-4096 are aligned to 4K"]);
}

#[test]
fn a_policy_with_base_pages_that_the_program_refuses_is_not_held() {
    if !needs(&[program("gcc"), recording("qemu-x86_64"), ("x86-64", cfg!(target_arch = "x86_64"))]) {
        return;
    }
    let bench = Bench::new();
    let plugin = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")));
    for (page_bytes, holding) in [(4096, "not_held"), (65536, "held")] {
        let (command, trace) = (linked(&bench, page_bytes), bench.word(&format!("trace-{page_bytes}")));
        let recorded =
            bench.pagelab(&["record", "-o", &trace, "--plugin", &plugin.display().to_string(), "--", &command]).ran();
        assert_eq!(recorded.code, Some(0), "{recorded}");
        let document =
            bench.pagelab(&["sim", "-m", "apple-m1", "-p", "base-16k", "--json", &trace]).ran().says(0, &[]).json();
        let text = document.to_string();
        assert!(text.contains(&format!("\"holding\":\"{holding}\"")), "{page_bytes}: {document:#}");
        assert_eq!(text.contains("base_page_refused"), page_bytes == 4096, "{document:#}");
    }
}
