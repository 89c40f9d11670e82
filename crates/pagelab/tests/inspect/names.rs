//! Tests with names of files and mount points, which may contain any byte except zero. A name must not change any
//! figure or cause.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use super::causes::SIZE;
use super::provoked::{Provoked, causes};
use crate::common::{Bench, LeaseGuard, needs, program, root};

/// Names that are not UTF-8, or in which the kernel escapes characters.
const NAMES: [&[u8]; 3] = [b"not\xff\xfeUTF-8", b"a - b", b"back\\040slash\ttab"];

/// The properties of a region, without its name and its address.
fn diagnosis(region: &Value) -> Value {
    let mut region = region.clone();
    let causes_without_evidence: Vec<(String, u64, Vec<String>)> =
        causes(&region).into_iter().map(|(code, bytes, or, _)| (code, bytes, or)).collect();
    // These properties depend on addresses, or on the physical placement of pages, which is random.
    for name in ["start", "end", "text", "recognised_by", "causes", "cuts", "tlb_runs"] {
        region.as_object_mut().unwrap().remove(name);
    }
    serde_json::json!([region, causes_without_evidence])
}

#[test]
fn a_mount_point_that_is_not_utf8_changes_no_diagnosis() {
    if !needs(&[root(), program("unshare"), program("gcc")]) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let bench = Bench::new();
    let found = |name: &[u8]| {
        let place = bench.path("mounts").join(OsStr::from_bytes(name));
        fs::create_dir_all(&place).unwrap();
        let provoked = Provoked::on_tmpfs("tmpfs", &place, "huge=never", SIZE).unwrap();
        let process = provoked.inspected();
        assert_eq!(process["partial"], serde_json::json!([]), "{process:#}");
        let region = super::provoked::region_at(&process, provoked.address);
        let census = region["census"].as_array().unwrap();
        assert!(census.iter().all(|row| row["backing"] == "shmem"), "{region:#}");
        diagnosis(&region)
    };
    let plain = found(b"plain");
    for name in NAMES {
        assert_eq!(found(name), plain, "{:?}", OsStr::from_bytes(name));
    }
}

#[test]
fn a_mapped_file_whose_name_is_not_utf8_changes_no_diagnosis() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let bench = Bench::new();
    let found = |name: &[u8]| {
        let file = bench.path("files").join(OsStr::from_bytes(name));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, vec![7u8; SIZE as usize]).unwrap();
        let region = Provoked::with("file", Some(&file)).unwrap().region();
        fs::remove_file(file).unwrap();
        (region["kind"].clone(), region["resident_bytes"].clone(), region["vmas"].clone(), causes(&region).len())
    };
    let plain = found(b"plain");
    for name in NAMES {
        assert_eq!(found(name), plain, "{:?}", OsStr::from_bytes(name));
    }
}
