//! The checker reports nothing if the engine is right, and exactly one fault if one thing was broken.

mod arbitrary;
mod bodies;
mod broken_tables;
mod changes;
#[path = "../conformance/formats.rs"]
mod formats;
mod sequences;
mod written_steps;
mod wrong_sequences;

use paging::check::{Fault, check, live};
use paging::{Attributes, Event, Flags, Format, Severity, Tables};

/// Attributes that every format can express: those of user data; without the user flag at stage 2, which does not have it.
fn data<F: Format>(format: &F) -> Attributes {
    let stage1 = format.leaf(0, Attributes::new(Flags::READ | Flags::USER), false).is_ok();
    let user = if stage1 { Flags::USER } else { Flags::empty() };
    let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED | user | format.execute(stage1);
    Attributes { memory: format.normal_memory(), ..Attributes::new(flags) }
}

fn errors<F: Format>(tables: &Tables<F, impl paging::Log>) -> Vec<Fault> {
    let report = check(tables);
    assert_eq!(report.unlisted_errors, 0);
    report.faults.into_iter().filter(|fault| fault.severity() == Severity::Error).collect()
}

/// Panics with all faults of tables, or of the steps that created them.
#[track_caller]
fn assert_good<F: Format>(tables: &Tables<F, Vec<Event>>, what: &dyn core::fmt::Debug) {
    let faults = errors(tables);
    assert!(faults.is_empty(), "{:?}: {what:?}\n{}", tables.format(), lines(&faults));
    let violations = live::check(tables.format(), tables.log());
    assert!(violations.is_empty(), "{:?}: {what:?}\n{}", tables.format(), lines(&violations));
}

fn lines(all: &[impl core::fmt::Display]) -> String {
    all.iter().take(20).map(|one| format!("  {one}\n")).collect()
}
