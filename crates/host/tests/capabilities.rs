//! Admission and doctor compared with what kernels really gave: the matrices in docs/evidence/capabilities, each cell of which was
//! tried. A host is built from the sizes that a kernel has settings and pools for; whether it gave them is in the cells.

use std::fs;
use std::path::Path;

use host::Host;
use host::admit::{self, Privilege, Terms};
use policy::capability::{Kind, Matrix, Outcome, Way};
use policy::size::PageSize;
use policy::{Granularity, Policy};
use tempfile::TempDir;

fn matrices() -> Vec<(String, Matrix)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/capabilities");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let matrix = |file: &Path| serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    files.map(|file| (file.file_stem().unwrap().display().to_string(), matrix(&file))).collect()
}

/// What became of memory of a kind that was touched while only this size was enabled.
fn touched(matrix: &Matrix, kind: Kind, size: PageSize) -> Option<&Outcome> {
    let is_it = |cell: &&policy::capability::Cell| {
        cell.memory.kind == kind && cell.memory.mount.is_none() && cell.size == size && cell.way == Way::Touch
    };
    matrix.cells.iter().find(is_it).map(|cell| &cell.outcome)
}

fn has_size(matrix: &Matrix, kind: Kind, size: PageSize) -> bool {
    touched(matrix, kind, size).is_some_and(|outcome| !matches!(outcome, Outcome::NotAvailable { .. }))
}

fn gives(matrix: &Matrix, kind: Kind, size: PageSize) -> bool {
    matches!(touched(matrix, kind, size), Some(Outcome::Large { .. } | Outcome::FolioOnly { .. }))
}

/// A host with this kernel and the settings of the sizes that it has.
fn host_with(matrix: &Matrix) -> (TempDir, Host) {
    let root = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let file = root.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host/x86_64-6.18");
    for same in ["proc/meminfo", "proc/self/status", "proc/self/mounts", "proc/sys/kernel/random/boot_id"] {
        write(same, &fs::read_to_string(captured.join(same)).unwrap());
    }
    let (release, version) = matrix.kernel.split_once(' ').unwrap();
    write("proc/sys/kernel/osrelease", release);
    write("proc/sys/kernel/version", version);
    write("proc/sys/kernel/arch", &matrix.architecture);
    write("proc/self/smaps", &format!("1000-2000 r--p 0 0:0 1 /x\nKernelPageSize: {} kB\n", matrix.base.bytes() >> 10));
    let mm = "sys/kernel/mm";
    write(&format!("{mm}/transparent_hugepage/enabled"), "always [madvise] never");
    write(&format!("{mm}/transparent_hugepage/defrag"), "always defer defer+madvise [madvise] never");
    write(&format!("{mm}/transparent_hugepage/hpage_pmd_size"), &matrix.pmd.unwrap().bytes().to_string());
    for size in matrix.sizes() {
        let directory = format!("hugepages-{}kB", size.bytes() >> 10);
        // Before 6.8 the size of a PMD has no setting of its own.
        if has_size(matrix, Kind::Anonymous, size) && (Some(size) != matrix.pmd || matrix.sizes().len() > 2) {
            write(&format!("{mm}/transparent_hugepage/{directory}/enabled"), "always inherit madvise [never]");
        }
        if has_size(matrix, Kind::Hugetlb, size) {
            for file in
                ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages", "nr_overcommit_hugepages"]
            {
                write(&format!("{mm}/hugepages/{directory}/{file}"), "0");
            }
        }
    }
    let host = Host::open(root.path()).unwrap();
    (root, host)
}

/// The policies of each size, and whether the kernel gave its pages.
fn policies(matrix: &Matrix) -> Vec<(Granularity, bool)> {
    let of_size = |size: PageSize| {
        let transparent = if Some(size) == matrix.pmd { Granularity::Thp } else { Granularity::Mthp(size) };
        // A pool that cannot grow says nothing about the kernel.
        let has_pool = has_size(matrix, Kind::Hugetlb, size);
        [(transparent, gives(matrix, Kind::Anonymous, size)), (Granularity::Hugetlb(size), has_pool)]
    };
    matrix.sizes().into_iter().flat_map(of_size).collect()
}

#[test]
fn a_policy_is_admitted_where_the_kernel_gave_its_pages() {
    let mut compared = 0;
    for (kernel, matrix) in matrices() {
        let (_root, host) = host_with(&matrix);
        let terms = Terms::assumed(&host, Privilege::Root).with_pool(Some(0));
        for (granularity, gave) in policies(&matrix) {
            compared += 1;
            let policy = Policy::plain(granularity);
            let admitted = admit::lower(&policy, &host, &terms);
            assert_eq!(admitted.is_ok(), gave, "{kernel}, {policy}: {admitted:?}");
        }
    }
    assert!(compared >= 50, "{compared} policies were compared");
}

#[test]
fn doctor_names_the_policies_whose_pages_the_kernel_gave() {
    for (kernel, matrix) in matrices() {
        let (_root, host) = host_with(&matrix);
        let terms = Terms::assumed(&host, Privilege::Root).with_pool(Some(0));
        let lines = admit::doctor_lines(&host, &terms);
        for (granularity, gave) in policies(&matrix) {
            let policy = Policy::plain(granularity);
            let is_named = lines.iter().any(|line| line.policy == policy && line.needs.is_none());
            assert_eq!(is_named, gave, "{kernel}, {policy}");
        }
    }
}
