//! Tests of `pagelab trace` as a command, on traces that are made without an emulator.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::*;
use serde_json::Value;
use trace::{Builder, Call, Event, Header, Kind, Run, Window, Writer};

const PAGE: u64 = 1 << 12;
const HEAP: u64 = 0x10_0000_0000;

/// A trace that is written block by block.
struct Made {
    writer: Writer<fs::File>,
    bench: Bench,
}

impl Made {
    fn new(header: &Header) -> Made {
        let bench = Bench::new();
        let writer = Writer::new(fs::File::create(bench.path("trace")).unwrap(), header).unwrap();
        Made { writer, bench }
    }

    /// Adds a block of loads from these pages of the heap, with two instructions each.
    fn loads(&mut self, thread: u32, pages: impl IntoIterator<Item = u64>, instructions: u64) {
        let mut builder = Builder::new(Header::of("").columns);
        pages
            .into_iter()
            .for_each(|page| builder.push(Run { page: HEAP / PAGE + page, kind: Kind::LOAD, accesses: 2 }, &[]));
        self.writer.runs(thread, &builder.take(), instructions).unwrap();
    }

    fn event(&mut self, thread: u32, run: u64, order: u64, call: Call) {
        self.writer.events(thread, &[Event { run, order, call, result: 0 }], 0).unwrap();
    }

    fn done(self) -> Bench {
        self.writer.finish().unwrap();
        self.bench
    }
}

fn region(pages: u64) -> Call {
    Call::Region { address: HEAP, bytes: pages * PAGE, protection: 3, name: "a heap".to_owned() }
}

/// A trace of two threads. The thread that starts first has its last block at the end of the file, so its events precede those of
/// the other thread.
fn threads() -> Bench {
    let mut made = Made::new(&Header::of("a test"));
    made.event(0, 0, 0, region(4096));
    made.event(0, 30, 1, Call::Madvise { address: HEAP, bytes: PAGE, advice: 14 });
    made.event(0, 70, 2, Call::Munmap { address: HEAP + 9 * PAGE, bytes: PAGE });
    made.event(1, 10, 3, Call::Seen);
    made.loads(1, (0..500).map(|step| step / 3 % 50), 1000);
    made.loads(0, (0..100).map(|step| 100 + step / 4), 200);
    made.loads(0, (0..900).map(|step| step * step % 700), 2000);
    made.event(0, 1000, 4, Call::Munmap { address: HEAP, bytes: PAGE });
    made.done()
}

fn lines(bench: &Bench, file: &str) -> Vec<Value> {
    let dumped = bench.pagelab(&["trace", "dump", "--json", file]).ran();
    dumped.assert_exit(0, &[]);
    dumped.stdout.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ran(bench: &Bench, words: &[&str]) -> Ran {
    let ran = bench.pagelab(words).ran();
    ran.assert_exit(0, &[]);
    ran
}

#[test]
fn a_cut_of_everything_changes_nothing() {
    let bench = threads();
    ran(&bench, &["trace", "cut", "trace", "-o", "same"]);
    assert!(lines(&bench, "trace") == lines(&bench, "same"));
}

#[test]
fn events_of_a_part_stand_where_they_stood_and_the_header_says_what_it_is() {
    let bench = threads();
    ran(&bench, &["trace", "cut", "trace", "-o", "part", "--from", "200", "--thread", "0"]);
    let runs: Vec<Value> = lines(&bench, "part");
    let of_thread = |line: &&Value| line["thread"] == 0 && line.get("event").is_some();
    let events: Vec<(u64, &str)> = runs
        .iter()
        .filter(of_thread)
        .map(|line| (line["event"]["run"].as_u64().unwrap(), line["event"]["call"].as_str().unwrap()))
        .collect();
    assert_eq!(events, [(0, "region"), (0, "madvise"), (0, "munmap"), (0, "window"), (900, "munmap")]);
    let info = ran(&bench, &["trace", "info", "--json", "part"]).json();
    assert_eq!(info["header"]["part"]["from_instructions"], 200);
    // The part contains no blocks of thread 1, but the total includes the instructions that thread 1 executed.
    assert_eq!((&info["total"]["instructions"], &info["total"]["recorded_instructions"]), (&3000.into(), &1800.into()));
    let printed = ran(&bench, &["trace", "info", "part"]).stdout;
    assert!(printed.contains("before instruction 200") && printed.contains("1,800 of 3,000 instructions"), "{printed}");
    let simulated = ran(&bench, &["sim", "part", "-m", "cascade-lake", "-p", "base"]).stdout;
    assert!(simulated.contains("the trace is a part of the run"), "{simulated}");
    // Cutting a part out of a part gives the smaller of the two.
    ran(&bench, &["trace", "cut", "part", "-o", "less", "--to", "5000"]);
    let less = ran(&bench, &["trace", "info", "--json", "less"]).json();
    assert_eq!(
        less["header"]["part"],
        serde_json::json!({ "from_instructions": 200, "to_instructions": 5000, "threads": [0] })
    );
}

#[test]
fn runs_of_a_damaged_trace_keep_their_numbers() {
    let bench = threads();
    let mut bytes = fs::read(bench.path("trace")).unwrap();
    let before = lines(&bench, "trace");
    // Finds the first block with runs of thread 0, to damage it.
    let magic = b"\x89PLTRC\r\n";
    let blocks: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(magic)).collect();
    let damaged = blocks.iter().copied().filter(|at| bytes[at + 8] == 2 && bytes[at + 12] == 0).min().unwrap();
    bytes[damaged + 70] ^= 1;
    fs::write(bench.path("trace"), bytes).unwrap();
    ran(&bench, &["trace", "cut", "trace", "-o", "part"]);
    let after = lines(&bench, "part");
    let runs = |lines: &[Value]| lines.iter().filter(|line| line["run"].is_u64()).cloned().collect::<Vec<Value>>();
    let lost = |line: &Value| line["thread"] == 0 && line["run"].as_u64().unwrap() < 100;
    let expected: Vec<Value> = runs(&before).into_iter().filter(|line| !lost(line)).collect();
    assert_eq!(runs(&after), expected);
}

#[test]
fn uncounted_instructions_are_not_known() {
    let mut made = Made::new(&Header::of("a test"));
    made.loads(0, [1, 2], 70);
    made.loads(1, [1, 2], 0);
    let bench = made.done();
    let info = ran(&bench, &["trace", "info", "--json", "trace"]).json();
    let of = |thread: &Value| ["instructions", "recorded_instructions"].map(|key| thread[key].as_u64());
    assert_eq!(of(&info["threads"][0]), [Some(70); 2]);
    assert_eq!((of(&info["threads"][1]), of(&info["total"])), ([None; 2], [None; 2]));
    assert_eq!(ran(&bench, &["trace", "info", "trace"]).stdout.matches("not known").count(), 4);
}

/// Misses by page size, sets and ways.
fn geometries(bench: &Bench, file: &str) -> BTreeMap<(u64, u64, u64), u64> {
    let swept = ran(bench, &["sim", "sweep", "--json", file]).json();
    let of = |geometry: &Value| {
        let number = |key: &str| geometry[key].as_u64().unwrap();
        ((number("page_bytes"), number("sets"), number("ways")), number("misses"))
    };
    swept["traces"][0]["geometries"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_filtered_trace_misses_as_the_whole_one_where_it_is_exact_and_is_refused_elsewhere() {
    let bench = threads();
    let cut = ran(&bench, &["trace", "cut", "trace", "-o", "filtered", "--most-recent", "--json"]).json();
    assert!(cut["filtered_runs"].as_u64().unwrap() > 300, "{cut}");
    assert_eq!(cut["runs"].as_u64().unwrap() + cut["filtered_runs"].as_u64().unwrap(), 1500);
    ran(&bench, &["trace", "check", "filtered"]);
    let (all, filtered) = (geometries(&bench, "trace"), geometries(&bench, "filtered"));
    assert_eq!((all.len(), filtered.len()), (900, (8 + 8 + 9) * 15));
    for (geometry, misses) in &filtered {
        assert_eq!(Some(misses), all.get(geometry), "{geometry:?}");
    }
    let least = |page: u64| filtered.keys().filter(|key| key.0 == page).map(|key| key.1).min();
    assert_eq!([4096, 16384, 65536, 2 << 20, 32 << 20].map(least), [Some(16), None, Some(16), Some(8), None]);
    // In the filtered trace, events still precede the same runs, and instruction counts are those of the whole trace.
    let events = |file: &str| lines(&bench, file).into_iter().filter(|line| line.get("event").is_some());
    assert!(events("trace").eq(events("filtered")));
    let total = |file: &str| ran(&bench, &["trace", "info", "--json", file]).json()["total"].clone();
    assert_eq!(total("trace")["recorded_instructions"], total("filtered")["recorded_instructions"]);
    // A run after an event is kept even if its page is the most recent one, because its memory may have been remapped.
    let kept: Vec<u64> = lines(&bench, "filtered")
        .iter()
        .filter(|line| line["thread"] == 0 && line["run"].is_u64())
        .map(|line| line["run"].as_u64().unwrap())
        .collect();
    assert!([0, 30, 70, 100].iter().all(|run| kept.contains(run)), "{kept:?}");
    let refused = bench.pagelab(&["sim", "filtered", "-m", "cascade-lake", "-p", "base"]).ran();
    refused.assert_exit(2, &["filtered: the trace was filtered", "sim sweep"]);
    let twice = bench.pagelab(&["trace", "cut", "filtered", "-o", "twice", "--most-recent"]).ran();
    twice.assert_exit(2, &["already filtered"]);
    let printed = ran(&bench, &["sim", "sweep", "filtered", "--html", "page.html"]).stdout;
    assert!(printed.contains("misses are exact") && !printed.contains("pages of 16K"), "{printed}");
}

#[test]
fn rates_are_for_the_instructions_of_windows() {
    let window = Some(Window { skip_instructions: 100, record_instructions: Some(10) });
    let mut made = Made::new(&Header { window, max_instructions: Some(15), ..Header::of("a test") });
    made.event(0, 0, 0, region(64));
    made.event(0, 0, 1, Call::Window { instructions: 100 });
    made.loads(0, 0..10, 110);
    made.event(0, 10, 2, Call::Window { instructions: 210 });
    made.loads(0, 10..15, 215);
    let bench = made.done();
    let document = ran(&bench, &["sim", "trace", "-m", "cascade-lake", "-p", "base", "--json"]).json();
    let trace = &document["traces"][0];
    assert_eq!(trace["simulations"][0]["instructions"], 15);
    let note = trace["notes"].to_string();
    assert!(note.contains("100 instructions of each thread before every window"), "{note}");
    assert!(note.contains("after 15 instructions recorded"), "{note}");
    let alone = ran(&bench, &["sim", "trace", "-m", "cascade-lake", "-p", "base", "--json", "--accesses-only"]).json();
    assert_eq!(alone["traces"][0]["simulations"][0]["instructions"], 15);
    let swept = ran(&bench, &["sim", "sweep", "trace", "--json"]).json();
    assert_eq!(swept["traces"][0]["instructions"], 15);
    assert!(swept["traces"][0]["notes"].to_string().contains("the trace is a part of the run"), "{swept}");
    let info = ran(&bench, &["trace", "info", "trace"]).stdout;
    assert!(info.contains("15 of 215 instructions") && !info.contains("nothing"), "{info}");
}

#[test]
fn an_old_file_stays_if_nothing_is_written() {
    let bench = threads();
    fs::write(bench.path("text"), "no trace\n").unwrap();
    let before = fs::read(bench.path("trace")).unwrap();
    let import = ["trace", "import", "--from", "lackey", "text", "-o", "trace"];
    bench.pagelab(&import).ran().assert_exit(2, &["text: line 1", "lackey"]);
    assert_eq!(fs::read(bench.path("trace")).unwrap(), before);
    let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    assert_eq!(fs::read_dir(bench.path("")).unwrap().flatten().filter(hidden).count(), 0);
}

#[test]
fn names_of_files_are_printed_escaped() {
    let bench = threads();
    let name = "a\u{1b}[31m";
    fs::copy(bench.path("trace"), bench.path(name)).unwrap();
    fs::write(bench.path("text"), " L 1000,8\n").unwrap();
    for words in [
        &["trace", "dump", name][..],
        &["trace", "dump", name, "--parquet", "b\u{1b}[31m"],
        &["trace", "cut", name, "-o", "c\u{1b}[31m", "--from", "1000000"],
        &["trace", "import", "--from", "lackey", "text", "-o", "d\u{1b}[31m"],
    ] {
        let ran = ran(&bench, words);
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{words:?} {ran}");
    }
    let tables = ran(&bench, &["trace", "dump", "trace", "--parquet", "tables"]).stdout;
    assert_eq!(tables.lines().count(), 2, "{tables}");
}

#[test]
fn tables_of_two_traces_are_not_mixed() {
    let bench = threads();
    let mut columns = Header::of("").columns;
    columns.addresses = true;
    let header = Header { columns, ..Header::of("a test") };
    let kept = Writer::new(fs::File::create(bench.path("kept")).unwrap(), &header).unwrap();
    kept.finish().unwrap();
    ran(&bench, &["trace", "dump", "kept", "--parquet", "tables"]);
    let mixed = bench.pagelab(&["trace", "dump", "trace", "--parquet", "tables"]).ran();
    mixed.assert_exit(2, &["tables/accesses.parquet: of another trace", "another directory"]);
    bench
        .pagelab(&["trace", "dump", "trace", "--parquet", "kept"])
        .ran()
        .assert_exit(2, &["kept: ", "a name for a new one"]);
}

#[test]
fn a_part_is_cut_from_a_file_alone() {
    let bench = threads();
    for other in ["/dev/null", "/"] {
        let ran = bench.pagelab(&["trace", "cut", other, "-o", "part"]).ran();
        ran.assert_exit(2, &[other, "not a regular file", "write the trace to a file"]);
    }
    assert!(!bench.path("part").exists());
}

#[test]
fn a_damaged_header_is_called_that() {
    let bench = threads();
    let whole = fs::read(bench.path("trace")).unwrap();
    for at in [12, 70] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(bench.path("trace"), bytes).unwrap();
        bench
            .pagelab(&["trace", "info", "trace"])
            .ran()
            .assert_exit(2, &["trace: the trace's header", "another copy of the file"]);
    }
}

#[test]
fn importers_say_which_record_or_line_is_none_of_theirs() {
    let bench = Bench::new();
    let refused = |tool: &str, input: &[u8], parts: &[&str]| {
        fs::write(bench.path("input"), input).unwrap();
        bench.pagelab(&["trace", "import", "--from", tool, "input", "-o", "trace"]).ran().assert_exit(2, parts);
        assert!(!bench.path("trace").exists());
    };
    refused(
        "champsim",
        &b"I  04001090,3\n L 1ffeff,8\n".repeat(64),
        &["record 1 of 64 bytes", "a branch flag of 0 or 1"],
    );
    refused("lackey", b" L 1000,8\n L 10", &["line 2, the last", "sed '$d'"]);
    refused("lackey", b"L\x1b[2J\n", &["line 1: found", "lackey"]);
    refused("champsim", &[0x1f, 0x8b, 8, 0], &["gzip -dc FILE | pagelab trace import"]);
}
