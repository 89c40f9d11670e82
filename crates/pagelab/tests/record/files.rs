//! Tests of trace files: cut, printed as tables, damaged, and with extreme numbers.

use super::*;

#[test]
fn a_part_of_a_trace_is_a_trace() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    record(&bench, &[], &[&path, "threads"]).ran().assert_exit(0, &[]);
    let whole = info(&bench, "trace");
    let cut = |options: &[&str]| {
        let mut command = bench.pagelab(&["trace", "cut", "trace", "-o", "part"]);
        command.args(options).ran().assert_exit(0, &[]);
        sound(&bench, "part");
        info(&bench, "part")
    };
    let same = cut(&[]);
    assert_eq!(same["threads"], whole["threads"]);
    let one = cut(&["--thread", "2"]);
    assert_eq!(one["threads"][2]["runs"], whole["threads"][2]["runs"]);
    assert_eq!(one["total"]["runs"], whole["threads"][2]["runs"]);
    // The event by which another thread mapped the memory of this thread is kept.
    assert_eq!(one["threads"][0]["events"], whole["threads"][0]["events"]);
    let missing = bench.pagelab(&["trace", "cut", "trace", "-o", "missing", "--thread", "1", "--thread", "9"]).ran();
    missing.assert_exit(2, &["trace: it has no thread 9 (--thread); it has 0 to 3"]);
    assert!(!bench.path("missing").exists());
    let nothing = cut(&["--from", "1000000000"]);
    assert_eq!(nothing["total"]["runs"], 0);
    let over = bench.pagelab(&["trace", "cut", "trace", "-o", "trace"]).ran();
    over.assert_exit(2, &["is the input", "-o"]);
}

#[test]
fn a_trace_becomes_tables() {
    let bench = Bench::new();
    std::fs::write(bench.path("text"), "I  04001090,3\n L 1ffeff,8\n".repeat(1000)).unwrap();
    bench.pagelab(&["trace", "import", "--from", "lackey", "text", "-o", "trace"]).ran().assert_exit(0, &[]);
    let tables = bench.pagelab(&["trace", "dump", "trace", "--parquet", "tables", "--json"]).ran().json();
    let dumped = bench.pagelab(&["trace", "dump", "trace", "--json"]).ran().stdout;
    let runs = dumped.lines().filter(|line| line.contains("\"run\":")).count();
    assert_eq!((&tables["schema"], &tables["files"][0]["rows"]), (&"pagelab.trace-parquet/1".into(), &runs.into()));
    for file in ["tables/runs.parquet", "tables/events.parquet"] {
        assert!(std::fs::read(bench.path(file)).unwrap().ends_with(b"PAR1"), "{file}");
    }
    bench.pagelab(&["trace", "dump", "trace", "--parquet", "trace"]).ran().assert_exit(2, &["trace: "]);
}

#[test]
fn numbers_of_a_file_from_anywhere_lead_to_no_panic_and_no_memory() {
    use trace::{Builder, Call, Event, Header, Kind, Run, Writer};
    let bench = Bench::new();
    let mut writer = Writer::new(std::fs::File::create(bench.path("trace")).unwrap(), &Header::of("a test")).unwrap();
    let outside = Call::Outside { accesses: u64::MAX, instructions: u64::MAX };
    let region =
        Call::Region { address: u64::MAX, bytes: u64::MAX, protection: u64::MAX, name: "\u{1b}[2J".to_owned() };
    let event = |order, call: &Call| Event { run: u64::MAX, order, call: call.clone(), result: i64::MIN };
    let events = [event(0, &outside), event(1, &outside), event(u64::MAX, &region)];
    for thread in [u32::MAX, 7] {
        let mut builder = Builder::new(Header::of("").columns);
        builder.push(Run { page: u64::MAX >> 12, kind: Kind::LOAD, accesses: u32::MAX }, &[]);
        writer.runs(thread, &builder.take(), u64::MAX).unwrap();
        writer.events(thread, &events, u64::MAX).unwrap();
    }
    writer.finish().unwrap();
    let info = info(&bench, "trace");
    assert_eq!((&info["threads"][0]["thread"], &info["threads"][1]["thread"]), (&7.into(), &u32::MAX.into()));
    assert_eq!((&info["outside_accesses"], &info["total"]["instructions"]), (&u64::MAX.into(), &u64::MAX.into()));
    for words in [&["info", "trace"][..], &["check", "trace"], &["dump", "trace"], &["dump", "--json", "trace"]] {
        let ran = bench.pagelab(&[&["trace"], words].concat()).ran();
        ran.assert_exit(0, &[]);
        assert!(!ran.stdout.contains('\u{1b}'), "{ran}");
    }
    bench.pagelab(&["trace", "dump", "trace", "--parquet", "tables"]).ran().assert_exit(0, &[]);
    bench.pagelab(&["trace", "cut", "trace", "-o", "part", "--thread", "7"]).ran().assert_exit(0, &[]);
    // The highest thread number, and an event with the highest order number.
    let mut writer = Writer::new(std::fs::File::create(bench.path("trace")).unwrap(), &Header::of("a test")).unwrap();
    let mut builder = Builder::new(Header::of("").columns);
    builder.push(Run { page: 1, kind: Kind::LOAD, accesses: 1 }, &[]);
    writer.runs(u32::MAX, &builder.take(), 1).unwrap();
    writer.events(u32::MAX, &[event(u64::MAX, &Call::Exit { status: 0 })], 1).unwrap();
    writer.finish().unwrap();
    bench.pagelab(&["sim", "trace", "-m", "cortex-a57", "-p", "base"]).ran().assert_exit(0, &[]);
}

#[test]
fn reports_damage_in_a_trace_and_reads_around_it() {
    let bench = Bench::new();
    let text = "I  04001090,3\n L 1ffeff,8\n".repeat(1000);
    std::fs::write(bench.path("text"), text).unwrap();
    let import = ["trace", "import", "--from", "lackey", "text", "-o", "trace", "--json"];
    assert_eq!(bench.pagelab(&import).ran().json()["schema"], "pagelab.trace-import/1");
    sound(&bench, "trace");
    assert_eq!(info(&bench, "trace")["total"]["accesses"], 2000);
    let mut bytes = std::fs::read(bench.path("trace")).unwrap();
    let payload = bytes.windows(8).enumerate().filter(|(_, window)| window.starts_with(b"\x89PLTRC")).nth(1).unwrap().0;
    bytes[payload + 70] ^= 1;
    std::fs::write(bench.path("damaged"), &bytes).unwrap();
    let check = bench.pagelab(&["trace", "check", "damaged"]).ran();
    check.assert_exit(1, &["1 damaged place;"]).assert_stdout(&[&format!("at byte {payload}"), "checksum"]);
    let document = bench.pagelab(&["trace", "check", "--json", "damaged"]).ran().json();
    assert_eq!((&document["damages"][0]["offset_bytes"], &document["whole"]), (&payload.into(), &true.into()));
    std::fs::write(bench.path("cut off"), &bytes[..payload + 90]).unwrap();
    bench.pagelab(&["trace", "check", "cut off"]).ran().assert_exit(1, &[]);
    for (name, content, message) in [("empty", "", "empty"), ("other", "hello, this is something else", "no trace")] {
        std::fs::write(bench.path(name), content).unwrap();
        for verb in ["info", "check", "dump"] {
            bench.pagelab(&["trace", verb, name]).ran().assert_exit(2, &[name, message]);
        }
    }
    let wrong = ["trace", "import", "--from", "lackey", "other", "-o", "imported"];
    bench.pagelab(&wrong).ran().assert_exit(2, &["line 1", "lackey"]);
    assert!(!bench.path("imported").exists());
}
