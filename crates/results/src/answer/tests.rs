//! The sentences about invented simulations.

use super::words::at_most;
use super::*;
use crate::simulation::{KernelCycles, Missing, Per};
use policy::cause::{Cause, CauseShare};
use policy::verdict::Verdict;

/// A cost of at most this many cycles lost in a million instructions, and at least half as many.
fn cost(max_lost_cycles: u64) -> Cost {
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
        min_lost_cycles: max_lost_cycles / 2,
        max_lost_cycles,
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

/// An unknown time, for which each of a million instructions is assumed to take a cycle.
fn assumed() -> RunTime {
    RunTime::Assumed { why: "this is a test".to_owned() }
}

/// A time of this many million cycles at 2.5 GHz.
fn given(million_cycles: f64) -> RunTime {
    RunTime::Given { cpu_s: million_cycles * 1e6 / CLOCK_HZ }
}

fn answer_of(cells: &[Cell], time: &RunTime) -> Answer {
    answers(cells, &[machine()], false, time).remove(0)
}

fn answered(cells: &[Cell]) -> Answer {
    answer_of(cells, &assumed())
}

#[test]
fn of_policies_that_differ_by_less_than_is_printed_the_one_with_the_least_memory_is_named_first() {
    let giant = Cost { resident_peak_bytes: 2000 << 20, ..cost(19_500) };
    let cells = [cell("base", cost(200_000)), cell("hugetlb-1g", giant), cell("thp", cost(20_000))];
    let answer = answer_of(&cells, &given(1.0));
    assert_eq!(answer.best, ["thp", "hugetlb-1g"]);
    assert!(answer.sentence.starts_with("thp saves up to 18 % of the time"), "{}", answer.sentence);
    let equal = "thp and hugetlb-1g are equal within what the model can tell (0.1 % of the time)";
    assert!(answer.sentence.contains(equal), "{}", answer.sentence);
}

#[test]
fn page_size_does_not_matter_where_translation_hardly_takes_time() {
    let thp = Cost { resident_peak_bytes: 103 << 20, ..cost(20_000) };
    let answer = answer_of(&[cell("base", cost(200_000)), cell("thp", thp.clone())], &given(100.0));
    let expected = "translation is at most 0.2 % of this program's time on m, so page size does not matter there; memory grows \
                    by 3 % under thp. The time is 40.00 ms of CPU time, which was given (--run-time); cycles are \
                    those of 2.5 GHz, which is assumed. With faults, zeroing and copying, whose cost is assumed, thp has the fewest cycles; thp \
                    takes up to 0.2 % less time than base. Assumed: 4 of 5";
    assert!(answer.sentence.starts_with(expected), "{}", answer.sentence);
    let shares = answer.shares.unwrap();
    assert_eq!((shares.translation, shares.best_translation), (0.002, 0.0002));
    assert_eq!((shares.kernel, shares.page_size_matters), (Some(0.0015), false));
    // Without the kernel's costs, the sentence says only that page size does not matter to translation.
    let unknown = |cost: Cost| Cost { kernel: None, ..cost };
    let answer = answer_of(&[cell("base", unknown(cost(200_000))), cell("thp", unknown(thp))], &given(100.0));
    assert!(answer.sentence.contains("so page size does not matter to translation there; memory"), "{answer:?}");
}

#[test]
fn bounds_are_rounded_up() {
    let shown = [0.0, 0.0, 0.000_001, 0.002, 0.002_01, 0.0999, 0.1, 0.123, 1.7].map(at_most);
    assert_eq!(shown, ["0 %", "0 %", "0.1 %", "0.2 %", "0.3 %", "10 %", "10 %", "12.3 %", "100 %"]);
    // Bounds are rounded up to a tenth of a percent. The printed difference is that of the printed bounds: 20.7 - 0.5.
    assert_eq!(
        (at_most(0.2061), at_most(0.0049), words::less_by(0.2061, 0.0049)),
        ("20.7 %".into(), "0.5 %".into(), "20.2 %".into())
    );
}

#[test]
fn faults_can_matter_where_translation_does_not() {
    let kernel = |zeroing| Some(KernelCycles { fault: 0, zeroing, copying: 0 });
    let with = |lost, zeroing| Cost { kernel: kernel(zeroing), ..cost(lost) };
    let time = given(10.0);
    let cells = [cell("base", with(50_000, 500_000)), cell("thp", with(10_000, 100_000))];
    let answer = answer_of(&cells, &time);
    let expected = "translation is at most 0.5 % of this program's time on m; with faults, zeroing and copying, whose cost is \
                    assumed, thp takes up to 4.4 % less time than base; memory stays the same under thp. ";
    assert!(answer.sentence.starts_with(expected) && answer.shares.unwrap().page_size_matters, "{}", answer.sentence);
    assert_eq!((answer.best_with_kernel, answer.sentence.matches("With faults").count()), (vec!["thp".to_owned()], 0));
    let cells = [cell("base", with(50_000, 100_000)), cell("thp", with(10_000, 900_000))];
    let answer = answer_of(&cells, &time);
    let expected = "translation is at most 0.5 % of this program's time on m, and no policy saves time there; with faults, \
                    zeroing and copying, whose cost is assumed, thp takes 7.6 % more time than base; ";
    assert!(answer.sentence.starts_with(expected), "{}", answer.sentence);
    let cells = [cell("base", with(200_000, 500_000)), cell("thp", with(150_000, 100_000))];
    let answer = answer_of(&cells, &time);
    let expected =
        "translation is at most 2 % of this program's time on m, of which thp saves at most 0.5 %; with faults";
    assert!(answer.sentence.starts_with(expected), "{}", answer.sentence);
}

#[test]
fn the_time_has_its_source() {
    let cells = [cell("base", cost(200_000)), cell("thp", cost(20_000))];
    let measured = |recorded_ratio| RunTime::Measured {
        runs_s: vec![0.0003, 0.0004, 0.0007],
        processor: "a fast one".to_owned(),
        machines: vec!["m".to_owned()],
        recorded_ratio,
    };
    let answer = answer_of(&cells, &measured(None));
    let expected = "thp saves up to 18 % of the time on m in translation (at most 20 % -> 2 % of 400.0 µs), for about";
    assert!(answer.sentence.starts_with(expected), "{}", answer.sentence);
    let expected = "The time is 400.0 µs of CPU time, measured on such a processor (a fast one) with its host's page sizes \
                    (median of 3 runs, 300.0 µs to 700.0 µs: with the shortest, shares are 1.33 times as large); cycles are \
                    those of 2.5 GHz, which is assumed. With";
    assert!(answer.sentence.contains(expected), "{}", answer.sentence);
    // The kernel's 150,000 cycles are in addition to the million.
    let answer = answer_of(&cells, &measured(Some(0.25)));
    assert_eq!(answer.shares.unwrap().translation, 200_000.0 / 1_150_000.0);
    assert!(answer.sentence.contains("scaled by instructions, 25 % of which are in the trace"), "{}", answer.sentence);
    let other = RunTime::Measured {
        runs_s: vec![0.00004],
        processor: String::new(),
        machines: Vec::new(),
        recorded_ratio: None,
    };
    let answer = answer_of(&cells, &other);
    assert!(
        answer.sentence.contains("measured on another processor (unknown) with its host's page sizes (one run)"),
        "{}",
        answer.sentence
    );
    assert!(answer.sentence.contains("Translation alone would take longer than that time"), "{}", answer.sentence);
    assert_eq!(answer.shares.unwrap().translation, 1.0);
}

#[test]
fn without_instructions_and_time_no_share_is_known() {
    let of_runs = |lost| Cost { per: Per::of(None, 1_000_000), ..cost(lost) };
    let cells = [cell("base", of_runs(200_000)), cell("thp", of_runs(20_000)), cell("mthp-64k", of_runs(60_000))];
    let answer = answered(&cells);
    let expected = "thp is the best of 3 policies on m: 90.0 % less translation time than base (20.0 cycles per 1000 runs against \
                    200.0), for about the same peak memory (100M against 100M); held on 97 % of the memory. The share of the \
                    program's time is not known: the trace counts no instructions, and this is a test; give the program's CPU \
                    time with --run-time. With faults";
    assert!(answer.sentence.starts_with(expected), "{}", answer.sentence);
    assert_eq!(answer.shares, None);
    assert!(answer_of(&cells, &given(100.0)).shares.is_some());
}

#[test]
fn names_the_best_with_its_gain_its_memory_and_assumptions() {
    let thp = Cost { resident_peak_bytes: 150 << 20, ..cost(20_000) };
    let answer = answered(&[cell("base", cost(200_000)), cell("thp", thp), cell("mthp-64k", cost(60_000))]);
    assert_eq!(
        answer.sentence,
        "thp saves up to 13.4 % of the time on m in translation (at most 14.9 % -> 1.5 % of base's time, which is assumed), for 1.5 times the \
         peak memory (150M against 100M); held on 97 % of the memory. The time is assumed, a cycle for each of 1,000,000 \
         instructions, plus translation and the kernel's work at faults: this is a test. With faults, zeroing and copying, \
         whose cost is assumed, thp has the fewest cycles; thp takes up to 13.3 % less time than base. Assumed: 4 of 5 figures of \
         the machine (TLBs 2, walker 1, the kernel's costs 1), and that a core waits for each walk and each hit of the \
         second level, one after the other."
    );
    assert_eq!((answer.best, answer.best_with_kernel), (vec!["thp".to_owned()], vec!["thp".to_owned()]));
    assert_eq!((answer.reference.as_deref(), answer.lost_ratio), (Some("base"), Some(0.1)));
    assert_eq!(answer.resident_ratio, Some(1.5));
}

#[test]
fn reports_memory_that_is_in_no_rss() {
    let contig = Cost { held_unmapped_peak_bytes: 960 << 10, ..cost(20_000) };
    let cells = [cell("base", cost(200_000)), cell("contig-64k", contig)];
    let memory =
        "for about the same peak memory (100M against 100M) and up to 960K that is held and not mapped; held on";
    assert!(answered(&cells).sentence.contains(memory), "{:?}", answered(&cells));
    let memory = "memory stays the same under contig-64k and up to 960K that is held and not mapped. ";
    assert!(answer_of(&cells, &given(100.0)).sentence.contains(memory), "{:?}", answer_of(&cells, &given(100.0)));
}

#[test]
fn calls_indistinguishable_policies_equal() {
    let near = answered(&[cell("base", cost(100_000)), cell("thp", cost(99_000))]);
    assert_eq!(near.best, ["thp", "base"]);
    let equal = "translation is at most 8 % of this program's time on m, and no policy has less: thp and base are equal within \
                 what the model can tell (2 %)";
    assert!(near.sentence.contains(equal), "{}", near.sentence);
    // `base` loses 50,000 to 100,000 cycles and `thp` 60,000 to 80,000: which one is better depends on how far walks
    // overlap.
    let crossing = Cost { min_lost_cycles: 60_000, ..cost(80_000) };
    let crossed = answer_of(&[cell("base", cost(100_000)), cell("thp", crossing)], &given(2.1));
    assert!(crossed.sentence.contains("(2 %, or how far walks overlap decides)"), "{}", crossed.sentence);
    assert_eq!(crossed.best, ["thp", "base"]);
    let nothing = answered(&[cell("base", cost(0)), cell("thp", cost(0))]);
    assert!(nothing.sentence.starts_with("translation is at most 0 % of this program's time on m, so"), "{nothing:?}");
    assert_eq!(nothing.lost_ratio, None);
    let two = answered(&[cell("base", cost(100_000)), cell("thp", cost(1000)), cell("mthp-64k", cost(1010))]);
    assert!(two.sentence.contains("; thp and mthp-64k are equal within what the model can tell"), "{}", two.sentence);
    let cells = [cell("base", cost(100_000)), cell("thp", cost(101_000)), cell("mthp-64k", cost(105_000))];
    let with_base = answered(&cells);
    let expected = "on m, and no other policy has less: base and thp are equal within what the model can tell (2 %)";
    assert!(with_base.sentence.contains(expected), "{}", with_base.sentence);
}

#[test]
fn base_pages_can_be_the_best() {
    let answer = answered(&[cell("thp", cost(35_000)), cell("base", cost(30_000))]);
    let expected = "translation is at most 2.6 % of this program's time on m, and no policy has less than base. ";
    assert!(answer.sentence.starts_with(expected), "{}", answer.sentence);
    assert_eq!(answer.lost_ratio, Some(1.0));
}

#[test]
fn the_kernels_work_can_change_the_best_policy() {
    let costly = Cost { kernel: Some(KernelCycles { fault: 0, zeroing: 900_000, copying: 1 }), ..cost(20_000) };
    let answer = answered(&[cell("base", cost(200_000)), cell("thp", costly)]);
    let expected = "whose cost is assumed, base has the fewest cycles; thp takes 42.2 % more time than base.";
    assert!(answer.sentence.contains(expected), "{}", answer.sentence);
    assert_eq!((answer.best, answer.best_with_kernel), (vec!["thp".to_owned()], vec!["base".to_owned()]));
    let unknown = |lost| Cost { kernel: None, ..cost(lost) };
    let answer = answered(&[cell("base", unknown(200_000)), cell("thp", unknown(20_000))]);
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
    let answer = answered(&cells);
    for part in [
        "translation is at most 0.1 % of this program's time on m under base; there is nothing to compare base with. The time",
        "Not compared: thp (not in force: mappings smaller than one page of that size), base-64k (unsupported: no base \
         pages of 64K), mthp-64k (stopped early: out of\\nmemory)",
    ] {
        assert!(answer.sentence.contains(part), "{}", answer.sentence);
    }
    assert!(answer.best.is_empty() && answer.reference.is_none());
    let none = answers(&cells[1..], &[], true, &assumed()).remove(0);
    assert!(
        none.sentence.starts_with("no answer for m: no policy gave figures that count. Not compared: thp"),
        "{none:?}"
    );
    assert!(none.sentence.ends_with(". All figures cover only a part of the run."), "{}", none.sentence);
    assert!(answers(&[], &[], false, &assumed()).is_empty());
}

#[test]
fn hits_of_stores_are_named_where_they_are_most_hits_of_the_second_level() {
    let with = |stores: u64| {
        let counts =
            [("second_hit_cycles", 80_000), ("first_level_misses", 1100), ("first_level_misses, store", stores)];
        let further = [("second_level_misses", 100), ("second_level_misses, store", 20)];
        let figures = counts.into_iter().chain(further).map(|(name, count)| (name.to_owned(), count));
        answered(&[cell("base", Cost { figures: figures.collect(), ..cost(100_000) }), cell("thp", cost(20_000))])
            .sentence
    };
    let expected = "Under base, 80 % of the lost cycles are hits in the second level, 72 % of them of stores, whose misses a store \
                    buffer can hide; the rest are walks. ";
    assert!(with(740).contains(expected), "{}", with(740));
    assert!(with(520).contains("are hits in the second level; the rest are walks. "), "{}", with(520));
}

#[test]
fn the_policy_compared_with_is_named_with_the_reason_where_it_is_not_base() {
    let cells = [cell("hugetlb-64k", cost(200_000)), cell("thp", cost(20_000))];
    let sentence = answered(&cells).sentence;
    let expected =
        "; held on 97 % of the memory. Compared with hugetlb-64k, because base is not among the policies. The time";
    assert!(sentence.contains(expected), "{sentence}");
    let stopped =
        Cell { machine: "m".to_owned(), policy: "base".to_owned(), outcome: Err(Missing::Stopped("full".to_owned())) };
    let sentence = answered(&[&cells[..], &[stopped]].concat()).sentence;
    assert!(sentence.contains("Compared with hugetlb-64k, because base has no figures that count."), "{sentence}");
    let with_base = answered(&[cell("thp", cost(20_000)), cell("base", cost(200_000))]).sentence;
    assert!(!with_base.contains("Compared with"), "{with_base}");
}
