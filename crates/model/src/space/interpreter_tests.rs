//! Runs the same random calls through the tracer's interpreter, on a naive kernel, and through the model. Both must have the
//! same mappings, heaps and answers, and the same verdict on touched memory.
//!
//! The tracer's interpreter is `policy::carry_out` with a `Kernel`. In the crate `tracer` that kernel is a stopped task; here
//! it is a naive kernel.
//!
//! Hugetlb policies are tested in `pool`, with another naive kernel (`pool_program`), which also chooses addresses.

mod pool;
mod pool_program;
mod pool_verdict;
mod traced;

use ::policy::call::{Call, madv};
use paging::{Format, with_format};
use proptest::prelude::*;

use super::paged::AddressSpaces;
use super::tests::event;
use super::vma::{Backing, Vma};
use super::*;
use crate::machine::built_in;
use traced::{Attributes, TracedProgram};

const PAGE: u64 = 4096;
/// The address of the mappings.
const ARENA: u64 = 1 << 37;
/// The beginning of the heap.
const HEAP: u64 = (1 << 36) + 5 * PAGE;
const PAGES: u64 = 3 << 9;

/// A step of a program. `at` and `pages` count pages of the arena.
#[derive(Clone, Debug)]
enum Step {
    Mmap { at: u64, pages: u64, protection: u64, flags: u64 },
    Munmap { at: u64, pages: u64 },
    Mprotect { at: u64, pages: u64, protection: u64 },
    Madvise { at: u64, pages: u64, advice: u64 },
    Brk { bytes: u64 },
    Prctl { value: u64 },
    Write { at: u64, pages: u64 },
    WriteHeap { at: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || prop_oneof![0..PAGES, (0..PAGES / 16).prop_map(|group| group * 16)];
    let pages = || prop_oneof![1u64..64, Just(16u64), Just(32), Just(512), 1u64..PAGES];
    let flags = prop_oneof![6 => Just(0x22u64), 1 => Just(0x32), 1 => Just(0x4022), 1 => Just(0x2_0022), 1 => Just(0x8022), 1 => Just(0x21)];
    let protection = || prop_oneof![4 => Just(3u64), 1 => Just(1), 1 => Just(0)];
    let advice = prop_oneof![Just(4u64), Just(14), Just(15), Just(23), Just(24)];
    let step = prop_oneof![
        4 => (at(), pages(), protection(), flags)
            .prop_map(|(at, pages, protection, flags)| Step::Mmap { at, pages, protection, flags }),
        1 => (at(), pages()).prop_map(|(at, pages)| Step::Munmap { at, pages }),
        2 => (at(), pages(), protection()).prop_map(|(at, pages, protection)| Step::Mprotect { at, pages, protection }),
        2 => (at(), pages(), advice).prop_map(|(at, pages, advice)| Step::Madvise { at, pages, advice }),
        2 => (0u64..5 << 20).prop_map(|bytes| Step::Brk { bytes }),
        1 => (0u64..2).prop_map(|value| Step::Prctl { value }),
        4 => (at(), pages()).prop_map(|(at, pages)| Step::Write { at, pages }),
        1 => (0u64..4 << 20).prop_map(|at| Step::WriteHeap { at }),
    ];
    prop::collection::vec(step, 1..24)
}

/// Runs a step on both sides. Skips steps that the kernel would refuse.
fn step_both<F: Format + Send>(traced: &mut TracedProgram, spaces: &mut AddressSpaces<F>, step: &Step) {
    let range = |at: u64, pages: u64| (ARENA + at * PAGE, pages.min(PAGES - at) * PAGE);
    let is_mapped = |traced: &TracedProgram, (start, bytes): (u64, u64)| {
        traced.pages.range(start..start + bytes).count() as u64 * PAGE == bytes
    };
    let mut call_both = |call: Call, recorded: trace::Call, result: u64| {
        traced.handle_call(call);
        spaces.event(&event(recorded, result)).unwrap();
    };
    match *step {
        Step::Mmap { at, pages, protection, flags } => {
            let (address, bytes) = range(at, pages);
            let call = Call::Mmap { address, bytes, protection, flags, file: u64::MAX, offset: 0 };
            call_both(
                call,
                trace::Call::Mmap { address, bytes, protection, flags, file: -1, offset: 0, file_system: None },
                address,
            );
        }
        Step::Munmap { at, pages } => {
            let (address, bytes) = range(at, pages);
            traced.unmap(address, address + bytes);
            spaces.event(&event(trace::Call::Munmap { address, bytes }, 0)).unwrap();
        }
        Step::Mprotect { at, pages, protection } => {
            let (address, bytes) = range(at, pages);
            if is_mapped(traced, (address, bytes)) {
                traced.handle_call(Call::Mprotect { address, bytes, protection });
                spaces.event(&event(trace::Call::Mprotect { address, bytes, protection }, 0)).unwrap();
            }
        }
        Step::Madvise { at, pages, advice } => {
            let (address, bytes) = range(at, pages);
            let all = (address..address + bytes).step_by(PAGE as usize).all(|page| traced.is_writable(page));
            if is_mapped(traced, (address, bytes)) && (all || advice != madv::POPULATE_WRITE) {
                traced.handle_call(Call::Madvise { address, bytes, advice });
                spaces.event(&event(trace::Call::Madvise { address, bytes, advice }, 0)).unwrap();
            }
        }
        Step::Brk { bytes } => {
            let end = HEAP + bytes;
            call_both(Call::Brk { end }, trace::Call::Brk { address: end }, end);
        }
        Step::Prctl { value } => {
            let call = Call::Prctl { option: 41, arguments: [value, 0, 0, 0] };
            call_both(call, trace::Call::Prctl { option: 41, argument: value }, 0);
        }
        Step::Write { at, pages } => {
            let (address, bytes) = range(at, pages);
            for page in (address..address + bytes)
                .step_by(PAGE as usize)
                .filter(|page| traced.is_writable(*page))
                .collect::<Vec<_>>()
            {
                traced.write(page);
                spaces.access(page, true).unwrap();
            }
        }
        Step::WriteHeap { at } => {
            let page = (HEAP + at) & !(PAGE - 1);
            if traced.is_writable(page) {
                traced.write(page);
                spaces.access(page, true).unwrap();
            }
        }
    }
}

fn run_and_compare<F: Format + Send>(
    policy: &str,
    mut spaces: AddressSpaces<F>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut traced = TracedProgram::new(policy);
    prop_assert_eq!(spaces.plan.mechanism, traced.mechanism);
    step_both(&mut traced, &mut spaces, &Step::Brk { bytes: 0 });
    for step in steps {
        step_both(&mut traced, &mut spaces, step);
        let properties = |vma: &Vma| Attributes {
            protection: vma.protection,
            advice: vma.advice,
            accounting: vma.accounting,
            is_shared: matches!(vma.backing, Backing::Shared(_)),
        };
        let of_model: Vec<(u64, u64, Attributes)> =
            spaces.processes.running.vmas.all().map(|(begin, vma)| (begin, vma.end, properties(&vma))).collect();
        // The model never merges shared mappings, but the naive kernel does, so mappings are compared page by page.
        let by_page = |vmas: &[(u64, u64, Attributes)]| {
            let pages = |(start, end, of): &(u64, u64, Attributes)| {
                (*start..*end).step_by(PAGE as usize).zip(std::iter::repeat(*of)).collect::<Vec<_>>()
            };
            vmas.iter().flat_map(pages).collect::<Vec<(u64, Attributes)>>()
        };
        let private = |vmas: &[(u64, u64, Attributes)]| {
            vmas.iter().filter(|(_, _, of)| !of.is_shared).copied().collect::<Vec<_>>()
        };
        prop_assert_eq!(private(&of_model), private(&traced.vmas()), "{} {:?}", policy, step);
        prop_assert!(
            by_page(&of_model) == by_page(&traced.vmas()),
            "{policy} {step:?}: {of_model:x?} {:x?}",
            traced.vmas()
        );
        prop_assert_eq!(spaces.processes.running.policy, traced.space, "{} {:?}", policy, step);
    }
    let (of_model, of_tracer) = (Space::verdict(&spaces).unwrap(), traced.verdict());
    prop_assert_eq!(of_model, of_tracer, "{}", policy);
    Ok(())
}

proptest! {
    #![proptest_config(testing::properties(192))]
    #[test]
    fn both_interpreters_of_a_policy_agree(
        policy in prop::sample::select(vec![
            "base", "thp", "mthp-64k", "mthp-16k", "thp+no-huge", "thp+prefault", "base+prefault", "mthp-64k+no-guards",
            "thp+no-guards+prefault",
        ]),
        steps in steps(),
    ) {
        let plan = Plan::new(&policy.parse().unwrap(), &built_in("cascade-lake").unwrap()).unwrap();
        with_format!(plan.format.format, format => {
            run_and_compare(policy, AddressSpaces::new(format, &plan, &Physical::default()).unwrap(), &steps)
        })?;
    }
}

/// mprotect splits one leaf; another slot was filled with base pages before its mapping covered the whole slot.
#[test]
fn split_leaves_explain_full_slots_on_both_sides() {
    let steps = [
        Step::Mmap { at: 0, pages: 1344, protection: 3, flags: 34 },
        Step::Mmap { at: 1025, pages: 512, protection: 3, flags: 34 },
        Step::Mprotect { at: 206, pages: 1, protection: 1 },
    ];
    let plan = Plan::new(&"thp+prefault".parse().unwrap(), &built_in("cascade-lake").unwrap()).unwrap();
    with_format!(plan.format.format, format => {
        run_and_compare("thp+prefault", AddressSpaces::new(format, &plan, &Physical::default()).unwrap(), &steps)
    })
    .unwrap();
}
