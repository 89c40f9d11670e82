//! Remedies compared with what kernels really gave: the matrices in docs/evidence/capabilities, each cell of which was tried.

use std::path::Path;

use policy::capability::{Cell, Matrix, Outcome, Way};
use policy::cause::Cause;
use policy::file_folios;
use policy::remedy::{Change, DecidingFiles, SourceChange, fixes};

/// The matrices of all kernels.
fn matrices() -> Vec<(String, Matrix)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/capabilities");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let matrix = |file: &Path| serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    files.map(|file| (file.display().to_string(), matrix(&file))).collect()
}

/// Whether the kernel gave memory of this kind its size in this way.
fn gives(matrix: &Matrix, of: &Cell, way: Way) -> bool {
    let is_same = |cell: &&Cell| cell.memory == of.memory && cell.size == of.size && cell.way == way;
    let found = matrix.cells.iter().find(is_same);
    found.is_some_and(|cell| matches!(cell.outcome, Outcome::Large { .. } | Outcome::FolioOnly { .. }))
}

/// What is known of a kernel and a mount when a process is inspected.
fn deciding(matrix: &Matrix, cell: &Cell) -> DecidingFiles {
    let kernel = file_folios::version(&matrix.kernel).unwrap();
    let mount = cell.memory.mount.as_deref().unwrap_or_default();
    DecidingFiles { lacks_file_folios: file_folios::lacks_pmd_folios(mount, kernel), ..DecidingFiles::default() }
}

/// The ways in which a change of the program brings about its pages; empty where the matrix has no such way.
fn ways_of(change: SourceChange) -> &'static [Way] {
    match change {
        SourceChange::WriteFirst | SourceChange::NoFork | SourceChange::Advise => &[Way::Touch],
        // The advised file is read, or scanned.
        SourceChange::AdviseUncached => &[Way::Touch, Way::Khugepaged, Way::Collapse],
        _ => &[],
    }
}

/// A change that has no effect on any kernel on which it is advised is worse than none.
#[test]
fn a_remedy_is_one_that_the_kernel_has() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for (file, matrix) in matrices() {
        for cell in &matrix.cells {
            let Outcome::Refused { cause, .. } = &cell.outcome else { continue };
            // For an overlay it is not known which file system is below it.
            let is_overlay = cell.memory.mount.as_deref() == Some("overlay");
            // Below PMD size no remedy is given for files.
            if Some(cell.size) != matrix.pmd || is_overlay {
                continue;
            }
            let fixes = fixes(cause, &deciding(&matrix, cell));
            let by_source = fixes.by_source.iter().flatten().filter_map(|change| match change {
                Change::Source { change } => Some(ways_of(*change)),
                _ => None,
            });
            let collapse: &[Way] = if fixes.by_collapse { &[Way::Collapse] } else { &[] };
            for ways in by_source.chain([collapse]).filter(|ways| !ways.is_empty()) {
                compared += 1;
                if !ways.iter().any(|way| gives(&matrix, cell, *way)) {
                    wrong.push(format!(
                        "{file}: {:?} by {:?}: {cause:?} has a remedy by {ways:?}",
                        cell.memory, cell.way
                    ));
                }
            }
        }
    }
    assert!(compared >= 50, "{compared} remedies were compared");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The table of file systems and the matrices agree.
#[test]
fn file_systems_have_large_folios_where_they_gave_them() {
    let mut compared = 0;
    for (file, matrix) in matrices() {
        let kernel = file_folios::version(&matrix.kernel).unwrap();
        let is_of_pmd = |cell: &&Cell| Some(cell.size) == matrix.pmd && cell.memory.kind.is_file();
        for cell in matrix.cells.iter().filter(is_of_pmd) {
            let Some(mount) = cell.memory.mount.as_deref() else { continue };
            let is_large = matches!(cell.outcome, Outcome::Large { .. } | Outcome::FolioOnly { .. });
            assert!(!(is_large && file_folios::lacks_pmd_folios(mount, kernel)), "{file}: {cell:?}");
            let is_refused = matches!(&cell.outcome, Outcome::Refused { cause: Cause::FilePages, .. });
            if is_refused && ["ext4", "xfs", "btrfs"].contains(&mount) && cell.way == Way::Touch {
                assert!(file_folios::lacks_pmd_folios(mount, kernel), "{file}: {cell:?}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 50, "{compared} cells were compared");
}
