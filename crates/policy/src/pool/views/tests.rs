use super::*;
use proptest::prelude::*;

const SIZE: PageSize = PageSize::M2;
const BASE: u64 = 4096;
/// Base pages in the test's address range, which is four large pages.
const PAGES: usize = 2048;
const RW: Protection = 3;

fn at(page: usize) -> u64 {
    page as u64 * BASE
}

/// A slow oracle: the program's view of each base page, compared with what the kernel would have.
struct Oracle {
    program: Vec<Option<Protection>>,
    kernel: Vec<Option<Protection>>,
}

impl Oracle {
    fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            match *action {
                Action::Unmap(s, e) => {
                    assert!(s % SIZE.bytes() == 0 && e % SIZE.bytes() == 0, "hugetlb takes whole pages only");
                    self.kernel[(s / BASE) as usize..(e / BASE) as usize].fill(None);
                }
                Action::Protect(s, e, p) => {
                    assert!(s % SIZE.bytes() == 0 && e % SIZE.bytes() == 0, "hugetlb takes whole pages only");
                    let part = &mut self.kernel[(s / BASE) as usize..(e / BASE) as usize];
                    part.iter_mut().flatten().for_each(|kernel| *kernel = p);
                }
                Action::Zero(..) => {}
            }
        }
    }

    /// The program has the protection that it asked for, except where it closed memory; and no page without a visible part stays
    /// mapped.
    fn check(&self) {
        for (page, seen) in self.program.iter().enumerate() {
            if let Some(protection) = seen {
                let given = self.kernel[page].expect("what the program sees is mapped");
                assert!(given == *protection || *protection == NONE, "page {page}: {given} for {protection}");
            }
        }
        let per_large = (SIZE.bytes() / BASE) as usize;
        for large in 0..PAGES / per_large {
            let part = large * per_large..(large + 1) * per_large;
            if self.kernel[part.start].is_some() {
                assert!(self.program[part].iter().any(Option::is_some), "a page nobody sees is unmapped");
            }
        }
    }
}

proptest! {
    #![proptest_config(testing::properties(256))]
    #[test]
    fn the_program_keeps_what_it_asked_for(
        steps in prop::collection::vec((0..2u8, 0..PAGES, 0..PAGES, prop_oneof![Just(0u64), Just(1), Just(3)]), 1..30),
    ) {
        let mut map = Views::default();
        map.back((0, at(PAGES)), (0, at(PAGES)), RW);
        let mut oracle = Oracle { program: vec![Some(RW); PAGES], kernel: vec![Some(RW); PAGES] };
        for (kind, a, b, protection) in steps {
            let (start, end) = (a.min(b), a.max(b));
            if kind == 0 {
                // For the views, holes that earlier steps unmapped are ordinary memory.
                let actions: Vec<Action> =
                    map.unmap_in_view(at(start), at(end), SIZE).into_iter().map(|(s, e)| Action::Unmap(s, e)).collect();
                oracle.program[start..end].fill(None);
                oracle.carry_out(&actions);
            } else if map.protection_conflicts(at(start), at(end), protection, SIZE).is_empty() {
                let (actions, _) = map.protect(at(start), at(end), protection, SIZE);
                oracle.program[start..end].iter_mut().flatten().for_each(|seen| *seen = protection);
                oracle.carry_out(&actions);
            }
            oracle.check();
        }
    }
}

#[test]
fn a_reservation_converts_page_by_page() {
    let mut map = Views::default();
    map.reserve(at(256), at(2048));
    assert_eq!(map.convertible(at(512), at(520), SIZE), [(at(512), at(1024))]);
    assert_eq!(map.convertible(at(256), at(520), SIZE), [(at(512), at(1024))], "the first page is cut off");
    map.mark_touched(at(600), at(601));
    assert!(map.convertible(at(512), at(520), SIZE).is_empty());
}

#[test]
fn a_part_that_must_differ_from_its_page_is_a_misfit() {
    let mut map = Views::default();
    map.back((0, at(1024)), (0, at(1024)), RW);
    assert_eq!(map.protection_conflicts(at(511), at(512), NONE, SIZE), [(0, at(512))], "a guard page");
    assert_eq!(map.protection_conflicts(at(500), at(600), 1, SIZE), [(0, at(512)), (at(512), at(1024))]);
    assert!(map.protection_conflicts(at(0), at(512), 1, SIZE).is_empty(), "a whole page");
    let mut reserved = Views::default();
    reserved.back((0, at(512)), (0, at(512)), NONE);
    assert!(reserved.protection_conflicts(0, at(100), RW, SIZE).is_empty(), "the first part of a reservation");
    assert_eq!(reserved.protect(0, at(100), RW, SIZE), (vec![Action::Protect(0, at(512), RW)], true));
    assert!(reserved.protection_conflicts(at(100), at(200), NONE, SIZE).is_empty(), "it was never opened");
}

#[test]
fn a_call_over_half_the_address_space_ends() {
    let mut map = Views::default();
    map.reserve(at(512), at(1024));
    assert_eq!(map.convertible(0, u64::MAX - 4095, SIZE), [(at(512), at(1024))]);
    assert!(map.protection_conflicts(0, u64::MAX - 4095, NONE, SIZE).is_empty());
    assert!(map.unmap_in_view(0, u64::MAX - 4095, SIZE).is_empty());
}

#[test]
fn holes_and_locks_are_those_of_the_program() {
    let mut map = Views::default();
    map.back((0, at(1024)), (0, at(700)), RW);
    assert!(!map.has_hole(0, at(700)) && map.has_hole(0, at(701)), "the rest of the last page");
    assert!(!map.has_hole(at(1024), at(2048)), "not the pool's");
    map.lock(at(100), at(2048));
    assert_eq!(map.locked_parts(0, u64::MAX), [(at(100), at(1024))]);
    map.unlock(at(200), at(300));
    map.unmap_in_view(at(650), at(700), SIZE);
    assert_eq!(map.locked_parts(0, at(700)), [(at(100), at(200)), (at(300), at(650))]);
    assert!(map.has_hole(at(640), at(660)));
    map.demote((0, at(512)));
    assert_eq!(map.locked_parts(0, at(600)), [(at(512), at(600))], "what is no longer backed is the kernel's to lock");
}

#[test]
fn memory_mapped_again_inside_a_page_is_zeroed() {
    let mut map = Views::default();
    map.back((0, at(512)), (0, at(512)), RW);
    assert!(map.unmap(at(100), at(200), SIZE).is_empty());
    assert!(map.is_slack(at(100), at(200)));
    assert!(map.unmapped_with(at(200), at(512), SIZE).is_empty(), "it still has the first pages");
    assert_eq!(map.unmapped_with(0, at(600), SIZE), [(at(512), at(600)), (0, at(512))]);
    assert!(map.concerns(0, at(512)), "it was only asked");
    assert_eq!(map.map_in_view(at(100), at(200), RW, SIZE), [Action::Zero(at(100), at(200))]);
    assert_eq!(map.drop_content(at(0), at(100), SIZE).partial, [(at(0), at(100))]);
    assert_eq!(map.drop_content(at(0), at(512), SIZE).whole, [(at(0), at(512))]);
}
