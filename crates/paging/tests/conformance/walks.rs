//! The visits of a walk and their order, the effect of its actions, and the counts of the census.

use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::riscv::{RiscV, Stage};
use paging::format::software_64k::Software64K;
use paging::format::x86_64::X86_64;
use paging::{
    Action, Arena, Error, Format, InputAddress, LeafSize, Mapping, Node, OutputAddress, Sizes, Tables, Visitor,
};

const K4: u64 = 4 << 10;
const M2: u64 = 2 << 20;
const G1: u64 = 1 << 30;
/// The address of the tables.
const BASE: OutputAddress = OutputAddress(G1);

/// Records its visits, and returns a given action at one of them.
#[derive(Default)]
struct VisitRecorder {
    visits: Vec<(&'static str, u64, u64)>,
    at: Option<(&'static str, u64, Action)>,
}

impl VisitRecorder {
    fn record(&mut self, what: &'static str, node: &Node) -> Action {
        self.visits.push((what, node.va.0, node.bytes));
        match self.at {
            Some((at, va, action)) if at == what && va == node.va.0 => action,
            _ => Action::Continue,
        }
    }
}

impl Visitor for VisitRecorder {
    fn table(&mut self, node: &Node) -> Action {
        self.record("table", node)
    }

    fn table_done(&mut self, node: &Node) -> Action {
        self.record("done", node)
    }

    fn leaf(&mut self, node: &Node) -> Action {
        self.record("leaf", node)
    }

    fn hole(&mut self, node: &Node) -> Action {
        self.record("hole", node)
    }
}

/// Two pages, 2M and 1G of x86-64: at 8K, at 2M and at 1G.
fn tables() -> Tables<X86_64> {
    let format = X86_64::new(4, 46);
    let mut tables = Tables::new(format, BASE, 1 << 20).unwrap();
    for (va, bytes) in [(2 * K4, 2 * K4), (M2, M2), (G1, G1)] {
        let attributes = crate::data(&format);
        let (va, pa) = (InputAddress(va), OutputAddress(4 * G1 + va));
        tables.map(&Mapping { va, pa, bytes, attributes, sizes: Sizes::BEST }).unwrap();
    }
    tables
}

fn walked(at: Option<(&'static str, u64, Action)>) -> Vec<(&'static str, u64, u64)> {
    let mut recorder = VisitRecorder { at, ..VisitRecorder::default() };
    tables().walk(InputAddress(0), 2 * G1, &mut recorder).unwrap();
    recorder.visits
}

#[test]
fn tables_leaves_and_holes_are_shown_in_order() {
    let expected = [
        ("table", 0, 512 * G1),
        ("table", 0, G1),
        ("table", 0, M2),
        ("hole", 0, 2 * K4),
        ("leaf", 2 * K4, K4),
        ("leaf", 3 * K4, K4),
        ("hole", 4 * K4, M2 - 4 * K4),
        ("done", 0, M2),
        ("leaf", M2, M2),
        ("hole", 2 * M2, G1 - 2 * M2),
        ("done", 0, G1),
        ("leaf", G1, G1),
        ("done", 0, 512 * G1),
    ];
    assert_eq!(walked(None), expected);
}

#[test]
fn actions_control_the_walk() {
    let all = walked(None);
    // No entry of the first table of pages, and no visit at its end.
    let skipped = walked(Some(("table", 0, Action::SkipChildren)));
    assert_eq!(skipped, [("table", 0, 512 * G1)]);
    // The rest of the table of pages is missing, but not what follows it.
    let without_siblings = walked(Some(("leaf", 2 * K4, Action::SkipSiblings)));
    assert_eq!(without_siblings, [&all[..5], &all[7..]].concat());
    let stopped = walked(Some(("leaf", M2, Action::Stop)));
    assert_eq!(stopped, all[..9]);
}

#[test]
fn a_range_shows_whole_leaves_and_its_part_of_holes() {
    let mut recorder = VisitRecorder::default();
    tables().walk(InputAddress(3 * K4), 2 * K4, &mut recorder).unwrap();
    let visits: Vec<_> = recorder.visits.into_iter().filter(|(what, ..)| matches!(*what, "leaf" | "hole")).collect();
    assert_eq!(visits, [("leaf", 3 * K4, K4), ("hole", 4 * K4, K4)]);
    let mut recorder = VisitRecorder::default();
    tables().walk(InputAddress(G1 + M2), K4, &mut recorder).unwrap();
    assert!(recorder.visits.contains(&("leaf", G1, G1)), "{:?}", recorder.visits);
}

/// Tables with a cycle end a walk with an error: a table that is its own child must not loop forever.
#[test]
fn a_cycle_of_tables_ends_a_walk() {
    let format = X86_64::new(4, 46);
    let mut image = vec![0u8; 8192];
    for entry in image.as_chunks_mut::<8>().0 {
        *entry = format.table(BASE).to_le_bytes();
    }
    let tables = Tables::in_arena(format, Arena::from_image(BASE, &image).unwrap(), BASE);
    assert!(matches!(tables.walk_all(&mut VisitRecorder::default()), Err(Error::NoTree { .. })));
    let outside = Tables::in_arena(format, Arena::from_image(BASE, &image[..4096]).unwrap(), OutputAddress(G1 - 4096));
    assert!(matches!(outside.walk_all(&mut VisitRecorder::default()), Err(Error::OutsideArena { .. })));
}

fn sizes<F: Format>(format: F, va: u64, bytes: u64) -> Vec<(u64, u64, u64)> {
    let mut tables = Tables::new(format, BASE, 8 << 20).unwrap();
    let attributes = crate::data(&format);
    let (va, pa) = (InputAddress(va), OutputAddress(16 * G1 + va));
    tables.map(&Mapping { va, pa, bytes, attributes, sizes: Sizes::BEST }).unwrap();
    let census = tables.census().unwrap();
    assert_eq!((census.total_bytes(), census.illegal), (bytes, 0));
    assert_eq!(census.table_bytes, tables.arena().used_bytes());
    let flat = |(size, bytes): (&LeafSize, &u64)| (size.leaf_bytes, size.group_bytes, *bytes);
    census.mapped_bytes.iter().map(flat).collect()
}

#[test]
fn the_census_distinguishes_leaves_and_groups() {
    let k64 = 64 << 10;
    assert_eq!(sizes(X86_64::new(4, 46), M2 - K4, M2 + 2 * K4), [(K4, K4, 2 * K4), (M2, M2, M2)]);
    // Pages before the first multiple of 64K are in no group.
    let arm = Arm64Stage1::new(Granule::K4, 48);
    let expected = [(K4, K4, K4), (K4, k64, 2 * k64), (M2, 16 * M2, 32 << 20)];
    assert_eq!(sizes(arm, (32 << 20) - 2 * k64 - K4, (32 << 20) + 2 * k64 + K4), expected);
    let napot = RiscV::new(3, Stage::Supervisor).with_napot();
    assert_eq!(sizes(napot, k64, 2 * k64 + K4), [(K4, K4, K4), (K4, k64, 2 * k64)]);
    // 32M are sixteen hardware leaves of 2M.
    let software = Software64K::new(3, true);
    assert_eq!(sizes(software, (32 << 20) - k64, (32 << 20) + k64), [(K4, k64, k64), (M2, M2, 32 << 20)]);
}
