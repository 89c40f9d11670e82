//! Runs the same random calls through both interpreters of a hugetlb policy: that of the tracer on a naive kernel with one
//! entry per page, and that of the model with recorded addresses. After every call both must have the same mappings, present
//! pages, addresses, heaps, causes, answers and verdict.

use std::collections::BTreeMap;

use ::policy::call::{Call, mremap};
use ::policy::carry_out::is_error;
use ::policy::cause::Cause;
use paging::{Format, with_format};
use proptest::prelude::*;
use trace::Image;

use super::PAGE;
use super::pool_program::PoolProgram;
use crate::layout::{Change, Layout, LayoutParameters};
use crate::machine::built_in;
use crate::policy::Plan;
use crate::space::Space;
use crate::space::buddy::Physical;
use crate::space::paged::AddressSpaces;
use crate::space::tests::event;
use crate::space::vma::Backing;

/// The recorded address of the first mapping; the others follow it.
const RECORDED: u64 = 0x40_0000_0000;
/// The recorded beginning of the heap.
const HEAP: u64 = 0x20_0000_0000;

/// A step of a program. `at` and `to` select one of the program's pages, and `pages` is the maximum length from there.
#[derive(Clone, Debug)]
enum Step {
    Mmap { pages: u64, protection: u64, flags: u64 },
    MmapOver { at: usize, pages: u64, protection: u64 },
    Munmap { at: usize, pages: u64 },
    Mprotect { at: usize, pages: u64, protection: u64 },
    Madvise { at: usize, pages: u64, advice: u64 },
    Mremap { at: usize, pages: u64, new_pages: u64 },
    MoveOver { at: usize, pages: u64, to: usize },
    Brk { bytes: u64 },
    Write { at: usize, pages: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || any::<usize>();
    let pages = || prop_oneof![1u64..64, Just(256u64), Just(512), Just(513), Just(1024), 1u64..1600];
    let flags =
        prop_oneof![6 => Just(0x22u64), 1 => Just(0x4022), 1 => Just(0x2_0022), 1 => Just(0x8022), 1 => Just(0x2)];
    let protection = || prop_oneof![4 => Just(3u64), 1 => Just(1), 2 => Just(0)];
    let advice = prop_oneof![Just(4u64), Just(8), Just(9), Just(10), Just(14), Just(18), Just(23), Just(24), Just(102)];
    let step = prop_oneof![
        4 => (pages(), protection(), flags).prop_map(|(pages, protection, flags)| Step::Mmap { pages, protection, flags }),
        2 => (at(), pages(), protection()).prop_map(|(at, pages, protection)| Step::MmapOver { at, pages, protection }),
        2 => (at(), pages()).prop_map(|(at, pages)| Step::Munmap { at, pages }),
        4 => (at(), pages(), protection()).prop_map(|(at, pages, protection)| Step::Mprotect { at, pages, protection }),
        2 => (at(), pages(), advice).prop_map(|(at, pages, advice)| Step::Madvise { at, pages, advice }),
        3 => (at(), pages(), pages()).prop_map(|(at, pages, new_pages)| Step::Mremap { at, pages, new_pages }),
        1 => (at(), pages(), at()).prop_map(|(at, pages, to)| Step::MoveOver { at, pages, to }),
        1 => (0u64..5 << 20).prop_map(|bytes| Step::Brk { bytes }),
        5 => (at(), pages()).prop_map(|(at, pages)| Step::Write { at, pages }),
    ];
    prop::collection::vec(step, 1..24)
}

/// A program on both sides: under the tracer on the naive kernel, and in the model.
struct Both<F: Format> {
    /// For each recorded page, its address under the tracer.
    pages: BTreeMap<u64, u64>,
    next: u64,
    heap: i64,
    heap_bytes: u64,
    traced: PoolProgram,
    layout: Layout,
    model: AddressSpaces<F>,
    refused: u64,
    noted: BTreeMap<Cause, u64>,
    answered: Vec<&'static str>,
}

impl<F: Format + Send> Both<F> {
    /// A recorded range that begins at one of the program's pages. It has at most `pages` pages, and ends where it is no longer
    /// contiguous under the tracer.
    fn range(&self, at: usize, pages: u64) -> Option<(u64, u64)> {
        let start = *self.pages.keys().nth(at % self.pages.len().max(1))?;
        let is_contiguous =
            |page: &u64| self.pages.get(&(start + page)).is_some_and(|to| *to == self.pages[&start] + page);
        Some((start, (0..pages * PAGE).step_by(PAGE as usize).take_while(is_contiguous).count() as u64 * PAGE))
    }

    /// Makes a call on both sides and checks that the changes agree; returns the tracer's result.
    fn call_both(&mut self, call: Call, recorded: trace::Call, recorded_result: u64) -> i64 {
        self.traced.mappings = self.mappings();
        let result = self.traced.handle_call(call);
        let mut copied = std::mem::take(&mut self.traced.copies).into_iter();
        self.refused += u64::from(is_error(result));
        // This program never unmaps the ends of a mapping to align it (`layout::reservations`).
        self.layout.drop_reservations();
        for change in self.layout.translate(&event(recorded, recorded_result)) {
            match change {
                Change::Call(event) => self.model.event(&event).unwrap(),
                Change::Copy { from, to, bytes, .. } => {
                    let expected = copied.next().expect("the tracer makes the same number of copies");
                    assert_eq!((from, to, bytes), (expected.from, expected.to, expected.bytes));
                    expected.pages.iter().for_each(|page| self.model.write_for_program(to + page).unwrap());
                }
                Change::Refused => self.refused -= 1,
                Change::Answered(call) => {
                    self.answered.push(call);
                    self.model.note_answered(call);
                }
                Change::Noted(cause, bytes) => {
                    self.model.note_cause(&cause, bytes);
                    *self.noted.entry(cause).or_default() += bytes;
                }
                Change::Freed { begin, bytes, is_inspected } => {
                    self.model.inspect(begin, bytes, is_inspected).unwrap();
                }
                Change::Write { .. } => {}
            }
        }
        assert!(copied.next().is_none(), "the model makes the same number of copies");
        result
    }

    /// The model's mappings, ends by first addresses. This test does not check how mappings merge: `traced` does. It compares
    /// mappings and their properties page by page.
    fn mappings(&self) -> BTreeMap<u64, u64> {
        self.model.processes.running.vmas.all().map(|(begin, vma)| (begin, vma.end)).collect()
    }

    fn remove_recorded(&mut self, start: u64, bytes: u64) {
        self.pages.retain(|page, _| !(start..start + bytes).contains(page));
    }

    fn insert_recorded(&mut self, recorded: u64, bytes: u64, to: i64) {
        self.remove_recorded(recorded, bytes);
        let pages = (0..bytes).step_by(PAGE as usize);
        self.pages.extend(pages.map(|page| (recorded + page, to as u64 + page)));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Mmap { pages, protection, flags } => {
                let (bytes, recorded) = (pages * PAGE, self.next);
                self.next += bytes;
                let file = if flags & 0x20 != 0 { -1 } else { 3 };
                let call = Call::Mmap { address: 0, bytes, protection, flags, file: file as u64, offset: 0 };
                let recorded_call =
                    trace::Call::Mmap { address: 0, bytes, protection, flags, file, offset: 0, file_system: None };
                let to = self.call_both(call, recorded_call, recorded);
                self.insert_recorded(recorded, bytes, to);
            }
            Step::MmapOver { at, pages, protection } => {
                let Some((start, bytes)) = self.range(at, pages) else { return };
                let (address, flags) = (self.pages[&start], 0x32);
                let call = Call::Mmap { address, bytes, protection, flags, file: u64::MAX, offset: 0 };
                let recorded_call = trace::Call::Mmap {
                    address: start,
                    bytes,
                    protection,
                    flags,
                    file: -1,
                    offset: 0,
                    file_system: None,
                };
                self.call_both(call, recorded_call, start);
            }
            Step::Munmap { at, pages } => {
                let Some((start, bytes)) = self.range(at, pages) else { return };
                let call = Call::Munmap { address: self.pages[&start], bytes };
                self.call_both(call, trace::Call::Munmap { address: start, bytes }, 0);
                self.remove_recorded(start, bytes);
            }
            Step::Mprotect { at, pages, protection } => {
                let Some((start, bytes)) = self.range(at, pages) else { return };
                let call = Call::Mprotect { address: self.pages[&start], bytes, protection };
                self.call_both(call, trace::Call::Mprotect { address: start, bytes, protection }, 0);
            }
            Step::Madvise { at, pages, advice } => {
                let Some((start, bytes)) = self.range(at, pages) else { return };
                let address = self.pages[&start];
                let may = |page: u64| self.traced.may_write(page);
                if advice == 23 && !(address..address + bytes).step_by(PAGE as usize).all(may) {
                    return;
                }
                let call = Call::Madvise { address, bytes, advice };
                self.call_both(call, trace::Call::Madvise { address: start, bytes, advice }, 0);
            }
            Step::Mremap { at, pages, new_pages } => {
                let Some((start, old_bytes)) = self.range(at, pages) else { return };
                let (address, new_bytes) = (self.pages[&start], new_pages * PAGE);
                let recorded = if new_bytes > old_bytes { self.next } else { start };
                self.next += new_bytes;
                let flags = mremap::MAY_MOVE;
                let call = Call::Mremap { address, old_bytes, new_bytes, flags, new_address: 0 };
                let recorded_call = trace::Call::Mremap { address: start, old_bytes, new_bytes, flags, new_address: 0 };
                let to = self.call_both(call, recorded_call, recorded);
                if !is_error(to) {
                    self.remove_recorded(start, old_bytes);
                    self.insert_recorded(recorded, new_bytes, to);
                }
            }
            Step::MoveOver { at, pages, to } => {
                let Some((start, bytes)) = self.range(at, pages) else { return };
                let Some((target, bytes)) = self.range(to, bytes / PAGE) else { return };
                if target < start + bytes && start < target + bytes {
                    return;
                }
                let flags = mremap::MAY_MOVE | mremap::FIXED;
                let (address, new_address) = (self.pages[&start], self.pages[&target]);
                let call = Call::Mremap { address, old_bytes: bytes, new_bytes: bytes, flags, new_address };
                let recorded_call = trace::Call::Mremap {
                    address: start,
                    old_bytes: bytes,
                    new_bytes: bytes,
                    flags,
                    new_address: target,
                };
                let to = self.call_both(call, recorded_call, target);
                if !is_error(to) {
                    self.remove_recorded(start, bytes);
                    self.insert_recorded(target, bytes, to);
                }
            }
            Step::Brk { bytes } => {
                if self.heap == 0 {
                    self.heap = self.call_both(Call::Brk { end: 0 }, trace::Call::Brk { address: 0 }, HEAP);
                }
                let (end, recorded) = (self.heap as u64 + bytes, HEAP + bytes);
                let to = self.call_both(Call::Brk { end }, trace::Call::Brk { address: recorded }, recorded);
                let (before, now) = (self.heap_bytes, (to - self.heap) as u64);
                let up = |bytes: u64| bytes.next_multiple_of(PAGE);
                self.remove_recorded(HEAP + up(now), 1 << 30);
                self.insert_recorded(
                    HEAP + up(before),
                    up(now).saturating_sub(up(before)),
                    self.heap + up(before) as i64,
                );
                self.heap_bytes = now;
            }
            Step::Write { at, pages } => {
                let Some((start, bytes)) = self.range(at, pages) else { return };
                for page in (start..start + bytes).step_by(PAGE as usize) {
                    let page = self.pages[&page];
                    if self.traced.may_write(page) {
                        self.traced.write(page);
                        self.model.access(page, true).unwrap();
                    }
                }
            }
        }
    }

    fn compare(&mut self, context: &str) -> Result<(), TestCaseError> {
        let of_model: Vec<(u64, u64, bool)> = self
            .model
            .processes
            .running
            .vmas
            .all()
            .flat_map(|(begin, vma)| {
                let pages = (begin..vma.end).step_by(PAGE as usize);
                pages.map(move |page| (page, vma.protection, vma.backing == Backing::Hugetlb))
            })
            .collect();
        let traced: Vec<(u64, u64, bool)> =
            self.traced.pages.iter().map(|(page, of)| (*page, of.protection, of.pool.is_some())).collect();
        prop_assert!(of_model == traced, "{}: {}", context, difference(&of_model, &traced));
        let present: Vec<u64> = self
            .model
            .processes
            .running
            .all_parts()
            .unwrap()
            .iter()
            .flat_map(|part| (part.va..part.va + part.bytes).step_by(PAGE as usize))
            .collect();
        let traced: Vec<u64> = self.traced.present.iter().copied().collect();
        prop_assert!(present == traced, "{}: {}", context, difference(&present, &traced));
        for (recorded, page) in &self.pages {
            prop_assert_eq!(self.layout.address(*recorded), *page, "{} {:#x}", context, recorded);
        }
        prop_assert_eq!(&self.noted, &self.traced.noted, "{}", context);
        prop_assert_eq!(&self.answered, &self.traced.answered, "{}", context);
        prop_assert_eq!(self.refused, 0, "{}", context);
        self.traced.mappings = self.mappings();
        prop_assert_eq!(Space::verdict(&self.model).unwrap(), self.traced.verdict(), "{}", context);
        Ok(())
    }
}

fn difference<T: PartialEq + std::fmt::Debug>(one: &[T], other: &[T]) -> String {
    let only = |one: &[T], other: &[T]| -> Vec<String> {
        one.iter().filter(|item| !other.contains(item)).take(4).map(|item| format!("{item:x?}")).collect()
    };
    format!("model {:?} tracer {:?}", only(one, other), only(other, one))
}

fn run<F: Format + Send>(policy: &str, model: AddressSpaces<F>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mechanism = model.plan.mechanism;
    let mut both = Both {
        pages: BTreeMap::new(),
        next: RECORDED,
        heap: 0,
        heap_bytes: 0,
        traced: PoolProgram::new(policy, mechanism),
        layout: Layout::new(
            LayoutParameters { pool: Some(mechanism), ..LayoutParameters::default() },
            Image::default(),
        ),
        model,
        refused: 0,
        noted: BTreeMap::new(),
        answered: Vec::new(),
    };
    for step in steps {
        both.step(step);
        both.compare(&format!("{policy} {step:?}"))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(testing::properties(128))]
    #[test]
    fn both_interpreters_of_a_pool_policy_agree(
        policy in prop::sample::select(vec!["hugetlb-2m", "hugetlb-2m+no-guards", "hugetlb-2m+prefault"]),
        steps in steps(),
    ) {
        let plan = Plan::new(&policy.parse().unwrap(), &built_in("cascade-lake").unwrap()).unwrap();
        with_format!(plan.format.format, format => {
            run(policy, AddressSpaces::new(format, &plan, &Physical::default()).unwrap(), &steps)
        })?;
    }
}

/// When a heap grows again, Linux maps the new part anew, even where the program had unmapped it before the heap shrank.
#[test]
fn a_heap_that_grows_again_has_no_holes() {
    let steps = [
        Step::Brk { bytes: 4 << 20 },
        Step::Munmap { at: 600, pages: 100 },
        Step::Brk { bytes: 1 << 20 },
        Step::Brk { bytes: 4 << 20 },
        Step::Write { at: 256, pages: 768 },
        Step::Mremap { at: 600, pages: 64, new_pages: 200 },
    ];
    let plan = Plan::new(&"hugetlb-2m".parse().unwrap(), &built_in("cascade-lake").unwrap()).unwrap();
    with_format!(plan.format.format, format => {
        run("hugetlb-2m", AddressSpaces::new(format, &plan, &Physical::default()).unwrap(), &steps)
    })
    .unwrap();
}

/// MAP_STACK advises against large pages, and then the program advises them.
#[test]
fn advice_applies_to_memory_outside_the_pool() {
    let steps = [
        Step::Mmap { pages: 1426, protection: 3, flags: 0x2_0022 },
        Step::Write { at: 0, pages: 1024 },
        Step::Madvise { at: 0, pages: 1426, advice: 14 },
    ];
    let plan = Plan::new(&"hugetlb-2m".parse().unwrap(), &built_in("cascade-lake").unwrap()).unwrap();
    with_format!(plan.format.format, format => {
        run("hugetlb-2m", AddressSpaces::new(format, &plan, &Physical::default()).unwrap(), &steps)
    })
    .unwrap();
}
