//! Small machines: into which memory sizes a workload fits under each policy, by the peak memory of a model.

use policy::size::format_bytes;
use study_files::matrix::{Cell, Matrix, Row};

use super::cells::{Sheet, place};
use super::{MachineFigures, rows_of};

/// The policy with the least memory, with which others are compared if the study has it.
const SMALLEST: &str = "base";

/// One row per memory size, one column per policy: how many workloads fit, and which of them fit only under base pages.
pub fn of_sizes(matrix: &Matrix, machine_figures: MachineFigures<'_>, sizes: &[u64]) -> Sheet {
    let smallest = matrix.policies.iter().position(|policy| policy == SMALLEST);
    let reference =
        smallest.or_else(|| matrix.policies.iter().position(|policy| *policy == matrix.baseline)).unwrap_or(0);
    let rows: Vec<&Row> =
        rows_of(matrix, machine_figures).filter(|row| needed_bytes(&row.cells[reference]).is_some()).collect();
    let cell = |at: usize, size: u64| {
        let fits = |row: &&&Row, at: usize| needed_bytes(&row.cells[at]).map(|needed| needed <= size);
        let known = rows.iter().filter(|row| needed_bytes(&row.cells[at]).is_some()).count();
        let fitting = rows.iter().filter(|row| fits(row, at) == Some(true)).count();
        let lost = rows.iter().filter(|row| fits(row, reference) == Some(true) && fits(row, at) == Some(false));
        let lost: Vec<&str> = lost.map(|row| row.workload.as_str()).collect();
        match (known, lost.is_empty()) {
            (0, _) => "none".to_owned(),
            (_, true) => format!("{fitting} of {known}"),
            (_, false) => format!("{fitting} of {known}; not {}", lost.join(", ")),
        }
    };
    let line = |size: &u64| {
        std::iter::once(format_bytes(*size)).chain((0..matrix.policies.len()).map(|at| cell(at, *size))).collect()
    };
    Sheet {
        caption: format!(
            "{}: small machines. How many workloads fit into a memory of that size, by their peak of held memory plus that of page \
             tables; without files, whose pages can be dropped, and without the kernel and other programs. Named: those \
             that fit under {} and not under this policy",
            place(machine_figures),
            matrix.policies[reference]
        ),
        header: std::iter::once("memory".to_owned()).chain(matrix.policies.iter().cloned()).collect(),
        rows: if rows.is_empty() { Vec::new() } else { sizes.iter().map(line).collect() },
    }
}

/// Memory that a workload needs according to a model, in bytes; `None` for measured cells, and if there is no figure.
fn needed_bytes(cell: &Cell) -> Option<u64> {
    let [held, tables] = ["held_peak_bytes", "all_table_peak_bytes"].map(|name| cell.medians.get(name));
    Some((held? + tables?) as u64)
}

#[cfg(test)]
mod tests {
    use study::metric::Provenance;

    use super::*;

    const MACHINE_FIGURES: MachineFigures<'_> = ("a machine", Provenance::Modelled);
    const M: u64 = 1 << 20;

    /// The memory, in megabytes, of each of three workloads under each of three policies; 0 means no figure.
    fn matrix(held: [[u64; 3]; 3]) -> Matrix {
        let policies = ["thp", "base", "contig-64k"].map(str::to_owned);
        let row = |(name, held): (&str, [u64; 3])| {
            let without = Row::without(name, MACHINE_FIGURES.0, &policies, "none");
            let mut row = Row { provenance: Provenance::Modelled, ..without };
            for (cell, held) in row.cells.iter_mut().zip(held).filter(|(_, held)| *held > 0) {
                cell.medians.insert("held_peak_bytes".into(), (held * M - 4096) as f64);
                cell.medians.insert("all_table_peak_bytes".into(), 4096.0);
            }
            row
        };
        Matrix::of(&policies, "thp", ["xz", "perl", "gcc"].into_iter().zip(held).map(row).collect(), &[])
    }

    #[test]
    fn a_size_says_what_fits_under_base_pages_alone() {
        let sheet = of_sizes(&matrix([[8, 4, 4], [6, 3, 5], [2, 1, 0]]), MACHINE_FIGURES, &[4 * M, 8 * M]);
        let expected =
            [["4M", "1 of 3; not xz, perl", "3 of 3", "1 of 2; not perl"], ["8M", "3 of 3", "3 of 3", "2 of 2"]];
        assert_eq!(sheet.rows, expected.map(|row| row.map(str::to_owned).to_vec()));
        assert!(sheet.caption.contains("fit under base and not"), "{}", sheet.caption);
    }

    #[test]
    fn what_was_measured_and_a_study_without_sizes_have_no_table() {
        assert!(of_sizes(&matrix([[0; 3]; 3]), MACHINE_FIGURES, &[4 * M]).rows.is_empty());
        assert!(of_sizes(&matrix([[1; 3]; 3]), MACHINE_FIGURES, &[]).rows.is_empty());
    }
}
