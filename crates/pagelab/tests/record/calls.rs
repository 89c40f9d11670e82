//! Tests of recorded system calls, and of the memory that the kernel accesses for them.

use super::*;

#[test]
fn calls_that_change_the_address_space_have_arguments_and_results() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "address_space.c", &HOSTED);
    let ran = record(&bench, &[], &[&path]).ran();
    ran.assert_exit(0, &[]);
    let printed: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[first, moved, end] = &printed[..] else { panic!("{ran}") };
    let lines = dumped(&bench, "trace");
    let has = |call: &str, result: i64, arguments: &[(&str, u64)]| {
        let found = events(&lines, call)
            .any(|event| event["result"] == result && arguments.iter().all(|(name, value)| event[*name] == *value));
        assert!(found, "no {call} {arguments:?} = {result} in {:#?}", events(&lines, call).collect::<Vec<_>>());
    };
    has("mmap", first as i64, &[("address", 0), ("bytes", 0x5000), ("protection", 3), ("flags", 0x22)]);
    has("mprotect", 0, &[("address", first), ("bytes", 0x1000), ("protection", 1)]);
    has("madvise", 0, &[("address", first + 0x1000), ("bytes", 0x2000), ("advice", 4)]);
    let moving = [("address", first + 0x1000), ("old_bytes", 0x4000), ("new_bytes", 0x9000), ("flags", 1)];
    has("mremap", moved as i64, &moving);
    has("munmap", 0, &[("address", moved + 0x8000), ("bytes", 0x1000)]);
    has("munmap", -22, &[("address", 1)]);
    has("prctl", 0, &[("option", 29), ("argument", 77)]);
    has("brk", end as i64, &[("address", end)]);
    // With one thread, no thread uses a mapping of another, so there is no event for that; and the order numbers
    // increase.
    assert_eq!(events(&lines, "seen").count(), 0);
    let orders: Vec<u64> = lines.iter().filter_map(|line| line["event"]["order"].as_u64()).collect();
    assert!(orders.iter().copied().eq(0..orders.len() as u64), "{orders:?}");
}

/// Records the accesses of the kernel for a program, for one instruction set.
fn kernel(compiler: &'static str, emulator: &'static str) {
    if !needs(&[recording(emulator), program(compiler)]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, compiler, "kernel.c", &["-O1", "-static"]);
    let ran = record(&bench, &[], &[&path]).ran();
    ran.assert_exit(0, &[]);
    sound(&bench, "trace");
    let printed: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[written, read_into, parts, status, late] = &printed[..] else { panic!("{ran}") };
    let lines = dumped(&bench, "trace");
    let by_kernel = |what: &str, begin: u64| of_kind(&lines, what, begin, 32);
    assert_eq!(by_kernel("kernel load", written), [0, 1, 2, 0]);
    assert_eq!(by_kernel("kernel store", read_into), [0, 1, 2]);
    assert_eq!(by_kernel("kernel store", parts), [0, 2]);
    // Calls that fail write nothing to memory.
    assert_eq!(by_kernel("kernel store", status), [0]);
    for own in ["load", "store", "load+store", "store+load"] {
        for begin in [written, read_into, parts] {
            assert_eq!(by_kernel(own, begin), [0u64; 0], "{own}");
        }
    }
    // An event ends the current runs, so that accesses after the event are in new runs.
    assert_eq!(by_kernel("store", late), [0, 0]);
    let unmapped = events(&lines, "munmap").find(|event| event["address"] == late + 4096).unwrap();
    let of_late = |line: &&Value| line["run"].is_u64() && line["address"] == late;
    let numbers: Vec<u64> = lines.iter().filter(of_late).map(|line| line["run"].as_u64().unwrap()).collect();
    let at = unmapped["run"].as_u64().unwrap();
    assert!(numbers[0] < at && at <= numbers[1], "{numbers:?} {at}");
    // Mappings that existed at the start are shown with their names.
    bench.pagelab(&["trace", "info", "trace"]).ran().assert_stdout(&["[stack]", "rw-", "by the kernel"]);
    let total = &info(&bench, "trace")["total"];
    assert!(total["kernel_accesses"].as_u64() > Some(10), "{total}");
}

#[test]
fn records_kernel_accesses_for_an_x86_64_program() {
    kernel("gcc", "qemu-x86_64");
}

#[test]
fn records_kernel_accesses_for_an_aarch64_program() {
    kernel("aarch64-linux-gnu-gcc", "qemu-aarch64");
}

#[test]
fn records_kernel_accesses_for_a_riscv64_program() {
    kernel("riscv64-linux-gnu-gcc", "qemu-riscv64");
}
