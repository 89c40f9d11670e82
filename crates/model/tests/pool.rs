//! Faults of recorded calls under a hugetlb policy. Each number was measured on a running kernel under the policy
//! (`crates/pagelab/tests/programs/pool.c`), less the faults of a process that only starts and exits.

use std::collections::HashMap;

use model::machine::built_in;
use model::replay::{Child, replay_processes};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use trace::{Call, Header, Image, Kind, Recording};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const PAGE: u64 = 4096;
const CHILD: u32 = 7;
const MAY_MOVE: u64 = 1;

/// The recording of a program whose mappings are adjacent.
struct Program {
    recording: Recording<Vec<u8>>,
    next: u64,
}

impl Program {
    fn new() -> Program {
        Program { recording: Recording::new(Vec::new(), Header::of("test")).unwrap(), next: 0x40_0000_0000 }
    }

    fn call(&mut self, call: Call, result: u64) -> &mut Program {
        self.recording.event(0, call, result as i64);
        self
    }

    /// Maps memory and returns its address.
    fn map(&mut self, bytes: u64, protection: u64) -> u64 {
        let at = self.next;
        self.next += bytes;
        self.call(
            Call::Mmap { address: 0, bytes, protection, flags: 0x4022, file: -1, offset: 0, file_system: None },
            at,
        );
        at
    }

    fn protect(&mut self, address: u64, bytes: u64, protection: u64) -> &mut Program {
        self.call(Call::Mprotect { address, bytes, protection }, 0)
    }

    /// Moves memory and makes it larger, or makes it smaller in place. Returns its address.
    fn remap(&mut self, address: u64, old_bytes: u64, new_bytes: u64) -> u64 {
        let to = if new_bytes < old_bytes { address } else { self.next };
        self.next += new_bytes;
        self.call(Call::Mremap { address, old_bytes, new_bytes, flags: MAY_MOVE, new_address: 0 }, to);
        to
    }

    fn touch(&mut self, begin: u64, bytes: u64, kind: Kind) -> &mut Program {
        for va in (begin..begin + bytes).step_by(PAGE as usize) {
            self.recording.access(0, va, 8, kind).unwrap();
        }
        self
    }

    fn write(&mut self, begin: u64, bytes: u64) -> &mut Program {
        self.touch(begin, bytes, Kind::STORE)
    }

    fn read(&mut self, begin: u64, bytes: u64) -> &mut Program {
        self.touch(begin, bytes, Kind::LOAD)
    }
}

fn run(policy: &str, program: Program, child: Option<Program>) -> Outcome {
    let done = |program: Program| program.recording.finish().unwrap();
    let children: HashMap<u32, Vec<u8>> = child.map(|child| (CHILD, done(child))).into_iter().collect();
    let mut open = |image: Image| {
        let child =
            |bytes: &Vec<u8>| Child { name: "child".to_owned(), from: Box::new(std::io::Cursor::new(bytes.clone())) };
        Ok(children.get(&image.process).filter(|_| image.execs == 0).map(child))
    };
    let machine = built_in("cascade-lake").unwrap();
    let mut simulations = [Simulation::new(&machine, &policy.parse().unwrap(), &Physical::default()).unwrap()];
    replay_processes(&done(program)[..], &mut open, None, &mut simulations, 1).unwrap();
    simulations[0].outcome().unwrap()
}

fn faults(program: Program) -> u64 {
    run("hugetlb-2m", program, None).costs.faults()
}

#[test]
fn a_reservation_opened_in_steps_has_hugetlb_pages() {
    let mut program = Program::new();
    let memory = program.map(64 * M, 0);
    for at in (0..16 * M).step_by(256 << 10) {
        program.protect(memory + at, 256 * K, 3).write(memory + at, 256 * K);
    }
    assert_eq!(faults(program), 8);
    // The same with new mappings over the reservation.
    let mut program = Program::new();
    let memory = program.map(32 * M, 0);
    for at in (0..12 * M).step_by(768 << 10) {
        let address = memory + at;
        let call =
            Call::Mmap { address, bytes: 768 * K, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None };
        program.call(call, address).write(address, 768 * K);
    }
    assert_eq!(faults(program), 6);
}

#[test]
fn an_arena_trimmed_from_a_reservation_begins_with_a_hugetlb_page() {
    // As in glibc, wherever the recorder has placed the reservation.
    for place in [0, 5 * PAGE, 13 * M + 3 * PAGE] {
        let mut program = Program::new();
        program.next += place;
        let reserved = program.map(128 * M, 0);
        let arena = reserved.next_multiple_of(64 * M);
        program.call(Call::Munmap { address: reserved, bytes: arena - reserved }, 0);
        let rest = reserved + 128 * M - (arena + 64 * M);
        program.call(Call::Munmap { address: arena + 64 * M, bytes: rest }, 0);
        for at in (0..4 * M).step_by(132 << 10) {
            program.protect(arena + at, 132 * K, 3).write(arena + at, 132 * K);
        }
        assert_eq!(faults(program), 3, "{place:#x}");
    }
}

#[test]
fn a_mapping_that_outgrows_its_hugetlb_pages_moves_without_faults() {
    let mut program = Program::new();
    let mut memory = program.map(512 * K, 3);
    program.write(memory, 512 * K);
    for bytes in (512 * K..16 * M).step_by(512 << 10) {
        memory = program.remap(memory, bytes, bytes + 512 * K);
        program.write(memory + bytes, 512 * K);
    }
    let outcome = run("hugetlb-2m", program, None);
    // The first 1.5M are in base pages, which are then copied into the first of eight hugetlb pages.
    assert_eq!(outcome.costs.faults(), 3 * 128 + 7);
    assert_eq!(outcome.verdict.covered_bytes, 16 * M);
    let mut program = Program::new();
    let memory = program.map(3 * M, 3);
    program.write(memory, 3 * M);
    let memory = program.remap(memory, 3 * M, 3 * M + 512 * K);
    program.write(memory, 3 * M + 512 * K);
    let memory = program.remap(memory, 3 * M + 512 * K, 2 * M + 512 * K);
    let memory = program.remap(memory, 2 * M + 512 * K, 9 * M);
    program.write(memory, 9 * M);
    assert_eq!(faults(program), 5);
}

#[test]
fn a_hugetlb_page_that_is_read_first_or_reopened_faults_again_at_a_write() {
    let mut program = Program::new();
    let memory = program.map(16 * M, 3);
    program.read(memory, 16 * M).write(memory, 12 * M);
    assert_eq!(faults(program), 8 + 6);
    let mut program = Program::new();
    let memory = program.map(16 * M, 3);
    program.write(memory, 16 * M).protect(memory, 16 * M, 1).read(memory, 16 * M);
    program.protect(memory, 12 * M, 3).write(memory, 12 * M);
    assert_eq!(faults(program), 8 + 6);
}

#[test]
fn written_content_is_copied_when_base_pages_replace_a_hugetlb_page() {
    let mut program = Program::new();
    let memory = program.map(8 * M, 3);
    program.write(memory, 5 * M).protect(memory + 4 * M + 512 * K, PAGE, 0).protect(memory + 7 * M, PAGE, 0);
    program.write(memory, 4 * M + 512 * K).write(memory + 4 * M + 512 * K + PAGE, 2 * M);
    // Three hugetlb pages, the third of which is copied up to its middle. The rest of it is touched again.
    let outcome = run("hugetlb-2m", program, None);
    assert_eq!(outcome.costs.faults(), 3 + (M + 512 * K + PAGE) / PAGE);
    assert_eq!(outcome.verdict.covered_bytes, 4 * M);
}

#[test]
fn pages_that_were_only_read_become_holes_when_base_pages_replace_a_hugetlb_page() {
    let mut program = Program::new();
    let memory = program.map(4 * M, 3);
    program.read(memory, M).write(memory + M, PAGE).protect(memory + M + 512 * K, PAGE, 0);
    program.read(memory, M).write(memory + M, PAGE);
    // The hugetlb page faults at the load and at the store. The base page with content is copied. The others become holes, which
    // fault at the next load.
    let outcome = run("hugetlb-2m", program, None);
    assert_eq!(outcome.costs.faults(), 2 + M / PAGE);
}

#[test]
fn frees_whole_hugetlb_pages_and_zeroes_parts_of_others() {
    let mut program = Program::new();
    let memory = program.map(16 * M, 3);
    program.write(memory, 16 * M).call(Call::Madvise { address: memory + 3 * M, bytes: 8 * M, advice: 4 }, 0);
    program.write(memory, 16 * M).call(Call::Madvise { address: memory, bytes: 256 * K, advice: 4 }, 0);
    program.write(memory, 16 * M);
    assert_eq!(faults(program), 8 + 3);
    let mut program = Program::new();
    let heap = 0x20_0000_0000;
    let brk = |program: &mut Program, bytes: u64| {
        program.call(Call::Brk { address: heap + bytes }, heap + bytes);
    };
    brk(&mut program, 0);
    brk(&mut program, 5 * M);
    program.write(heap, 5 * M);
    brk(&mut program, 512 * K);
    brk(&mut program, 8 * M + 512 * K);
    program.write(heap, 8 * M + 512 * K);
    // Of the first three hugetlb pages one was unmapped; the kernel still has the last one as a whole.
    assert_eq!(faults(program), 3 + 1 + 2);
}

#[test]
fn a_child_copies_the_hugetlb_pages_that_it_writes() {
    let mut program = Program::new();
    let memory = program.map(16 * M, 3);
    program.write(memory, 12 * M).call(Call::Clone { flags: 17 }, u64::from(CHILD));
    program.write(memory, 16 * M);
    let mut child = Program::new();
    child.read(memory, 4 * M).write(memory + 4 * M, 10 * M);
    let costs = run("hugetlb-2m", program, Some(child)).costs;
    // The child copies four pages and gets a new one. The parent then has its six pages exclusively, and gets two new ones.
    assert_eq!((costs.faults(), costs.copied_bytes), (6 + 4 + 1 + 6 + 2, 8 * M));
}
