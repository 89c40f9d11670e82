//! The page of all matrices: which sizes each kind of memory gets in each way, by kernel.

use std::fmt::Write;

use super::matrix::Matrix;

/// The ways, as a document names them, with their headings.
pub const WAYS: [(&str, &str); 9] = [
    ("touch", "first touch"),
    ("zeros", "write after reading zeros"),
    ("fork", "write after a fork"),
    ("populate", "MADV_POPULATE"),
    ("collapse", "MADV_COLLAPSE"),
    ("khugepaged", "khugepaged"),
    ("swap_in", "swap-in"),
    ("mremap", "mremap"),
    ("mprotect", "mprotect"),
];

const INTRODUCTION: &str = "# Pages by kernel

Which page sizes each kind of memory gets, in which way, on which kernel: `pagelab capabilities`, run by `cargo xtask guests --only
capabilities` in QEMU's emulation of a processor. Each cell was tried by a small program and proven from pagemap, kpageflags and smaps.
Each size was tried while it alone was enabled, for advised memory. [Which page each kind of memory can get](../guide/capabilities.md)
describes the programs. The guests have ext4, xfs and btrfs on virtio disks, overlayfs over ext4, tmpfs with each `huge=`, and swap on zram;
a row that a kernel lacks is missing from its column. The whole documents, with the reason of each refusal, are in
`docs/evidence/capabilities/`: `pagelab capabilities --diff A B` compares two of them.

![Pages by kernel: one block for each kind of memory, a row for each kernel, a column for each way](capabilities.svg)

| cell | meaning |
|---|---|
| 16K-2M | memory has these sizes: a leaf of the size, or whole folios where no leaf has it |
| (2M) | only its folios have this size: smaller leaves map them, in part or out of place |
| no | none of the sizes that the kernel has |
| - | not tried: the kernel has no such combination |
| * | an allocation of one of the sizes failed, twice |
";

pub fn markdown(kernels: &[Matrix]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n| guest | kernel | date | commit | large | folios only | refused | not available |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for kernel in kernels {
        let guest = &kernel.guest;
        let counts =
            ["large", "folio_only", "refused", "not_available"].map(|outcome| kernel.count(outcome).to_string());
        let name = guest.kernel.replace('_', " ");
        let _ =
            writeln!(text, "| {} | {name} | {} | {} | {} |", guest.guest, guest.date, guest.commit, counts.join(" | "));
    }
    for row in rows(kernels) {
        let of_row: Vec<&Matrix> = kernels.iter().filter(|kernel| kernel.rows().contains(&row)).collect();
        let names: Vec<&str> = of_row.iter().map(|kernel| kernel.guest.guest.as_str()).collect();
        let _ = writeln!(text, "\n## {row}\n\n| way | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
        for (way, heading) in WAYS {
            let cells: Vec<String> = of_row.iter().map(|kernel| kernel.sizes(&row, way).text()).collect();
            if cells.iter().any(|cell| cell != "-") {
                let _ = writeln!(text, "| {heading} | {} |", cells.join(" | "));
            }
        }
    }
    text
}

/// The rows that any kernel has, each once.
pub fn rows(kernels: &[Matrix]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for row in kernels.iter().flat_map(Matrix::rows) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| {
        let kind = row.split(' ').next().unwrap_or_default();
        KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
    });
    rows
}

/// The kinds in the order of the page.
const KINDS: [&str; 9] = ["anon", "heap", "stack", "shared", "memfd", "tmpfs", "hugetlb", "data", "text"];
