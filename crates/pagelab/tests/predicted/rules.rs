//! Tests of rules of the kernel, each with a program that depends on one rule.

use crate::common::{Bench, needs, program};
use crate::{Allowance, POLICIES, STRAY_FAULTS, agrees_under, can_compare, compared, compiled, near, same_start};

/// Compares all figures of a program of `tests/programs`, which has this number of processes.
fn is_predicted(name: &str, policies: &[&str], processes: f64) {
    if can_compare() && needs(&[program("gcc")]) {
        let bench = Bench::in_memory();
        let command = [compiled(&bench, name)];
        let launch = same_start(&bench, &command, &[]);
        agrees_under(policies, &launch, &bench, &command, &Allowance { processes, windows: 0.0 });
    }
}

#[test]
fn memory_that_a_program_aligns_is_predicted() {
    is_predicted("aligned", &POLICIES, 1.0);
}

#[test]
fn memory_that_a_child_does_not_get_is_predicted() {
    is_predicted("fork_advice", &POLICIES, 3.0);
}

/// When the kernel splits a folio, it maps the zero page in place of pages that hold only zeros.
#[test]
fn folios_that_are_split_are_predicted() {
    is_predicted("splits", &POLICIES, 1.0);
}

#[test]
fn large_pages_that_a_program_asks_for_are_predicted() {
    is_predicted("collapse", &POLICIES, 1.0);
}

/// No policy concerns shared memory, so one policy is enough.
#[test]
fn shared_memory_is_predicted() {
    is_predicted("shared", &POLICIES[..1], 2.0);
    is_predicted("memory_files", &POLICIES[..1], 1.0);
}

#[test]
fn locked_memory_is_predicted() {
    is_predicted("locked", &POLICIES[..3], 2.0);
}

/// QEMU maps two pages behind the dynamic linker that no program has on Linux, and they are locked too. So only faults are
/// compared.
#[test]
fn locking_all_memory_is_predicted() {
    if can_compare() && needs(&[program("gcc")]) {
        let bench = Bench::in_memory();
        let command = vec![compiled(&bench, "locked"), "current".to_owned()];
        let launch = same_start(&bench, &command, &[]);
        let (native, simulated) = compared(&bench, &["base"], &[command], &launch)[0].faults("base");
        assert_eq!(near("faults", native, simulated, STRAY_FAULTS), None);
    }
}
