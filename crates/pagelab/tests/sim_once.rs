//! Tests that `pagelab sim` reads a trace once, whatever it shows about the trace.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::Bench;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use trace::{Call, Columns, Header, Kind, Recording};

/// Where the memory of the program begins.
const BEGIN: u64 = 0x10_0000_0000;
/// The number of pages that the program has.
const PAGES: u64 = 2048;
const ACCESSES: u64 = 600_000;

/// Writes a trace of random accesses, which do not compress. Returns its size.
fn write(bench: &Bench, tells_of_memory: bool) -> u64 {
    let columns = Columns { kinds: true, accesses: true, addresses: true };
    let file = fs::File::create(bench.path("a.trace")).unwrap();
    let mut recording = Recording::new(file, Header { columns, ..Header::of("a test") }).unwrap();
    if tells_of_memory {
        let (bytes, file_system) = (PAGES << 12, None);
        let mapping = Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system };
        recording.event(0, mapping, BEGIN as i64);
    }
    let mut random = 1u64;
    for _ in 0..ACCESSES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        recording.access(0, BEGIN + (random >> 33) % (PAGES << 12) / 8 * 8, 8, Kind::LOAD).unwrap();
    }
    recording.finish().unwrap();
    fs::metadata(bench.path("a.trace")).unwrap().len()
}

/// How many bytes a command reads in all its system calls. The kernel keeps this count for a process that has ended
/// until its parent waits for it.
fn read_by(mut command: Command) -> u64 {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    waitid(Id::Pid(Pid::from_raw(child.id() as i32)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let counts = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
    assert!(child.wait().unwrap().success());
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn every_byte_of_a_trace_is_read_once() {
    let bench = Bench::new();
    for tells_of_memory in [true, false] {
        let size = write(&bench, tells_of_memory);
        let page = bench.word("page.html");
        for options in [
            &["-m", "cascade-lake,neoverse-n1", "-p", "base,thp"][..],
            &["-p", "base", "--html", &page],
            &["-p", "base", "--curves", "--json"],
            &["-p", "base", "--accesses-only"],
        ] {
            let read = read_by(bench.pagelab(&[&["sim", "a.trace"], options].concat()));
            assert!((size..size + size / 4).contains(&read), "{read} of {size} bytes: {options:?}, {tells_of_memory}");
        }
        let read = read_by(bench.pagelab(&["sim", "sweep", "a.trace", "--pages", "4K", "--ways", "4"]));
        assert!((size..size + size / 4).contains(&read), "{read} of {size} bytes: sweep");
    }
}
