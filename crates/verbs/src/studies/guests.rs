//! Studies whose boots are guests, which pagelab boots itself, as `compare --kernel` does ([`Guests`]).

use guest::Sysroot;
use results::store::{OfStudy, Store};
use study::comparison::Comparison;
use study::guest::processor_of;
use study_files::definition::{Definition, Published};
use study_files::matrix::{Matrix, Row, kernels as axis};

use super::guest_boots::{are_guests, boots_of, boots_wanted};
use super::lowered::{arguments_in_system, compare_arguments};
use super::over_boots::published_of_boot;
use super::plan::HostRow;
use crate::compare::in_guest;
use crate::failure::Failure;
use crate::kernels::kernel::{self, Kernel};
use crate::kernels::lab::{BootResult, GUEST_TIME_S, Lab};
use crate::kernels::{ended, measure};

/// The kernels of a study's guests, and what is needed to boot them.
pub struct Guests {
    lab: Lab,
    kernels: Vec<Kernel>,
}

/// Prepares the guests of a study; `None` if the study's boots are not guests, or nothing is to be run.
///
/// # Errors
/// A kernel cannot be booted, or QEMU is missing.
pub fn open(definition: &Definition, is_wanted: bool, store: &Store) -> Result<Option<Guests>, Failure> {
    if !is_wanted || !are_guests(definition) {
        return Ok(None);
    }
    let kernels = kernel::of_boots(&definition.boots)?;
    let icount = definition.boots.iter().any(|boot| boot.guest.as_ref().is_some_and(|guest| guest.icount));
    let lab = Lab::open(&kernels, icount, GUEST_TIME_S, store.path())?;
    Ok(Some(Guests { lab, kernels }))
}

impl Guests {
    /// Boots each guest that has too few boots of the workload, and stores its comparison.
    ///
    /// # Errors
    /// A guest has no result.
    pub fn measure(
        &self,
        definition: &Definition,
        row: &HostRow<'_>,
        of: OfStudy,
        store: &Store,
    ) -> Result<(), Failure> {
        let Ok(planned) = &row.compare_arguments else { return Ok(()) };
        let host_words = compare_arguments(definition, row.workload).unwrap_or_else(|_| planned.clone()).words;
        in_guest::check_words(&host_words, self.lab.clock())?;
        let in_system = |sysroot: &Sysroot| {
            arguments_in_system(definition, row.workload, &sysroot.program()).map_err(Failure::Input)
        };
        let left = |kernel: &Kernel| boots_wanted(definition).saturating_sub(boots_of(kernel, &row.stored) as u32);
        let left: Vec<u32> = self.kernels.iter().map(left).collect();
        let seed = definition.seed.unwrap_or_else(in_guest::seed).wrapping_add(row.stored.len() as u64);
        measure(&self.lab, &self.kernels, &left, seed, &mut |kernel, seed| {
            let words = kernel.sysroot.as_ref().map_or_else(|| Ok(host_words.clone()), in_system)?;
            let BootResult { comparison, exit } = self.lab.measure(kernel, &words, seed)?;
            store.begin_of_study(&comparison, &of).map_err(Failure::input)?;
            ended(&comparison, exit)
        })
    }
}

/// Workloads with their comparisons, each with the label of its host.
fn named<'a>(rows: &'a [HostRow<'_>]) -> Vec<(&'a str, Vec<(String, &'a Comparison)>)> {
    let host = |one: &Comparison| axis::place(&processor_of(&one.machine), one);
    let of_row = |row: &'a HostRow<'_>| {
        (row.workload.name.as_str(), row.stored.iter().map(|one| (host(one), one)).collect::<Vec<_>>())
    };
    rows.iter().map(of_row).collect()
}

/// Rows with policies as columns, one for each workload and kernel.
pub fn of_policies(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<Row> {
    axis::of_policies(definition, &named(rows)).rows
}

/// The matrix with kernels as columns, one row for each workload and policy; `None` if there is only one kernel, or
/// nothing was measured.
pub fn of_kernels(definition: &Definition, rows: &[HostRow<'_>], published: &[Published]) -> Option<Matrix> {
    if definition.boots.len() < 2 || rows.iter().all(|row| row.stored.is_empty()) {
        return None;
    }
    let Matrix { policies, baseline, rows, .. } = axis::of_kernels(definition, &named(rows))?;
    let published: Vec<Published> = published.iter().map(|one| published_of_boot(definition, one)).collect();
    Some(Matrix::of(&policies, &baseline, rows, &published))
}
