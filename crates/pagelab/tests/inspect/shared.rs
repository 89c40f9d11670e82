//! Tests with shared memory and files: each kind has settings of its own, and the file offset must fit the address.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use super::causes::{HUGE, SIZE, Set, THP, assert_cause_of, for_advised};
use super::provoked::{Provoked, causes};
use crate::common::{Bench, Runs, needs, program};

/// A tmpfs with one file, unmounted when this is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn with(bench: &Bench, options: &str) -> Mounted {
        let place = bench.path(&format!("tmpfs-{options}"));
        fs::create_dir(&place).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&place).status().unwrap();
        assert!(mounted.success(), "{options}");
        let mounted = Mounted(place);
        fs::File::create(mounted.file()).unwrap().set_len(SIZE).unwrap();
        mounted
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("file")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_tmpfs_gives_what_its_mount_says() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    let (never, advise) = (Mounted::with(&bench, "huge=never"), Mounted::with(&bench, "huge=advise"));
    let refused = Provoked::with("tmpfs", Some(&never.file())).unwrap();
    assert_cause_of("tmpfs", &refused, "mount_refuses", SIZE, &["huge= of the tmpfs", "never"]);
    drop(refused);
    let given = Provoked::with("tmpfs", Some(&advise.file())).unwrap();
    let region = given.region();
    assert_eq!((causes(&region).len(), region["could_be_larger_bytes"].as_u64()), (0, Some(0)), "{region:#}");
    drop(given);
    // The large pages exist, but at this address no leaf can map them.
    let beyond = Provoked::with("tmpfs_out_of_place", Some(&advise.file())).unwrap();
    let region = beyond.region();
    let found = causes(&region);
    assert_eq!(found[0].0, "shared_misaligned", "{region:#}");
    assert!(found[0].1 >= SIZE - HUGE && found[0].3.contains("is 4K after a multiple of 2M"), "{found:?}");
}

#[test]
fn a_file_that_ends_in_a_slot_has_no_large_page_there() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    let within = Mounted::with(&bench, "huge=within_size");
    let bytes = SIZE - HUGE / 2;
    fs::File::options().write(true).open(within.file()).unwrap().set_len(bytes).unwrap();
    let provoked = Provoked::with("tmpfs_to_its_end", Some(&within.file())).unwrap();
    let region = provoked.region();
    let found = causes(&region);
    let [(cause, least, or, _)] = found.as_slice() else { panic!("{region:#}") };
    assert_eq!((cause.as_str(), *least), ("slot_partly_present", HUGE / 2), "{region:#}");
    assert!(or.contains(&"file_ends_in_slot".to_string()), "{region:#}");
    assert_eq!(region["could_be_larger_bytes"].as_u64(), Some(HUGE / 2), "{region:#}");
}

#[test]
fn memory_without_a_mount_follows_the_setting_of_all_sizes_or_of_its_own() {
    let Some(_lease_guard) = for_advised() else { return };
    let own = format!("{THP}/hugepages-2048kB/shmem_enabled");
    let common = fs::read_to_string(format!("{THP}/shmem_enabled")).unwrap_or_default();
    if !needs(&[
        ("shared memory of 2M pages with a setting of its own (Linux 6.10)", fs::exists(&own).unwrap_or_default()),
        ("shared memory without large pages (shmem_enabled: never)", common.contains("[never]")),
    ]) {
        return;
    }
    // For a memfd, which has no path, the general setting decides; for a file with a path, the option of its mount.
    let bench = Bench::new();
    let named = Mounted::with(&bench, "huge=never");
    assert_cause_of("memfd", &Provoked::start("memfd").unwrap(), "shared_disabled", SIZE, &["/shmem_enabled: "]);
    for word in ["always", "within_size"] {
        let _own = Set::to(&own, word);
        let memfd = Provoked::start("memfd").unwrap().region();
        assert_eq!((causes(&memfd).len(), memfd["could_be_larger_bytes"].as_u64()), (0, Some(0)), "{memfd:#}");
        let file = Provoked::with("tmpfs", Some(&named.file())).expect("the file is there");
        assert_cause_of("tmpfs", &file, "mount_refuses", SIZE, &["never"]);
    }
    let _own = Set::to(&own, "advise");
    assert_cause_of(
        "memfd",
        &Provoked::start("memfd").unwrap(),
        "shared_not_advised",
        SIZE,
        &["2048kB/shmem_enabled: advise"],
    );
}

#[test]
fn pages_of_files_say_what_the_page_cache_has() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    let file = bench.path("file");
    fs::write(&file, vec![7u8; SIZE as usize]).unwrap();
    let mapped = Provoked::with("file", Some(&file)).unwrap();
    let region = mapped.region();
    let found = causes(&region);
    if let Some(one) = found.first() {
        assert_eq!((one.0.as_str(), region["could_be_larger_bytes"].as_u64()), ("code_pages", Some(0)), "{region:#}");
        assert!(one.3.contains(" of ") && one.3.contains("THPeligible: "), "{one:?}");
    }
    let beyond = Provoked::with("file_out_of_place", Some(&file)).unwrap();
    assert_cause_of(
        "file_out_of_place",
        &beyond,
        "file_misaligned",
        SIZE,
        &["is 4K after a multiple of 2M, its file offset 0"],
    );
}

#[test]
fn swapped_out_pages_leave_holes() {
    let Some(_lease_guard) = for_advised() else { return };
    if !needs(&[program("mkswap"), program("swapon")]) {
        return;
    }
    let bench = Bench::new();
    let file = bench.path("swap");
    fs::write(&file, vec![0u8; 2 * SIZE as usize]).unwrap();
    let ran = |name: &str| Command::new(name).arg(&file).output().is_ok_and(|output| output.status.success());
    let is_on = Command::new("chmod").arg("600").arg(&file).status().is_ok_and(|status| status.success())
        && ran("mkswap")
        && ran("swapon");
    if !needs(&[("a file to swap to", is_on)]) {
        return;
    }
    let swapped = Provoked::start("swapped").unwrap();
    let region = swapped.region();
    drop(swapped);
    assert!(ran("swapoff"));
    let found = causes(&region);
    assert_eq!((found[0].0.as_str(), found[0].1), ("swapped_out", SIZE / 2), "{region:#}");
    assert!(found[0].3.contains("Swap: 8192 kB"), "{found:?}");
}

/// A file holds whole pages, however short it is.
#[test]
fn short_files_that_hold_large_pages_are_listed_with_or_without_a_process() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    let mounted = Mounted::with(&bench, "huge=always");
    let paths = ["free", "open"].map(|name| mounted.file().with_file_name(name));
    for path in &paths {
        fs::write(path, [7; 10_000]).unwrap();
    }
    let held = fs::File::open(&paths[1]).unwrap();
    let is_large = fs::metadata(&paths[0]).unwrap().blocks() * 512 == HUGE;
    if !needs(&[("a free block for a page of a file", is_large)]) {
        return;
    }
    for command in [&["inspect", "--all", "--sizes", "--json"][..], &["doctor", "--json"]] {
        let document = bench.pagelab(command).ran().json();
        let files = document["tmpfs_files"]["files"].as_array().unwrap();
        for (path, holders) in paths.iter().zip([vec![], vec![std::process::id()]]) {
            let file = files.iter().find(|file| file["path"] == path.to_str().unwrap()).unwrap();
            let (bytes, length_bytes) = (file["bytes"].as_u64(), file["length_bytes"].as_u64());
            assert_eq!((bytes, length_bytes), (Some(HUGE), Some(10_000)), "{file:#}");
            assert_eq!(file["holders"], serde_json::json!(holders), "{file:#}");
        }
        assert!(
            !files.iter().any(|file| file["path"] == mounted.file().to_str().unwrap()),
            "it has no page: {files:#?}"
        );
    }
    bench.pagelab(&["doctor"]).ran().assert_stdout(&["on tmpfs with large pages ", "huge=within_size"]);
    drop(held);
}
