//! Tests with threads and forked processes, and with programs that have libraries or an interpreter.

use super::*;

#[test]
fn every_thread_has_its_stream() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let ran = record(&bench, &[], &[&path, "threads"]).ran();
    ran.assert_exit(0, &[]);
    sound(&bench, "trace");
    let shared: u64 = ran.stdout.trim().parse().unwrap();
    let lines = dumped(&bench, "trace");
    let info = info(&bench, "trace");
    assert_eq!(info["threads"].as_array().unwrap().len(), 4);
    let mapped = events(&lines, "mmap").find(|event| event["result"] == shared).unwrap()["order"].as_u64().unwrap();
    for thread in 1..4u64 {
        let pages = touched(&lines, thread);
        assert!((0..64).all(|page| pages.contains(&(shared + page * 4096))), "{thread}: {pages:x?}");
        // A thread that accesses memory mapped by another thread records that mapping before its first access.
        let seen = lines.iter().find(|line| line["thread"] == thread && line["event"]["call"] == "seen");
        let seen = &seen.unwrap()["event"];
        assert!(seen["run"] == 0 && seen["order"].as_u64() > Some(mapped), "{seen}");
    }
    // glibc tries clone3 first, which QEMU does not implement.
    assert_eq!(events(&lines, "clone").filter(|event| event["result"].as_i64() > Some(0)).count(), 3);
    assert_eq!(events(&lines, "exit").count(), 4);
}

#[test]
fn many_threads_share_the_memory_of_few() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let most_kib = |command: &mut Command| -> u64 { command.ran().assert_exit(0, &[]).stdout.trim().parse().unwrap() };
    let mut plain = Command::new("qemu-x86_64");
    plain.args([&path, "many threads"]);
    let (plain_kib, recorded_kib) =
        (most_kib(&mut plain), most_kib(&mut record(&bench, &[], &[&path, "many threads"])));
    sound(&bench, "trace");
    let info = info(&bench, "trace");
    assert_eq!(info["threads"].as_array().unwrap().len(), 301);
    // No access is lost: every thread has the accesses of its loop, and those of its start and end.
    let accesses = |thread: usize| info["threads"][thread]["data_accesses"].as_u64().unwrap();
    assert!((1..=300).all(|thread| (5000..12_000).contains(&accesses(thread))), "{info:#}");
    assert!(recorded_kib < plain_kib + (128 << 10), "{plain_kib} {recorded_kib}");
}

#[test]
fn a_forked_process_has_a_trace_of_its_own() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let ran = record(&bench, &[], &[&path, "forks"]).ran();
    ran.assert_exit(13, &[]);
    let printed: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[child, shared] = &printed[..] else { panic!("{ran}") };
    let child_trace = format!("trace.{child}");
    sound(&bench, "trace");
    sound(&bench, &child_trace);
    let (parents, childs) = (dumped(&bench, "trace"), dumped(&bench, &child_trace));
    assert!(events(&parents, "clone").any(|event| event["result"] == child));
    let pages = |lines: &[Value]| (0..64).filter(|page| touched(lines, 0).contains(&(shared + page * 4096))).count();
    assert_eq!(pages(&childs), 64);
    // QEMU 10 may have mapped this memory in place of another mapping, so its accesses are not checked there.
    assert!(pages(&parents) == 0 || !qemu_before(&bench, 8));
    // Memory that a child inherits is a region from the start of its trace.
    let inherited = events(&childs, "region").find(|region| {
        let (address, bytes) = (region["address"].as_u64().unwrap(), region["bytes"].as_u64().unwrap());
        address <= shared && shared + 64 * 4096 <= address + bytes
    });
    assert!(inherited.is_some());
    // The PID of the process to which a trace file belongs.
    let process = |trace: &str| info(&bench, trace)["header"]["process"].clone();
    let parent = process("trace")["process"].as_u64().unwrap();
    assert_eq!(process("trace"), serde_json::json!({ "process": parent, "parent": null }));
    assert_eq!(process(&child_trace), serde_json::json!({ "process": child, "parent": parent }));
    // A forked process starts with the heap and the stack of its parent.
    let names: Vec<&str> = events(&childs, "region").map(|region| region["name"].as_str().unwrap()).collect();
    assert!(["[heap]", "[stack]"].iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!(events(&childs, "exit").next().unwrap()["status"], 3);
    assert_eq!(info(&bench, &child_trace)["threads"].as_array().unwrap().len(), 1);
}

/// Records a dynamic program for another instruction set, with its libraries in Debian's directory.
fn foreign(compiler: &'static str, emulator: &'static str, sysroot: &'static str) {
    if !needs(&[recording(emulator), program(compiler)]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, compiler, "processes.c", &HOSTED);
    let without = record(&bench, &[], &[&path, "closes"]).ran();
    without.assert_exit(2, &["before anything was recorded", "--sysroot"]);
    assert!(!bench.path("trace").exists());
    let ran = record(&bench, &["--sysroot", sysroot], &[&path, "threads"]).ran();
    ran.assert_exit(0, &[]);
    sound(&bench, "trace");
    let shared: u64 = ran.stdout.trim().parse().unwrap();
    let lines = dumped(&bench, "trace");
    assert!((1..4).all(|thread| touched(&lines, thread).contains(&shared)));
    let regions: Vec<&str> = events(&lines, "region").map(|region| region["name"].as_str().unwrap()).collect();
    assert!(regions.iter().any(|name| name.starts_with(sysroot)) && regions.contains(&"[stack]"), "{regions:?}");
    let end = record(&bench, &["--sysroot", sysroot], &[&path, "forks"]).ran();
    end.assert_exit(13, &[]);
}

#[test]
fn a_dynamic_aarch64_program_is_recorded_with_its_libraries() {
    foreign("aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu");
}

#[test]
fn a_dynamic_riscv64_program_is_recorded_with_its_libraries() {
    foreign("riscv64-linux-gnu-gcc", "qemu-riscv64", "/usr/riscv64-linux-gnu");
}

#[test]
fn a_script_is_recorded_as_its_interpreter() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let script = bench.script("script", "exit 5");
    record(&bench, &[], &[&script]).ran().assert_exit(5, &[]);
    sound(&bench, "trace");
}

/// Whether a program starts with larger base pages depends on its own linker, so a machine of another architecture is not refused.
#[test]
fn the_alignment_of_a_program_counts_on_machines_of_its_architecture() {
    let needed =
        [recording("qemu-x86_64"), recording("qemu-aarch64"), program("gcc"), program("aarch64-linux-gnu-gcc")];
    if !needs(&needed) {
        return;
    }
    let bench = Bench::new();
    for (compiler, page_bytes, holding) in
        [("aarch64-linux-gnu-gcc", 4096, "not_held"), ("aarch64-linux-gnu-gcc", 65536, "held"), ("gcc", 4096, "held")]
    {
        let alignment = format!("-Wl,-z,max-page-size={page_bytes}");
        let path = compiled(&bench, compiler, "processes.c", &["-O1", "-pthread", "-static", &alignment]);
        record(&bench, &["--no-native-run"], &[&path, "nothing"]).ran().assert_exit(0, &[]);
        assert_eq!(info(&bench, "trace")["header"]["max_base_bytes"], page_bytes, "{compiler}");
        let document = bench.pagelab(&["sim", "trace", "-m", "neoverse-n1", "-p", "base-64k", "--json"]).ran().json();
        let verdict = &document["traces"][0]["simulations"][0]["verdict"];
        assert_eq!(verdict["holding"], holding, "{compiler} {page_bytes}: {verdict}");
    }
}
