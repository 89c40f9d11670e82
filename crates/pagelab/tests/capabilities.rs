//! Tests of `pagelab capabilities` on the running kernel.

mod common;

use common::{Bench, Runs, described_formats, needs, root, settings_at_rest};
use serde_json::Value;

/// Three kinds at two sizes, in every way.
const QUICK: [&str; 7] =
    ["capabilities", "--sizes", "64K,2M", "--kinds", "anon,shared-anon,memfd", "--json", "--wait=10m"];

fn cell<'a>(document: &'a Value, kind: &str, way: &str, bytes: u64) -> &'a Value {
    let cells = document["cells"].as_array().unwrap();
    let is_it = |cell: &&Value| cell["kind"] == kind && cell["way"] == way && cell["size_bytes"] == bytes;
    cells.iter().find(is_it).unwrap_or_else(|| panic!("no cell {kind} {way} {bytes} in {document:#}"))
}

/// Whether the kernel has the leaf size and the folio size that these tests need.
fn has_sizes() -> bool {
    let has = |size: &str| {
        std::path::Path::new("/sys/kernel/mm/transparent_hugepage").join(format!("hugepages-{size}kB/enabled")).exists()
    };
    has("64") && has("2048")
}

#[test]
fn two_runs_agree_and_every_setting_is_as_before() {
    if !needs(&[root(), ("a kernel with folios of 64K and leaves of 2M", has_sizes())]) {
        return;
    }
    let bench = Bench::new();
    let before = settings_at_rest();
    validation::free_large_blocks();
    let documents = ["a.json", "b.json"].map(|name| {
        let ran = bench.pagelab(&QUICK).ran();
        let document = ran.assert_exit(0, &[]).json();
        std::fs::write(bench.path(name), format!("{document}")).unwrap();
        document
    });
    assert_eq!(settings_at_rest(), before);
    let [first, second] = &documents;
    assert_eq!(first["cells"], second["cells"]);
    bench
        .pagelab(&["capabilities", "--diff", &bench.word("a.json"), &bench.word("b.json")])
        .ran()
        .assert_stdout(&["no cell differs"]);

    let outcome = |kind, way, bytes| cell(first, kind, way, bytes)["outcome"].as_str().unwrap();
    for kind in ["anonymous", "shared_anonymous", "memfd"] {
        assert_eq!((outcome(kind, "touch", 2 << 20), outcome(kind, "touch", 64 << 10)), ("large", "large"), "{kind}");
        assert_eq!(outcome(kind, "mprotect", 2 << 20), "folio_only", "{kind}");
    }
    assert_eq!(cell(first, "anonymous", "touch", 2 << 20)["leaf"], 2 << 20);
    assert_eq!(cell(first, "anonymous", "touch", 64 << 10)["folio"], 64 << 10);
    assert_eq!(outcome("anonymous", "zeros", 64 << 10), "refused");
    assert_eq!(cell(first, "anonymous", "fork", 2 << 20)["cause"]["code"], "split_after_fork");
    assert_eq!(outcome("shared_anonymous", "fork", 2 << 20), "large");
}

/// A Python program, which shares no code with pagelab, collapses memory of its own and reads its smaps.
#[test]
fn a_small_reading_of_smaps_agrees_about_leaves() {
    let python = common::python();
    if !needs(&[root(), ("a kernel with leaves of 2M", has_sizes()), ("python3", python.is_some())]) {
        return;
    }
    let bench = Bench::new();
    let mut command = bench.pagelab(&[
        "capabilities",
        "--as-found",
        "--sizes",
        "2M",
        "--kinds",
        "anon",
        "--ways",
        "collapse",
        "--json",
    ]);
    let document = command.ran().json();
    let script = "import ctypes, mmap\n\
        memory = mmap.mmap(-1, 6 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
        memory.madvise(15)\n\
        memory.write(b'1' * (6 << 20))\n\
        memory.madvise(14)\n\
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n\
        start = (start + (2 << 20) - 1) & ~((2 << 20) - 1)\n\
        libc = ctypes.CDLL(None)\n\
        libc.madvise(ctypes.c_void_p(start), 4 << 20, 25)\n\
        print(open('/proc/self/smaps').read())\n";
    let smaps = bench.script("collapse.py", script);
    let output = std::process::Command::new(python.unwrap()).arg(smaps).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let is_collapsed = text.lines().any(|line| {
        line.strip_prefix("AnonHugePages:").is_some_and(|rest| rest.trim() == "4096 kB" || rest.trim() == "6144 kB")
    });
    let is_large = cell(&document, "anonymous", "collapse", 2 << 20)["outcome"] == "large";
    assert_eq!(is_large, is_collapsed, "{text}");
}

#[test]
fn keys_of_the_document_are_described() {
    let bench = Bench::new();
    let page = bench.word("page.html");
    let ran = bench
        .pagelab(&["capabilities", "--as-found", "--sizes", "2M", "--kinds", "anon", "--ways", "touch,fork", "--json"])
        .args(["--html", &page])
        .ran();
    let document = ran.json();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<th scope=\"row\">anon</th>") && page.contains("combinations of memory and way"), "{page}");
    let formats = described_formats(document["schema"].as_str().unwrap());
    let cells = document["cells"].as_array().unwrap().iter().flat_map(|cell| cell.as_object().unwrap().keys());
    for key in document.as_object().unwrap().keys().chain(cells) {
        assert!(formats.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn each_directory_has_rows_of_its_own_by_its_mount() {
    let bench = Bench::new();
    let shared = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [shared_word, target_word] = [shared.path(), target].map(|path| path.to_str().unwrap());
    let ran = bench
        .pagelab(&["capabilities", "--as-found", "--sizes", "2M", "--kinds", "tmpfs,file-data", "--ways", "touch"])
        .args(["--json", "--directory", shared_word, "--directory", target_word])
        .ran();
    let document = ran.json();
    let rows: Vec<(&str, &str)> = document["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| (cell["kind"].as_str().unwrap(), cell["mount"].as_str().unwrap()))
        .collect();
    let stat = std::process::Command::new("stat").args(["-f", "-c", "%T", target_word]).output().unwrap();
    let type_of_target = String::from_utf8(stat.stdout).unwrap();
    assert_eq!(rows.len(), 2, "both directories in /dev/shm are one row: {rows:?}");
    assert!(rows[0].0 == "tmpfs" && rows[0].1.starts_with("huge="), "{rows:?}");
    // stat prints ext2/ext3 for every ext file system.
    let is_named =
        type_of_target.starts_with("ext") && rows[1].1.starts_with("ext") || type_of_target.trim() == rows[1].1;
    assert!(rows[1].0 == "file_data" && is_named, "{rows:?}: {type_of_target}");
    bench.pagelab(&["capabilities", "--directory", "/no/such"]).ran().assert_exit(2, &["/no/such"]);
    bench
        .pagelab(&["capabilities", "--directory", "/etc/passwd"])
        .ran()
        .assert_exit(2, &["/etc/passwd: not a directory"]);
    let only_shared = bench
        .pagelab(&["capabilities", "--as-found", "--sizes", "2M", "--kinds", "data", "--ways", "touch", "--json"])
        .args(["--directory", shared_word])
        .ran();
    let cell = &only_shared.json()["cells"][0];
    assert!(!cell["mount"].as_str().unwrap().starts_with("huge="), "a file is made on a disk nevertheless: {cell}");
}

#[test]
fn wrong_words_and_wrong_documents_are_refused() {
    let bench = Bench::new();
    bench.pagelab(&["capabilities", "--kinds", "heaps"]).ran().assert_exit(2, &["heaps", "expected one of", "heap"]);
    bench.pagelab(&["capabilities", "--html", "/no/such/page.html"]).ran().assert_exit(2, &["/no/such"]);
    bench.pagelab(&["capabilities", "--ways", "luck"]).ran().assert_exit(2, &["luck", "mprotect"]);
    let file = bench.word("other.json");
    std::fs::write(&file, "{\"schema\": \"pagelab.doctor/1\"}").unwrap();
    bench
        .pagelab(&["capabilities", "--diff", &file, &file])
        .ran()
        .assert_exit(2, &["pagelab.capabilities/1", "pagelab.doctor/1"]);
}
