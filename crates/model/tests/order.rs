//! Traces with timestamps: threads and processes fault in the order in which they touch memory.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;

use model::machine;
use model::replay::{Child, Replayed, replay_processes};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use proptest::prelude::*;
use trace::{Call, Header, Image, Kind, Process, Recording};

const BASE: u64 = 0x10_0000_0000;
const PAGES: u64 = 64;
const POLICIES: [&str; 3] = ["base", "mthp-64k", "thp"];
const FIRST: u32 = 100;
const CHILD: u32 = 101;
const MADV_DONTNEED: u64 = 4;

/// An action of a thread.
#[derive(Clone, Copy, Debug)]
enum Action {
    Touch {
        page: u64,
        kind: Kind,
    },
    /// Drop eight pages (MADV_DONTNEED).
    Drop {
        page: u64,
    },
}

/// A thread and its action.
type Turn = (u32, Action);

/// A trace that is written like the recorder writes it: with a timestamp for each first touch and event.
struct Written {
    recording: Recording<Vec<u8>>,
    time: u64,
    is_timed: bool,
    /// Threads, pages and whether the access was a store: those that need no timestamp.
    known: HashSet<(u32, u64, bool)>,
    /// The page of each thread's current run.
    current: HashMap<u32, u64>,
    /// Threads that have not seen the latest events of other threads yet.
    unseen: HashSet<u32>,
}

impl Written {
    fn new(is_timed: bool, process: Option<Process>) -> Written {
        let header = Header { process, architecture: "x86_64".to_owned(), ..Header::of("test") };
        let recording = Recording::new(Vec::new(), header).unwrap();
        Written { recording, time: 0, is_timed, known: HashSet::new(), current: HashMap::new(), unseen: HashSet::new() }
    }

    fn map(&mut self) {
        let call = Call::Mmap {
            address: 0,
            bytes: 4 << 20,
            protection: 3,
            flags: 0x22,
            file: -1,
            offset: 0,
            file_system: None,
        };
        self.recording.event(0, call, BASE as i64);
    }

    fn stamp(&mut self, thread: u32) {
        self.time += 1;
        if self.is_timed {
            self.recording.timestamp(thread, self.time);
        }
    }

    fn event(&mut self, thread: u32, call: Call, result: i64) {
        self.current.remove(&thread);
        self.stamp(thread);
        self.recording.event(thread, call, result);
    }

    fn touch(&mut self, thread: u32, page: u64, kind: Kind) {
        if self.unseen.remove(&thread) {
            self.event(thread, Call::Seen, 0);
        }
        let stores = kind.has(Kind::STORE);
        if self.current.insert(thread, page) != Some(page) && !self.known.contains(&(thread, page, stores)) {
            self.stamp(thread);
            self.known.extend([(thread, page, false), (thread, page, stores)]);
        }
        self.recording.instructions(thread, 1);
        self.recording.access(thread, BASE + (page << 12), 8, kind).unwrap();
    }

    fn drop_pages(&mut self, thread: u32, page: u64, threads: u32) {
        let call = Call::Madvise { address: BASE + (page << 12), bytes: 8 << 12, advice: MADV_DONTNEED };
        self.event(thread, call, 0);
        self.known.clear();
        self.unseen.extend((0..threads).filter(|other| *other != thread));
    }

    fn done(self) -> Vec<u8> {
        self.recording.finish().unwrap()
    }
}

/// The trace of these turns by `threads` threads.
fn of_threads(turns: &[Turn], threads: u32, is_timed: bool) -> Vec<u8> {
    let mut written = Written::new(is_timed, None);
    written.map();
    for (thread, action) in turns {
        let thread = thread % threads;
        match *action {
            Action::Touch { page, kind } => written.touch(thread, page, kind),
            Action::Drop { page } => written.drop_pages(thread, page, threads),
        }
    }
    written.done()
}

fn simulated(trace: &[u8], child: Option<&[u8]>, threads: usize) -> (Vec<Outcome>, Replayed) {
    simulated_under(&POLICIES, trace, child, threads)
}

fn simulated_under(policies: &[&str], trace: &[u8], child: Option<&[u8]>, threads: usize) -> (Vec<Outcome>, Replayed) {
    let machine = machine::read("lru.toml", include_str!("../benches/lru.toml")).unwrap();
    let simulation = |policy: &&str| Simulation::new(&machine, &policy.parse().unwrap(), &Physical::default()).unwrap();
    let mut simulations: Vec<Simulation> = policies.iter().map(simulation).collect();
    let mut open = |image: Image| {
        let opened = |bytes: &[u8]| Child { name: "a.101".to_owned(), from: Box::new(Cursor::new(bytes.to_vec())) };
        Ok(child.filter(|_| image.process == CHILD).map(opened))
    };
    let replayed = replay_processes(Cursor::new(trace), &mut open, None, &mut simulations, threads).unwrap();
    (simulations.iter().map(|simulation| simulation.outcome().unwrap()).collect(), replayed)
}

/// The figures that depend on the order of touches.
fn figures(outcomes: &[Outcome]) -> Vec<[u64; 5]> {
    let of = |outcome: &Outcome| {
        let costs = &outcome.costs;
        [outcome.faults, costs.zero_faults, costs.anonymous_faults, costs.zeroed_bytes, costs.copied_bytes]
    };
    outcomes.iter().map(of).collect()
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let kind = prop::sample::select(vec![Kind::LOAD, Kind::STORE]);
    let touches = (0..PAGES, kind).prop_map(|(page, kind)| Action::Touch { page, kind });
    let drops = (0..PAGES / 8).prop_map(|window| Action::Drop { page: window * 8 });
    let turns = proptest::collection::vec((0u32..4, prop_oneof![12 => touches, 1 => drops]), 1..200);
    // A trace without an access has no outcome.
    turns.prop_filter("nothing is touched", |turns| {
        turns.iter().any(|(_, action)| matches!(action, Action::Touch { .. }))
    })
}

proptest! {
    #![proptest_config(testing::properties(64))]

    #[test]
    fn threads_fault_like_one_thread_with_the_same_order_of_accesses(turns in turns()) {
        let (alone, _) = simulated(&of_threads(&turns, 1, true), None, 1);
        let trace = of_threads(&turns, 4, true);
        for host_threads in [1, 3] {
            let (together, replayed) = simulated(&trace, None, host_threads);
            prop_assert_eq!(replayed.out_of_order, 0);
            prop_assert_eq!(figures(&together), figures(&alone));
        }
    }

    #[test]
    fn the_first_process_that_stores_copies_a_page_while_both_are_alive(
        turns in proptest::collection::vec((any::<bool>(), 0..PAGES), 0..200),
        ends in 0usize..200,
    ) {
        let ends = ends.min(turns.len());
        let (parent, child) = family(&turns, ends, true);
        let mut stored = HashSet::new();
        let while_alive = turns[..ends].iter();
        let copied = while_alive.filter(|(_, page)| stored.insert(*page)).count() as u64;
        for host_threads in [1, 3] {
            let (outcomes, replayed) = simulated(&parent, Some(&child), host_threads);
            prop_assert_eq!((replayed.out_of_order, replayed.children), (0, 1));
            prop_assert_eq!(outcomes[0].costs.copied_bytes, copied << 12);
        }
    }
}

/// The traces of a process and of its child. In each turn, the child (`true`) or the parent stores to a page that the parent has
/// filled before. The child ends after `ends` turns; the parent takes its remaining turns.
fn family(turns: &[(bool, u64)], ends: usize, is_timed: bool) -> (Vec<u8>, Vec<u8>) {
    let mut parent = Written::new(is_timed, Some(Process { process: FIRST, parent: None, execs: 0 }));
    let mut child = Written::new(is_timed, Some(Process { process: CHILD, parent: Some(FIRST), execs: 0 }));
    parent.map();
    (0..PAGES).for_each(|page| parent.touch(0, page, Kind::STORE));
    parent.event(0, Call::Clone { flags: 17 }, i64::from(CHILD));
    parent.known.clear();
    for (number, (is_childs, page)) in turns.iter().enumerate() {
        let time = parent.time.max(child.time);
        (parent.time, child.time) = (time, time);
        if number == ends {
            child.event(0, Call::Exit { status: 0 }, 0);
            parent.time = child.time;
        }
        let process = if *is_childs && number < ends { &mut child } else { &mut parent };
        process.touch(0, *page, Kind::STORE);
    }
    if ends >= turns.len() {
        child.time = parent.time.max(child.time);
        child.event(0, Call::Exit { status: 0 }, 0);
    }
    (parent.done(), child.done())
}

#[test]
fn without_timestamps_threads_run_one_after_the_other() {
    // Thread 1 fills each page before thread 0 reads it. Without timestamps, the model runs thread 0 first.
    let fills = |page| [(1, Action::Touch { page, kind: Kind::STORE }), (0, Action::Touch { page, kind: Kind::LOAD })];
    let turns: Vec<Turn> = (0..PAGES).flat_map(fills).collect();
    let faults = |is_timed| {
        let (outcomes, _) = simulated(&of_threads(&turns, 2, is_timed), None, 1);
        outcomes.iter().map(|outcome| outcome.faults).collect::<Vec<u64>>()
    };
    assert_eq!(simulated(&of_threads(&turns, 2, false), None, 1).1.untimed, 1);
    assert_eq!(faults(true), [PAGES, PAGES / 16, 1]);
    assert_eq!(faults(false)[..2], [2 * PAGES, 2 * PAGES]);
}

#[test]
fn without_timestamps_a_child_runs_before_its_parent_continues() {
    let turns: Vec<(bool, u64)> = (0..PAGES).map(|page| (page % 2 == 1, page)).collect();
    let copied = |is_timed| {
        let (parent, child) = family(&turns, turns.len(), is_timed);
        simulated(&parent, Some(&child), 1).0[0].costs.copied_bytes >> 12
    };
    assert_eq!((copied(true), copied(false)), (PAGES, PAGES / 2));
}

/// Under `hugetlb-2m` the program has other addresses than under `base`, so each has its own feeder.
#[test]
fn opens_a_child_once_for_all_address_schemes() {
    let turns: Vec<(bool, u64)> = (0..PAGES).map(|page| (page % 2 == 1, page)).collect();
    for is_timed in [true, false] {
        let (parent, child) = family(&turns, turns.len(), is_timed);
        let (outcomes, replayed) = simulated_under(&["base", "hugetlb-2m"], &parent, Some(&child), 1);
        assert_eq!((replayed.children, replayed.out_of_order), (1, 0));
        assert_eq!(outcomes[0].costs.copied_bytes >> 12, if is_timed { PAGES } else { PAGES / 2 });
    }
}

#[test]
fn a_timestamp_of_missing_runs_delays_no_thread() {
    let mut written = Written::new(true, None);
    written.map();
    written.touch(0, 1, Kind::STORE);
    // The timestamp of a thread without any runs or events.
    written.recording.timestamp(7, 2);
    written.time = 3;
    written.touch(0, 2, Kind::STORE);
    written.touch(1, 2, Kind::LOAD);
    let (outcomes, replayed) = simulated(&written.done(), None, 1);
    assert_eq!((outcomes[0].faults, replayed.out_of_order), (2, 1));
}
