//! Comparisons in guests: emulated guests have no times; kernels and policies are compared over boots.

#[path = "../../study/tests/common/mod.rs"]
mod common;

use common::{Fake, Noise, comparison, design, machine};
use policy::census::{Backing, Folio, Mapping};
use policy::machine::Machine;
use policy::size::PageSize;
use policy::verdict::Holding;
use policy::{Admission, Unsupported};
use study::comparison::Comparison;
use study::guest::{Clock, kernel_word, with_large_pages, without_times};
use study::metric::{Direction, Metric, Observation, Unit, names};
use study::runner::compare;
use study::stats::boots::boots_needed;
use study_files::definition::{Definition, DefinitionError, Size, Wire};
use study_files::matrix::{Conclusion, Matrix, kernels};

fn wire(boots: serde_json::Value) -> Result<Definition, DefinitionError> {
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "kernels", "question": "Which kernel?", "policies": ["base", "thp"],
        "sizes": { "standard": { "boots": 4 } }, "workload": [{ "name": "sort", "command": ["sort"] }], "boots": boots,
    });
    serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Standard)
}

fn definition() -> Definition {
    wire(serde_json::json!({ "old": { "image": "/boot/old", "baseline": true }, "new": { "image": "/boot/new" } }))
        .unwrap()
}

/// One boot of a guest, in which everything takes `scale` of the time.
fn boot(kernel: &str, clock: Clock, number: u64, scale: f64) -> Comparison {
    let mut design = design(&["base", "thp"], number);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = Fake::new(&design, &[scale, scale * 0.9], Noise::quiet(), number);
    fake.arms[1].holding = Holding::Held;
    let run = compare(&design, &mut fake, &mut |_| ());
    let machine = Machine {
        kernel: format!("{kernel} #1"),
        kernel_command_line: format!("{} {}", kernel_word(kernel), clock.word()),
        boot_id: format!("boot-{number}"),
        host_id: Some("host".into()),
        ..machine(1, number)
    };
    Comparison { started_unix_s: number as i64 * 1000, ..comparison(number as i64, machine, design, run) }
}

/// Four boots of each kernel; the new one takes four fifths of the time.
fn eight(clock: Clock) -> Vec<Comparison> {
    let kernel = |at: u64| if at.is_multiple_of(2) { ("old", 1.0) } else { ("new", 0.8) };
    (0..8).map(|at| boot(kernel(at).0, clock, at + 1, kernel(at).1)).collect()
}

fn named(comparisons: &[Comparison]) -> Vec<(&str, Vec<(String, &Comparison)>)> {
    vec![("sort", comparisons.iter().map(|one| ("host".to_owned(), one)).collect())]
}

#[test]
fn an_emulated_guest_has_no_times_and_has_instructions_if_its_clock_counts_them() {
    let times = |one: &Comparison| {
        let of_trials = one.trials.iter().flat_map(|record| &record.observations).map(|one| one.metric.clone());
        let of_design = one.design.metrics.iter().filter(|metric| metric.unit == Unit::Seconds);
        of_trials.filter(|name| name.ends_with("_s")).chain(of_design.map(|metric| metric.name.clone())).count()
    };
    let real = boot("old", Clock::Real, 1, 1.0);
    assert!(times(&real) > 0);
    assert!(without_times(real.clone()) == real);
    for (clock, primary) in [(Clock::Nothing, names::MINOR_FAULTS), (Clock::Instructions, names::INSTRUCTIONS)] {
        let known = boot("old", clock, 1, 1.0);
        let cpu_s = known.trials[0].value(names::CPU_S);
        let emulated = without_times(known);
        assert_eq!((times(&emulated), emulated.design.primary.as_str()), (0, primary));
        let instructions = emulated.trials[0].value(names::INSTRUCTIONS);
        assert_eq!(instructions.is_some(), clock == Clock::Instructions && cpu_s.is_some());
        assert!(without_times(emulated.clone()) == emulated, "it can be done twice");
    }
}

#[test]
fn guests_have_their_large_pages_and_the_instructions_of_program_and_kernel() {
    let with_times = |user_s: f64, system_s: f64| {
        let mut known = boot("old", Clock::Instructions, 1, 1.0);
        for record in &mut known.trials {
            record.observations.retain(|one| ![names::USER_S, names::SYSTEM_S].contains(&one.metric.as_str()));
            record.observations.push(Observation::measured(names::USER_S, user_s));
            record.observations.push(Observation::measured(names::SYSTEM_S, system_s));
            let large = PageSize::new(2 << 20).unwrap();
            let mapping = Mapping { backing: Backing::Anonymous, leaf: large, folio: Folio::Whole(large) };
            record.census.add(mapping, 4 << 30);
        }
        without_times(with_large_pages(known))
    };
    let short = with_times(0.2, 0.01);
    assert_eq!(short.trials[0].value(names::KERNEL_INSTRUCTIONS), None, "too few samples at the tick");
    assert!(short.design.metrics.iter().all(|metric| metric.name != names::USER_INSTRUCTIONS));
    let found = with_times(0.3, 0.2);
    let record = &found.trials[0];
    assert_eq!(record.value(names::USER_INSTRUCTIONS), Some(3e8));
    assert_eq!(record.value(names::KERNEL_INSTRUCTIONS), Some(2e8));
    assert_eq!(record.value(names::LARGE_PAGE_BYTES), Some((4u64 << 30) as f64));
    assert_eq!(record.value("pages_2M_bytes"), Some((4u64 << 30) as f64));
    let has = |name: &str| found.design.metrics.iter().any(|metric| metric.name == name);
    assert!(has(names::LARGE_PAGE_BYTES) && has(names::USER_INSTRUCTIONS) && has(names::KERNEL_INSTRUCTIONS));
    let medians = &found.analysis.unwrap().arms[0].medians;
    assert!(medians.contains_key(names::LARGE_PAGE_BYTES));
    let without_census = with_large_pages(boot("old", Clock::Real, 1, 1.0));
    assert_eq!(without_census.trials[0].value(names::LARGE_PAGE_BYTES), None, "as without the tracer");
}

#[test]
fn an_emulated_kernel_has_the_limits_of_its_clock_as_a_note() {
    let boots: Vec<Comparison> = eight(Clock::Instructions).into_iter().map(without_times).collect();
    let (definition, named) = (definition(), named(&boots));
    for matrix in [kernels::of_kernels(&definition, &named).unwrap(), kernels::of_policies(&definition, &named)] {
        for row in &matrix.rows {
            let limits = row.notes.iter().filter(|note| Some(note.as_str()) == Clock::Instructions.limits());
            assert_eq!(limits.count(), 1, "{:?}", row.notes);
        }
    }
}

#[test]
fn printed_figures_that_are_not_times_remain_and_times_become_instructions_if_these_are_counted() {
    let printed = ["map_us", "used_bytes", "get_per_s"];
    for (clock, left) in [
        (Clock::Nothing, vec![("used_bytes", 7.0)]),
        (Clock::Instructions, vec![("map_instructions", 2500.0), ("used_bytes", 7.0)]),
        (Clock::Real, vec![("map_us", 2.5), ("used_bytes", 7.0), ("get_per_s", 9.0)]),
    ] {
        let mut known = boot("old", clock, 1, 1.0);
        let metric = |name: &str| Metric::new(name, Unit::Custom, Direction::Lower);
        known.design.metrics.extend(printed.map(metric));
        known.design.primary = "map_us".into();
        for record in &mut known.trials {
            let figures = printed.into_iter().zip([2.5, 7.0, 9.0]);
            record.observations.extend(figures.map(|(name, value)| Observation::measured(name, value)));
        }
        let found = without_times(known);
        for (name, value) in &left {
            assert!(found.trials.iter().all(|record| record.value(name) == Some(*value)), "{name}");
        }
        let is_printed = |name: &String| left.iter().any(|(one, _)| one == name) || printed.contains(&name.as_str());
        let metrics = found.design.metrics.iter().map(|metric| metric.name.clone()).filter(is_printed);
        assert_eq!(metrics.collect::<Vec<_>>(), left.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let primary = match clock {
            Clock::Real => "map_us",
            Clock::Instructions => "map_instructions",
            Clock::Nothing => names::MINOR_FAULTS,
        };
        assert_eq!(found.design.primary, primary);
        assert!(without_times(found.clone()) == found, "it can be done twice");
    }
}

#[test]
fn kernels_are_compared_under_each_policy_and_policies_on_each_kernel() {
    let boots = eight(Clock::Real);
    let (definition, named) = (definition(), named(&boots));
    let Matrix { policies, baseline, rows, .. } = kernels::of_kernels(&definition, &named).unwrap();
    assert_eq!((policies, baseline.as_str()), (vec!["new".to_owned(), "old".to_owned()], "old"));
    let names: Vec<&str> = rows.iter().map(|row| row.workload.as_str()).collect();
    assert_eq!(names, ["sort under base", "sort under thp"]);
    for row in &rows {
        let change = row.cost_ratio(&row.cells[0]).unwrap();
        assert!((change - 0.8).abs() < 0.02, "{change}");
        assert_eq!((&row.cells[0].conclusion, &row.cells[1].conclusion), (&Conclusion::Better, &Conclusion::Baseline));
        assert_eq!(row.notes, [""; 0], "different kernels are the question, not a limit");
    }
    let of_policies = kernels::of_policies(&definition, &named);
    let places: Vec<&str> = of_policies.rows.iter().map(|row| row.machine.as_str()).collect();
    assert_eq!(places, ["new", "old"]);
    let change = of_policies.rows[0].cost_ratio(&of_policies.rows[0].cells[1]).unwrap();
    assert!((change - 0.9).abs() < 0.02 && of_policies.rows[0].notes.is_empty(), "{change}");
}

#[test]
fn emulated_rows_are_marked_and_a_kernel_without_a_policy_has_a_reason() {
    let mut boots = eight(Clock::Nothing);
    for one in boots.iter_mut().filter(|one| one.machine.kernel.starts_with("old")) {
        let why = Unsupported { reason: "no THP in this kernel".into(), remedy: "build it in".into() };
        one.admissions[1] = Admission::Unsupported(why);
        one.trials.retain(|record| record.trial.arm != 1);
    }
    let (definition, named) = (definition(), named(&boots));
    let rows = kernels::of_kernels(&definition, &named).unwrap().rows;
    let why = |conclusion: &Conclusion| matches!(conclusion, Conclusion::None { why } if why.contains("no THP in this kernel"));
    assert!(why(&rows[1].cells[1].conclusion), "{:?}", rows[1].cells[1]);
    let of_policies = kernels::of_policies(&definition, &named).rows;
    assert_eq!(of_policies[1].machine, "old, emulated");
    assert!(why(&of_policies[1].cells[1].conclusion));
}

/// The guests of a kernel took too long, so none of its boots has a trial that counts.
#[test]
fn does_not_advise_a_manual_boot_for_a_kernel_without_a_trial() {
    let mut boots = eight(Clock::Real);
    boots.iter_mut().filter(|one| one.machine.kernel.starts_with("old")).for_each(|one| one.trials.clear());
    let (definition, named) = (definition(), named(&boots));
    let of_policies = kernels::of_policies(&definition, &named).rows;
    let of_old = of_policies.iter().find(|row| row.machine == "old").unwrap();
    for cell in &of_old.cells {
        let Conclusion::None { why } = &cell.conclusion else { panic!("{cell:?}") };
        assert_eq!(why, "no trial of it counted");
    }
}

#[test]
fn a_rebuilt_kernel_is_another_kernel() {
    let mut boots = eight(Clock::Real);
    boots[7].machine.kernel = "new #2".into();
    let (definition, named) = (definition(), named(&boots));
    let rows = kernels::of_kernels(&definition, &named).unwrap().rows;
    assert_eq!(rows[0].cells[0].effects[names::WALL_S].blocks, 1, "the last build has one boot");
}

#[test]
fn guests_need_valid_names_and_equal_clocks_and_are_not_mixed_with_hosts() {
    let definition = definition();
    assert_eq!(definition.stopping.boots, Some(4));
    assert_eq!(definition.boots[1].describe(), "a guest with /boot/old");
    let refused = |boots| wire(boots).unwrap_err().to_string();
    let mixed = refused(serde_json::json!({ "a": { "image": "/boot/a" }, "b": { "kernel": "6.1" } }));
    assert!(mixed.contains("a is a guest and b a boot of the host"), "{mixed}");
    let unnamed = refused(serde_json::json!({ "a b": { "image": "/boot/a" } }));
    assert!(unnamed.contains("ASCII without spaces"), "{unnamed}");
    let none = refused(serde_json::json!({ "a": { "cmdline": "quiet" } }));
    assert!(none.contains("need a guest; add image"), "{none}");
    let clocks = refused(serde_json::json!({ "a": { "image": "/a", "icount": true }, "b": { "image": "/b" } }));
    assert!(clocks.contains("a has icount = true and b does not"), "{clocks}");
}

#[test]
fn the_number_of_boots_is_enough_to_show_a_difference() {
    assert_eq!((boots_needed(1), boots_needed(2)), (4, 4));
    assert!(boots_needed(4) > boots_needed(2));
}
