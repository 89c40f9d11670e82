//! Replays traces of arbitrary calls, accesses and forks, with addresses at and beyond all limits, under every kind of policy. Each
//! is simulated or refused with a reason. At the end, the mapped memory and the counts must be consistent.

#![no_main]

use std::io::Cursor;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use model::machine::{Machine, built_in};
use model::replay::{Child, infer, replay_processes};
use model::simulation::Simulation;
use model::space::{Kernel, Khugepaged, Physical};
use trace::{Call, Chunk, Emulator, Event, Header, Image, Kind, Writer};

/// Disables leak detection (`sanitizer/lsan_interface.h`). A thread scope waits only until its threads have done their work. Their
/// thread-local memory can live a little longer, which the fuzzer reports as a leak every few minutes.
// SAFETY: the sanitizer looks up a function with this name and signature, and nothing else has that name.
#[unsafe(no_mangle)]
extern "C" fn __lsan_is_turned_off() -> std::ffi::c_int {
    1
}

const CASES: [(&str, &str); 12] = [
    ("cascade-lake", "base"),
    ("cascade-lake", "thp"),
    ("cascade-lake", "thp+prefault"),
    ("cascade-lake", "mthp-64k+no-guards"),
    ("cascade-lake", "hugetlb-2m"),
    ("neoverse-n1", "contig-64k"),
    ("neoverse-n1", "base-64k"),
    ("neoverse-n1", "mthp-64k"),
    ("sifive-u74", "base-64k"),
    ("apple-m1", "thp"),
    ("neoverse-n1", "contig-64k+thp"),
    ("rva23", "base-64k+thp"),
];
const MAX_STEPS: usize = 200;

/// The machines of the cases, read once.
static MACHINES: LazyLock<Vec<Machine>> =
    LazyLock::new(|| CASES.iter().map(|(machine, _)| built_in(machine).expect("a machine")).collect());

/// Takes numbers from the front of the bytes; zeros after the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// An address: mostly in the same 8M, sometimes at a limit or anywhere.
    fn address(&mut self) -> u64 {
        let place = self.byte();
        self.address_in(place)
    }

    fn address_in(&mut self, place: u8) -> u64 {
        let page = u64::from(self.byte()) | u64::from(self.byte() & 7) << 8;
        match place {
            0 => self.word(),
            1 => u64::MAX << 12,
            2 => (1 << 47) - (page << 12),
            3 => (1 << 38) - (page << 12),
            4 => page,
            5 => 0x40_0000_0000 + (page << 12),
            6 => 0x5555_5555_4000 + (page << 12),
            7 => (1 << 37) + (page << 12) + 1,
            _ => (1 << 37) + (page << 12),
        }
    }

    fn length(&mut self) -> u64 {
        match self.byte() {
            0 => self.word(),
            1 => 0,
            2 => 1,
            3 => 1 << 45,
            4 => 2 << 20,
            pages => u64::from(pages) << 12,
        }
    }

    fn call(&mut self) -> (Call, u64) {
        let (address, bytes) = (self.address(), self.length());
        match self.byte() % 12 {
            0 | 1 => {
                let (protection, flags) = (u64::from(self.byte() % 8), u64::from(self.byte() % 64));
                let flags = flags | if self.byte() == 0 { 0x8000 } else { 0 };
                (
                    Call::Mmap {
                        address: 0,
                        bytes,
                        protection,
                        flags,
                        file: i64::from(self.byte() % 3) - 1,
                        offset: 0,
                        file_system: [None, Some(0xef53), Some(0x0102_1994)][usize::from(self.byte() % 3)],
                    },
                    address,
                )
            }
            2 => (Call::Munmap { address, bytes }, 0),
            3 => (Call::Mprotect { address, bytes, protection: u64::from(self.byte() % 8) }, 0),
            4 => (Call::Madvise { address, bytes, advice: [4, 14, 15, 22, 23][usize::from(self.byte() % 5)] }, 0),
            5 | 6 => {
                let (old_bytes, flags) = (self.length(), u64::from(self.byte() % 8));
                let to = self.address();
                (Call::Mremap { address, old_bytes, new_bytes: bytes, flags, new_address: 0 }, to)
            }
            7 => (Call::Brk { address }, address),
            8 => {
                let name = ["", "[heap]", "[stack]", "/a file"][usize::from(self.byte() % 4)].to_owned();
                (Call::Region { address, bytes, protection: 3, name }, 0)
            }
            9 => (Call::Clone { flags: u64::from(self.byte() % 2) << 8 }, u64::from(self.byte() % 4)),
            10 => (Call::Prctl { option: 41, argument: u64::from(self.byte() % 2) }, 0),
            _ if self.byte() < 32 => (Call::exec("a"), 0),
            _ => (Call::Madvise { address, bytes, advice: 15 }, 0),
        }
    }

    fn trace(&mut self, emulated: bool) -> Vec<u8> {
        let emulator = Emulator { name: "qemu-x86_64".to_owned(), version: "7.2".to_owned() };
        let header = Header { emulator: Some(emulator).filter(|_| emulated), ..Header::of("fuzz") };
        let mut writer = Writer::new(Vec::new(), &header).expect("memory");
        let (mut order, mut runs) = (0, 0);
        for _ in 0..MAX_STEPS {
            let thread = u32::from(self.byte() % 2);
            match self.byte() % 4 {
                _ if self.0.is_empty() => break,
                0 => {
                    let instructions = if self.byte() == 0 { self.word() } else { runs << 30 };
                    let chunk = self.chunk();
                    runs += chunk.len() as u64;
                    writer.runs(thread, &chunk, instructions).expect("memory");
                }
                _ => {
                    let (call, result) = self.call();
                    let event = Event { run: runs, order, call, result: result as i64 };
                    order += 1;
                    writer.events(thread, &[event], 0).expect("memory");
                }
            }
        }
        writer.runs(0, &self.chunk(), runs).expect("memory");
        writer.finish().expect("memory")
    }

    fn chunk(&mut self) -> Chunk {
        let mut chunk = Chunk::default();
        for id in 0..1 + u16::from(self.byte() % 16) {
            // An address that the tables cannot translate ends a simulation.
            let place = if self.byte() == 0 { self.byte() } else { 8 };
            chunk.pages.push(self.address_in(place) >> 12);
            chunk.ids.push(id);
            chunk.kinds.push([Kind::LOAD, Kind::STORE, Kind::FETCH][usize::from(self.byte() % 3)].bits());
            chunk.accesses.push(1);
        }
        chunk
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let (first, second) = (usize::from(bytes.byte()), usize::from(bytes.byte()));
    let emulated = bytes.byte() % 2 == 0;
    let physical = Physical { bytes: (1 + u64::from(bytes.byte() % 16)) << 20, ..Physical::default() };
    let khugepaged = Khugepaged { scan_sleep_s: 0.001, ..Kernel::default().khugepaged };
    let mut simulations: Vec<Simulation> = [first, second]
        .iter()
        .map(|case| {
            let case = case % CASES.len();
            let (machine, policy) = (&MACHINES[case], CASES[case].1.parse().expect("a policy"));
            let simulation = Simulation::new(machine, &policy, &physical).expect("the machine has the policy");
            simulation.with_kernel(Kernel { khugepaged, ..Kernel::default() }).expect("no further folios")
        })
        .collect();
    let traces = [bytes.trace(emulated), bytes.trace(emulated), bytes.trace(emulated)];
    let inferred = infer(Cursor::new(&traces[0])).expect("a sound trace with runs");
    let mut child = |image: Image| {
        // An executed program has the trace of some later process.
        let found = traces.get(image.process as usize + image.execs as usize).filter(|_| image.process > 0);
        Ok(found.map(|bytes| Child { name: image.suffix(), from: Box::new(Cursor::new(bytes.clone())) }))
    };
    let _ = replay_processes(Cursor::new(&traces[0]), &mut child, inferred.as_deref(), &mut simulations, 1);
    for simulation in &simulations {
        let is_expected = |why: &str| {
            ["out of memory", "the input address", "the range of"].iter().any(|words| why.starts_with(words))
        };
        let outcome = match simulation.outcome() {
            Ok(outcome) => outcome,
            // Memory is mapped at an address that this machine does not have.
            Err(error) => {
                assert!(is_expected(&error.to_string()), "{error}");
                continue;
            }
        };
        if let Some(why) = &outcome.stopped {
            assert!(is_expected(why), "{why}");
        }
        assert!(outcome.touched_bytes <= outcome.touched_peak_bytes);
        assert!(outcome.resident_bytes <= outcome.costs.resident_peak_bytes);
        assert!(outcome.costs.held_unmapped_bytes <= outcome.costs.held_bytes);
        assert!(outcome.costs.held_bytes <= outcome.costs.held_peak_bytes && outcome.costs.held_peak_bytes <= physical.bytes);
        assert!(outcome.costs.table_peak_bytes <= outcome.costs.all_table_peak_bytes);
        let leaves =
            |outcome: &model::simulation::Outcome| outcome.mapped.iter().map(|mapped| mapped.bytes).sum::<u64>();
        assert!(outcome.stopped.is_some() || outcome.resident_bytes <= leaves(&outcome));
    }
});
