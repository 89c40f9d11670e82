//! Tests of `pagelab sim` as a command: with real input, tables, JSON, and input that is refused.

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::fs;

use common::{Bench, Ran, Runs};
use serde_json::Value;
use trace::{Call, Header, Kind, Process, Recording};
use traced::{Traced, lackey};

#[test]
fn machines_and_policies_make_a_matrix_with_reasons() {
    let traced = Traced::new();
    let document = traced.json(&["-m", "cascade-lake,neoverse-n1", "-p", "base,thp,base-64k"]);
    assert_eq!(document["schema"], "pagelab.sim/1");
    let cells = document["traces"][0]["simulations"].as_array().unwrap();
    let faults: Vec<Option<u64>> = cells.iter().map(|cell| cell["faults"].as_u64()).collect();
    // Faults for 1024 pages of 4K, for two of 2M, or for 64 of 64K in the aligned memory, and in each case one for the
    // code.
    assert_eq!(faults, [Some(1025), Some(3), None, Some(1025), Some(3), Some(65)]);
    assert!(cells[2]["unsupported"].as_str().unwrap().contains("no base pages of 64K"));
    assert_eq!(cells[0]["first_level"]["load"], 2048);
    assert_eq!(cells[0]["instructions"], 2048);
    assert_eq!(document["traces"][0]["memory_inferred"], true);
    let text = traced.sim(&["-p", "base,contig-64k"]);
    assert!(text.stdout.contains("1,025") && text.stdout.contains("no contiguous pages"), "{}", text.stdout);
}

#[test]
fn every_policy_has_a_verdict_and_causes() {
    let traced = Traced::new();
    // The program has 4M and a page of code. 2M leaves can map the 4M, and 1G leaves cannot.
    let arguments = ["-m", "cascade-lake", "-p", "base,thp,hugetlb-1g"];
    let document = traced.json(&arguments);
    let verdicts: Vec<&Value> =
        document["traces"][0]["simulations"].as_array().unwrap().iter().map(|cell| &cell["verdict"]).collect();
    let words: Vec<&str> = verdicts.iter().map(|verdict| verdict["holding"].as_str().unwrap()).collect();
    assert_eq!(words, ["held", "held", "not_held"], "{document:#}");
    assert_eq!(verdicts[1]["covered_bytes"], 4 << 20);
    let cause = &verdicts[2]["causes"][0];
    assert_eq!((cause["code"].as_str(), cause["bytes"].as_u64()), (Some("mapping_too_small"), Some((4 << 20) + 4096)));
    traced.sim(&arguments).assert_stdout(&[
        "not held 0 %",
        "held >99 %",
        "hugetlb-1g: 4.00M, mappings smaller than one page",
        "in the source: allocate multiples of the size",
    ]);
}

/// A program cannot disable the pages of a large-page policy. As under `compare`, its attempt is reported.
#[test]
fn calls_against_a_policy_are_answered_and_reported() {
    const BEGIN: u64 = 0x10_0000_0000;
    let bench = Bench::new();
    let file = bench.path("a.trace");
    let mut recording = Recording::new(fs::File::create(&file).unwrap(), Header::of("test")).unwrap();
    let mapping =
        Call::Mmap { address: 0, bytes: 2 << 20, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    recording.event(0, Call::Prctl { option: 41, argument: 1 }, 0);
    recording.event(0, mapping, BEGIN as i64);
    recording.event(0, Call::Madvise { address: BEGIN, bytes: 2 << 20, advice: 15 }, 0);
    recording.access(0, BEGIN, 8, Kind::STORE).unwrap();
    recording.finish().unwrap();
    let sim = |last: &str| {
        bench.pagelab(&["sim", &file.display().to_string(), "-m", "cascade-lake", "-p", "base,thp", last]).ran()
    };
    let document: Value = serde_json::from_str(&sim("--json").stdout).unwrap();
    let [base, thp] = [0, 1].map(|cell| &document["traces"][0]["simulations"][cell]["verdict"]);
    assert_eq!(
        (&base["holding"], &thp["holding"], &thp["covered_bytes"]),
        (&"held".into(), &"held".into(), &(2 << 20).into())
    );
    assert_eq!(base["answered_calls"], Value::Array(vec![]), "what the policy wants too is no news");
    let answered: Vec<&str> =
        thp["answered_calls"].as_array().unwrap().iter().map(|call| call["call"].as_str().unwrap()).collect();
    assert_eq!(answered, ["madvise(MADV_NOHUGEPAGE)", "prctl(PR_SET_THP_DISABLE, 1)"]);
    let text = sim("--full").stdout;
    assert!(
        text.contains("thp: answered as the tracer does, not by the kernel: madvise(MADV_NOHUGEPAGE) (1)"),
        "{text}"
    );
}

#[test]
fn rates_are_per_instruction_and_per_run() {
    let document = Traced::new().json(&["-p", "base", "-m", "cascade-lake"]);
    let cell = &document["traces"][0]["simulations"][0];
    let (instructions, runs) = (cell["instructions"].as_f64().unwrap(), cell["runs"].as_f64().unwrap());
    let walks = cell["walks"].as_f64().unwrap();
    assert_eq!(cell["per_instruction"]["walks"].as_f64().unwrap(), walks / instructions);
    assert_eq!(cell["per_run"]["walks"].as_f64().unwrap(), walks / runs);
    assert!(cell["per_run"]["max_lost_cycles"].as_f64().unwrap() > 0.0);
    assert!(document["machines"][0]["figures"].as_array().unwrap().len() > 20);
}

#[test]
fn the_accesses_alone_are_simulated_without_calls() {
    let traced = Traced::new();
    let mut recording = Recording::new(Vec::new(), Header::of("test")).unwrap();
    let map =
        Call::Mmap { address: 0, bytes: 8192, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    for _ in 0..3 {
        recording.event(0, map.clone(), 0x1000_0000);
        // Two pages are accessed alternately, because consecutive accesses to one page form one run.
        recording.access(0, 0x1000_0000, 8, Kind::STORE).unwrap();
        recording.access(0, 0x1000_1000, 8, Kind::STORE).unwrap();
        recording.event(0, Call::Munmap { address: 0x1000_0000, bytes: 8192 }, 0);
    }
    fs::write(&traced.file, recording.finish().unwrap()).unwrap();
    for (option, misses) in [(&["-m", "cascade-lake", "-p", "base"][..], 6), (&["--accesses-only", "-p", "base"], 2)] {
        let document = traced.json(option);
        let (settings, traced) = (&document["settings"], &document["traces"][0]);
        assert_eq!(settings["accesses_only"], misses == 2);
        assert_eq!(traced["simulations"][0]["second_level"]["load"], misses, "{document:#}");
        let noted =
            traced["notes"].as_array().unwrap().iter().any(|note| note.to_string().contains("only the accesses"));
        assert_eq!(noted, misses == 2);
    }
    traced.sweep(&["--accesses-only"]).assert_exit(2, &["unexpected argument '--accesses-only'"]);
}

#[test]
fn curves_and_a_page_are_made_where_they_are_asked_for() {
    let traced = Traced::new();
    assert_eq!(traced.json(&["-p", "base"])["traces"][0]["curves"], Value::Null);
    let curves = &traced.json(&["-p", "base", "--curves"])["traces"][0]["curves"];
    let points = curves["misses"][0]["points"].as_array().unwrap();
    // 1024 pages in order, twice, and one page of code: they fit into 2048 TLB entries, but not into 512.
    let misses = |entries: u64| points.iter().find(|point| point["entries"] == entries).unwrap()["misses"].as_u64();
    assert_eq!((misses(2048), misses(512)), (Some(1025), Some(2049)));
    assert_eq!(curves["footprints"][0]["touched_bytes"], 1025 * 4096);
    assert!(traced.sim(&["--curves"]).stdout.contains("all touched pages"));

    let page = traced.bench.path("page.html").display().to_string();
    let ran = traced.sim(&["-p", "base,thp,contig-64k", "-m", "zen-3,cortex-a57", "--html", &page]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let html = fs::read_to_string(&page).unwrap();
    for part in ["zen-3: cycles lost", "unsupported", "assumed", "--html", "4 sets of 8 ways", "(modelled)", "verdict"]
    {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<script") && !html.contains("href=") && !html.contains("src="));
    assert!(html.contains("scans eight PMDs every 10 s at 2500000000 instructions/s; all pages but one"));
    let linux = "[khugepaged]\nscan_sleep_millisecs = 500\nmax_ptes_none = 0\n[mthp]\nalso_enabled = [\"16K\"]";
    traced.under(linux, &["-p", "mthp-64k", "--html", &page]).assert_exit(0, &[]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("every 0.5 s") && html.contains("; 0 pages of a window") && html.contains("<dd>16K</dd>"));
    assert_eq!(traced.sim(&["-p", "base", "--accesses-only", "--html", &page]).code, Some(0));
    assert!(fs::read_to_string(&page).unwrap().contains("none: only the accesses"));
    let ran = traced.sweep(&["--html", &page]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read_to_string(&page).unwrap().contains("TLB misses of"));
    let ran = traced.sim(&["--html", "/nonexistent/page.html"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("/nonexistent/page.html cannot be written"), "{}", ran.stderr);
}

#[test]
fn many_traces_are_many_tables_and_one_document() {
    let traced = Traced::new();
    let second = traced.bench.path("second.trace").display().to_string();
    fs::copy(&traced.file, &second).unwrap();
    let document = traced.json(&[&second, "-p", "base,thp"]);
    let traces = document["traces"].as_array().unwrap();
    assert_eq!(traces.len(), 2);
    assert_eq!(traces[0]["simulations"], traces[1]["simulations"]);
    assert_eq!(document["machines"].as_array().unwrap().len(), 1);
    let ran = traced.sim(&[&second]);
    assert!(
        ran.stdout.contains("second.trace: 2048 instructions, 4096 accesses") && ran.stderr.is_empty(),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
}

#[test]
fn the_result_is_the_same_for_any_number_of_threads() {
    let traced = Traced::new();
    let arguments =
        ["-m", "zen-4,rva23,cortex-a57", "-p", "base,mthp-64k,thp", "--fragmentation", "50%", "--seed", "3"];
    let one = traced.json(&[&arguments[..], &["--threads", "1"]].concat());
    for threads in ["2", "5"] {
        assert_eq!(traced.json(&[&arguments[..], &["--threads", threads]].concat()), one);
    }
}

#[test]
fn reports_what_cannot_be_simulated() {
    let traced = Traced::new();
    let toml = traced.bench.path("bad.toml");
    fs::write(&toml, "schema = \"pagelab.machine/1\"\nspeed = 3\n").unwrap();
    let toml = toml.display().to_string();
    let misspelt = traced.bench.word("misspelt.toml");
    fs::write(&misspelt, "schema = \"pagelab.machine/1\"\nname = \"a\"\nprocesor = \"b\"\n").unwrap();
    let empty = traced.bench.path("empty").display().to_string();
    fs::write(&empty, "").unwrap();
    for (arguments, code, words) in [
        (vec!["-m", "zen-9"], 2, "the nearest is \"zen-"),
        (vec!["-m", &toml], 2, "unknown field `speed`"),
        (vec!["-m", &misspelt], 2, "misspelt.toml: line 3: unknown field `procesor`, expected "),
        (vec!["-m", &misspelt], 2, "; the nearest is `processor`\n"),
        (vec!["-p", "base-8k"], 2, "contig-64k"),
        (vec!["-m", "zen-2", "-p", "contig-64k"], 3, "reasons are above"),
        (vec!["--memory", "1K"], 2, "1M to 256G"),
        (vec!["--linux", &toml], 2, "schema: expected \"pagelab.linux/1\", found \"pagelab.machine/1\""),
        (vec!["--linux", "/nonexistent.toml"], 2, "/nonexistent.toml: No such file"),
        (vec!["--accesses-only", "--linux", &toml], 2, "cannot be used with"),
        (vec!["sweep"], 2, "sweep: no such trace; the verb comes first: `pagelab sim sweep`"),
        (
            vec!["-p", "contig-64k+prefault"],
            2,
            "contig-64k does not take +prefault; expected contig-64k or contig-64k+thp",
        ),
        (vec![&empty], 2, "the file is empty"),
    ] {
        let ran = traced.sim(&arguments);
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{arguments:?}: {}", ran.stderr);
    }
    for (linux, words) in [
        ("[khugepaged]\nscan_sleep_millisecs = 0", "khugepaged.scan_sleep_millisecs: expected 1 or more, found 0"),
        ("[khugepaged]\nspeed = 3", "unknown field `speed`"),
        ("[khugepaged]\nscan_sleep_ms = 3", "line 3: unknown field `scan_sleep_ms`, expected one of "),
        (
            "[khugepaged]\nscan_sleep_ms = 3",
            "; the nearest is `scan_sleep_millisecs`; `pagelab list linux` shows every key",
        ),
        ("[mthp]\nalso_enabled = [\"24K\"]", "mthp.also_enabled: expected a power of two from 16K to 1G, found 24K"),
        ("instructions_per_s = \"fast\"", "line 2"),
    ] {
        let ran = traced.under(linux, &[]);
        ran.assert_exit(2, &["linux.toml: ", words]);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    }
    let little = traced.sim(&["-p", "base", "--memory", "1M"]);
    assert!(little.stdout.contains("memory was short: up to"), "{}", little.stdout);
    let mut bytes = fs::read(&traced.file).unwrap();
    bytes.truncate(bytes.len() - 20);
    fs::write(&traced.file, bytes).unwrap();
    assert!(traced.sim(&["-p", "base"]).stdout.contains("cut off"));
}

#[test]
fn refuses_unreadable_traces_and_reports_missing_parts_of_damaged_ones() {
    let traced = Traced::new();
    let file = traced.bench.path("bad.trace").display().to_string();
    let whole = fs::read(&traced.file).unwrap();
    let sim = |words: &[&str]| traced.bench.pagelab(&[&["sim"], words].concat()).ran();
    let newer = {
        // The header is JSON in a block with a checksum. The test writes another version string of the same length, and
        // updates the checksum.
        let text = b"pagelab.trace/";
        let at = whole.windows(text.len()).position(|window| window == text).unwrap();
        let mut newer = whole.clone();
        newer[at + text.len()] = b'9';
        newer
    };
    for (bytes, parts) in [
        (&b""[..], &["the file is empty", "pagelab record"][..]),
        (
            b"not a trace at all, but a text of more than sixty-four bytes, as editors write them",
            &["is no trace", "import"],
        ),
        (lackey().as_bytes(), &["is no trace", "`pagelab trace import`"]),
        (&whole[..40], &["the trace's header", "the file ends within the block", "record again"]),
        (&newer, &["bad.trace"]),
    ] {
        fs::write(&file, bytes).unwrap();
        for words in [&[file.as_str()][..], &["sweep", &file]] {
            sim(words).assert_exit(2, &[&["bad.trace"], parts].concat());
        }
    }
    for (path, words) in [
        ("/nonexistent.trace", "No such file or directory (os error 2); pagelab record -o FILE"),
        ("/tmp", "directory"),
    ] {
        sim(&[path]).assert_exit(2, &[path, words]);
    }
    // The end of the file is cut off. The rest of the trace is used.
    fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let cut = sim(&[&file, "-p", "base"]);
    assert_eq!(cut.code, Some(0), "{}", cut.stderr);
    assert!(cut.stdout.contains("the trace was cut off: its end is missing"), "{}", cut.stdout);
    says_incomplete(&sim, &file, "cut off");
    // The file has a hole in the middle. The rest of the trace is used.
    let mut holed = whole.clone();
    let middle = holed.len() / 2;
    holed[middle] ^= 0xff;
    fs::write(&file, &holed).unwrap();
    let ran = sim(&[&file, "-p", "base", "--json"]);
    if ran.code == Some(0) {
        says_incomplete(&sim, &file, "damaged parts");
    }
}

/// Checks that both documents, and the text of every geometry, report that the trace is incomplete.
fn says_incomplete(sim: &dyn Fn(&[&str]) -> Ran, file: &str, words: &str) {
    let simulated = &sim(&[file, "-p", "base", "--json"]).json()["traces"][0];
    assert_eq!(simulated["simulations"][0]["complete"], false);
    assert!(simulated["simulations"][0]["per_run"].is_object(), "what is there is an answer about itself");
    assert!(simulated["notes"].to_string().contains(words), "{}", simulated["notes"]);
    let swept = &sim(&["sweep", file, "--json"]).json()["traces"][0];
    assert_eq!(swept["complete"], false);
    assert!(swept["notes"].to_string().contains(words), "{}", swept["notes"]);
    let text = sim(&["sweep", file]).stdout;
    assert!(text.contains(words), "{text}");
}

#[test]
fn each_trace_must_have_an_answer() {
    let traced = Traced::new();
    let (text, high) = (traced.bench.word("high.txt"), traced.bench.word("high.trace"));
    fs::write(&text, "I  00400000,4\n S 10000000000,8\n").unwrap();
    let imported = traced.bench.pagelab(&["trace", "import", "--from", "lackey", "-o", &high, &text]).ran();
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    // The first trace has a result. The second has none, because it contains an address that Sv39 does not have.
    traced
        .sim(&[&high, "-p", "base", "-m", "sifive-u74"])
        .assert_exit(2, &["high.trace: no simulation reached the end"]);
    let ran = traced.sim(&[&high, "-p", "base", "-m", "sifive-u74,cascade-lake"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_trace_of_a_forked_process_that_is_of_another_recording_is_refused_by_its_name() {
    let traced = Traced::new();
    let file = traced.bench.path("forks.trace");
    let header = |process, parent| Header {
        process: Some(Process { process, parent, execs: 0 }),
        architecture: "x86_64".into(),
        ..Header::of("test")
    };
    let made = |header: Header, child: Option<i64>| {
        let mut recording = Recording::new(Vec::new(), header).unwrap();
        recording.access(0, 0x1000_0000, 8, Kind::STORE).unwrap();
        if let Some(child) = child {
            recording.event(0, Call::Clone { flags: 0 }, child);
        }
        recording.finish().unwrap()
    };
    let path = file.display().to_string();
    let sim = || traced.bench.pagelab(&["sim", &path, "-p", "base"]).ran();
    fs::write(&file, made(header(5, None), Some(7))).unwrap();
    for what in [&["sweep", path.as_str()][..], &[&path, "-p", "base", "--curves"]] {
        let ran = traced.bench.pagelab(&[&["sim"], what].concat()).ran();
        let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("only of the first process: 1 forked process"), "{ran}");
    }
    let child = traced.bench.path("forks.trace.7");
    assert!(sim().stdout.contains("1 process without a trace FILE.PID"));
    fs::write(&child, made(header(8, Some(5)), None)).unwrap();
    sim().assert_exit(2, &["forks.trace.7: its header has the process 8, expected 7"]);
    fs::write(&child, made(header(7, Some(5)), Some(7))).unwrap();
    sim().assert_exit(2, &["forks.trace.7: process 7 is forked a second time"]);
    fs::write(&child, made(header(7, Some(5)), None)).unwrap();
    let ran = sim();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fs::remove_file(&child).unwrap();
    fs::create_dir(&child).unwrap();
    sim().assert_exit(2, &["forks.trace.7", "directory"]);
}

#[test]
fn a_simulation_that_stops_early_does_not_look_like_an_answer() {
    let bench = Bench::new();
    let (text, file) = (bench.path("high.txt").display().to_string(), bench.path("high.trace").display().to_string());
    // An address that Sv39 does not have, and that belongs to neither the stack nor the program.
    fs::write(&text, "I  00400000,4\n S 10000000000,8\nI  00400004,4\n L 10000001000,8\n").unwrap();
    let imported = bench.pagelab(&["trace", "import", "--from", "lackey", "-o", &file, &text]).ran();
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let page = bench.path("page.html").display().to_string();
    let both = ["sim", &file, "-p", "base", "-m", "sifive-u74,cascade-lake"];
    let ran = bench.pagelab(&[&both[..], &["--html", &page]].concat()).ran();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("stopped early").count(), 2, "its row, and the result: {}", ran.stdout);
    assert!(ran.stdout.contains("sifive-u74 under base ended before the trace did"), "{}", ran.stdout);
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("take a machine whose programs have more bits of address"), "{words}");
    assert!(fs::read_to_string(&page).unwrap().contains("stopped early"));
    let ran = bench.pagelab(&[&both[..], &["--json"]].concat()).ran();
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let [stopped, whole] = &document["traces"][0]["simulations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&stopped["complete"], &whole["complete"]), (&Value::Bool(false), &Value::Bool(true)));
    assert!(stopped["stopped"].is_string() && stopped["per_run"].is_null() && stopped["verdict"].is_null());
    assert!(whole["stopped"].is_null() && whole["per_run"].is_object());
    bench
        .pagelab(&["sim", &file, "-p", "base", "-m", "sifive-u74"])
        .ran()
        .assert_exit(2, &["no simulation reached the end"]);
}
