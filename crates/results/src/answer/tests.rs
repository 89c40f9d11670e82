//! The sentences about made-up simulations.

use super::*;
use crate::simulation::{KernelCycles, Missing};
use policy::cause::{Cause, CauseShare};
use policy::verdict::Verdict;

/// A policy that loses at most this many cycles in a million instructions, and at least half of them.
fn cost(most_lost_cycles: u64) -> Cost {
    Cost {
        page_bytes: 4096,
        verdict: Verdict {
            holding: Holding::Held,
            concerned_bytes: 100,
            covered_bytes: 97,
            peak: None,
            causes: vec![CauseShare { cause: Cause::MappingTooSmall, bytes: Some(3) }],
            answered: Vec::new(),
        },
        per: Per::of(Some(1_000_000), 77),
        first_level_misses: 0,
        second_level_misses: 0,
        walks: 0,
        walk_references: 0,
        least_lost_cycles: most_lost_cycles / 2,
        most_lost_cycles,
        kernel: Some(KernelCycles { fault: 100_000, zeroing: 50_000, copying: 0 }),
        faults: 12,
        resident_peak_bytes: 100 << 20,
        touched_peak_bytes: 90 << 20,
        held_unmapped_peak_bytes: 0,
        table_peak_bytes: 256 << 10,
        mapped: Vec::new(),
        figures: Vec::new(),
    }
}

fn cell(policy: &str, cost: Cost) -> Cell {
    Cell { machine: "m".to_owned(), policy: policy.to_owned(), outcome: Ok(cost) }
}

fn machine() -> Machine {
    let figure = |key: &str, provenance| MachineFigure { key: key.to_owned(), value: "1".to_owned(), provenance };
    let assumed = || Provenance::Assumed("a guess".to_owned());
    Machine {
        name: "m".to_owned(),
        processor: "a test".to_owned(),
        figures: vec![
            figure("formats", Provenance::Source("a manual".to_owned())),
            figure("tlb[0].ways", assumed()),
            figure("tlb[0].entries", assumed()),
            figure("walker.walkers", assumed()),
            figure("kernel_costs.fault_cycles", assumed()),
        ],
    }
}

fn said(cells: &[Cell]) -> Answer {
    answers(cells, &[machine()], false).remove(0)
}

#[test]
fn the_best_is_named_with_its_gain_its_memory_and_what_is_assumed() {
    let thp = Cost { resident_peak_bytes: 150 << 20, ..cost(20_000) };
    let answer = said(&[cell("base", cost(200_000)), cell("thp", thp), cell("mthp-64k", cost(60_000))]);
    assert_eq!(
        answer.sentence,
        "m: thp is the best of 3 policies: 90.0 % less translation time than base (20.0 cycles per 1000 instructions \
         against 200.0), for 1.5 times the peak memory (150M against 100M); held on 97 % of the memory. At a cycle an \
         instruction, translation is 16.7 % of the time under base. With faults, zeroing and copying, whose cost is \
         assumed, thp has the fewest cycles: 51.4 % less than base. Assumed: 4 of 5 figures of the machine (TLBs 2, walker \
         1, the kernel's costs 1), and that a core waits for each walk, one after the other."
    );
    assert_eq!((answer.best, answer.best_with_kernel), (vec!["thp".to_owned()], vec!["thp".to_owned()]));
    assert_eq!((answer.reference.as_deref(), answer.lost_ratio), (Some("base"), Some(0.1)));
    assert_eq!(answer.resident_ratio, Some(1.5));
}

#[test]
fn memory_that_no_rss_shows_is_said() {
    let contig = Cost { held_unmapped_peak_bytes: 960 << 10, ..cost(20_000) };
    let sentence = said(&[cell("base", cost(200_000)), cell("contig-64k", contig)]).sentence;
    let memory =
        "for about the same peak memory (100M against 100M) and up to 960K that is held and not mapped; held on";
    assert!(sentence.contains(memory), "{sentence}");
}

#[test]
fn policies_that_cannot_be_told_apart_are_called_equal() {
    let near = said(&[cell("base", cost(100_000)), cell("thp", cost(99_000))]);
    assert_eq!(near.best, ["thp", "base"]);
    let equal = "no policy takes less translation time than another: thp and base are equal within what the model can tell \
                 (2 %), at most 100.0 cycles per 1000 instructions";
    assert!(near.sentence.contains(equal), "{}", near.sentence);
    // With overlapping walks the other one is better.
    let crossing = Cost { least_lost_cycles: 60_000, ..cost(80_000) };
    let crossed = said(&[cell("base", cost(100_000)), cell("thp", crossing)]);
    assert!(crossed.sentence.contains("(2 %, or how far walks overlap decides)"), "{}", crossed.sentence);
    assert_eq!(crossed.best, ["thp", "base"]);
    let nothing = said(&[cell("base", cost(0)), cell("thp", cost(0))]);
    assert!(nothing.sentence.contains("equal within what the model can tell (2 %), at most 0 cycles"), "{nothing:?}");
    assert_eq!(nothing.lost_ratio, None);
    let two = said(&[cell("base", cost(100_000)), cell("thp", cost(1000)), cell("mthp-64k", cost(1010))]);
    assert!(two.sentence.contains("thp and mthp-64k are the best of 3 policies, equal within"), "{}", two.sentence);
    let with_base = said(&[cell("base", cost(1000)), cell("thp", cost(1010)), cell("mthp-64k", cost(5000))]);
    assert!(with_base.sentence.contains("nothing gained over base: base and thp are equal"), "{}", with_base.sentence);
    assert!(with_base.sentence.contains("and mthp-64k worse"), "{}", with_base.sentence);
}

#[test]
fn base_pages_can_be_the_best() {
    let answer = said(&[cell("thp", cost(30_000)), cell("base", cost(20_000))]);
    let expected = "base is the best of 2 policies: even thp takes 50.0 % more translation time (30.0 cycles per 1000 \
                    instructions against 20.0 cycles per 1000 instructions)";
    assert!(answer.sentence.contains(expected), "{}", answer.sentence);
    assert_eq!(answer.lost_ratio, Some(1.0));
}

#[test]
fn the_kernel_can_turn_it_round() {
    let dear = Cost { kernel: Some(KernelCycles { fault: 0, zeroing: 900_000, copying: 1 }), ..cost(20_000) };
    let answer = said(&[cell("base", cost(200_000)), cell("thp", dear)]);
    assert!(answer.sentence.contains("whose cost is assumed, base has the fewest cycles."), "{}", answer.sentence);
    assert_eq!((answer.best, answer.best_with_kernel), (vec!["thp".to_owned()], vec!["base".to_owned()]));
    let unknown = |lost| Cost { kernel: None, ..cost(lost) };
    let answer = said(&[cell("base", unknown(200_000)), cell("thp", unknown(20_000))]);
    assert!(answer.sentence.contains("is not known: the machine file has no [kernel_costs]"), "{}", answer.sentence);
    assert!(answer.best_with_kernel.is_empty());
}

#[test]
fn what_cannot_be_compared_is_named_with_its_reason() {
    let mut void = cost(1);
    void.verdict.holding = Holding::NotHeld;
    let refused =
        |policy: &str, missing| Cell { machine: "m".to_owned(), policy: policy.to_owned(), outcome: Err(missing) };
    let cells = [
        cell("base", cost(1000)),
        cell("thp", void),
        refused("base-64k", Missing::Refused("no base pages of 64K".to_owned())),
        refused("mthp-64k", Missing::Stopped("out of\nmemory".to_owned())),
    ];
    let answer = said(&cells);
    for part in [
        "m: there is nothing to compare base with: it loses 1.000 cycles per 1000 instructions to translation",
        "Not compared: thp (not in force: mappings smaller than one page of that size), base-64k (cannot be had: no base \
         pages of 64K), mthp-64k (stopped early: out of\\nmemory)",
    ] {
        assert!(answer.sentence.contains(part), "{}", answer.sentence);
    }
    assert!(answer.best.is_empty() && answer.reference.is_none());
    let none = answers(&cells[1..], &[], true).remove(0);
    assert!(
        none.sentence.starts_with("m: no answer: no policy gave figures that count. Not compared: thp"),
        "{none:?}"
    );
    assert!(none.sentence.ends_with(". All of it is of a part of what ran."), "{}", none.sentence);
    assert!(answers(&[], &[], false).is_empty());
}
