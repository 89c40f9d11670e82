//! Tests with captured trees made by an attacker. With such trees earlier versions hung, took all memory, or showed
//! other files.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::golden;
use crate::common::{Bench, Ran, Runs, within, wrap};

/// The name, and also the content, of a file outside of every captured tree.
pub const OUTSIDE: &str = "outside_of_the_tree";

/// Makes that file in the directory of a bench.
pub fn outside(bench: &Bench) -> PathBuf {
    let path = bench.path(OUTSIDE);
    fs::write(&path, format!("{OUTSIDE}:x\n")).unwrap();
    path
}

/// The same command, limited to 1G of address space and one minute of CPU time.
pub fn limited(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v 1048576 -t 60; exec \"$@\"", "sh"]);
    wrap(&mut shell, command);
    shell
}

/// The captured tree of an x86-64 process, with figures for each page.
struct Tree {
    bench: Bench,
    root: PathBuf,
}

impl Tree {
    fn new() -> Tree {
        let bench = Bench::new();
        let root = golden::tree(&bench, "x86_64-6.18-guard");
        Tree { bench, root }
    }

    /// Replaces a file.
    fn with(self, name: &str, put: impl FnOnce(&Path)) -> Tree {
        let path = self.root.join(name);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
        put(&path);
        self
    }

    /// Changes the text of a file.
    fn changed(self, name: &str, change: impl FnOnce(String) -> String) -> Tree {
        let text = fs::read_to_string(self.root.join(name)).unwrap();
        self.with(name, |path| fs::write(path, change(text)).unwrap())
    }

    fn inspected(&self, more: &[&str]) -> Ran {
        limited(&self.bench.pagelab(&[&["inspect", "--root", "tree", "100"], more].concat())).ran()
    }
}

/// An anonymous mapping as a line of maps.
fn mapping(start: u64, end: u64) -> String {
    format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n")
}

#[test]
fn a_mapping_with_a_wrong_address_takes_no_memory() {
    // Addresses that user space cannot have are refused when they are read. All other addresses are inspected.
    for (start, end) in [(0x1000, 1 << 57), (0x1000, 1 << 63), (0x1001, 0x3000), (0x2000, 0x1000)] {
        let tree = Tree::new().changed("proc/100/maps", |maps| mapping(start, end) + &maps);
        tree.inspected(&[]).assert_exit(2, &["tree/proc/100/maps", &format!("{start:x}-{end:x}")]);
    }
    let tree = Tree::new().changed("proc/100/maps", |_| mapping(0x1000, 1 << 56));
    tree.inspected(&["--regions"]).assert_exit(0, &[]).assert_stdout(&["17.5M resident"]);
    // If captured pages are in no mapping, the tree is inspected, and this is reported.
    let tree = Tree::new().changed("proc/100/maps", |_| mapping(0x1000, 0x2000));
    tree.inspected(&[])
        .assert_exit(0, &[])
        .assert_stdout(&["0 resident", "partial: 17.5M of the captured pages are in no mapping"]);
    let tree = Tree::new().changed("proc/100/maps", |maps| mapping(0x1000, 0x5000_0000_0000) + &maps);
    tree.inspected(&["--html", "map.html"]).assert_exit(0, &[]);
}

#[test]
fn a_mapping_at_the_end_of_all_addresses_is_refused_and_vsyscall_is_not() {
    for (start, end) in [(0xffff_ffff_ffe0_0000, 0xffff_ffff_ffff_f000), (0xffff_ffff_0000_0000, u64::MAX)] {
        let tree = Tree::new().changed("proc/100/maps", |maps| maps + &mapping(start, end));
        tree.inspected(&[]).assert_exit(2, &["addresses of user space"]);
    }
    let vsyscall = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
    let tree = Tree::new().changed("proc/100/maps", |maps| maps.replace(vsyscall, "") + vsyscall);
    tree.inspected(&[]).assert_exit(0, &[]);
}

#[test]
fn a_fifo_is_refused_and_blocks_nothing() {
    for name in ["proc/100/stat", "proc/100/maps", "proc/100/smaps", "proc/100/status", "proc/100/pagelab-pages"] {
        let tree = Tree::new().with(name, |path| mkfifo(path, Mode::S_IRWXU).unwrap());
        tree.inspected(&[]).assert_exit(2, &[name, "found a FIFO"]);
    }
}

#[test]
fn a_link_to_a_device_without_end_is_refused() {
    for name in ["proc/100/smaps", "proc/100/cgroup", "proc/self/smaps", "proc/vmstat"] {
        let tree = Tree::new().with(name, |path| symlink("/dev/zero", path).unwrap());
        tree.inspected(&[]).assert_exit(2, &[name, "a link leads out of the captured tree"]);
    }
}

#[test]
fn a_link_out_of_the_tree_shows_nothing_of_its_file() {
    for name in ["proc/100/maps", "proc/100/stat", "proc/100/pagelab-pages", "proc/meminfo", "proc/100"] {
        for relative in [false, true] {
            let tree = Tree::new();
            let file = outside(&tree.bench);
            let up: PathBuf = Path::new(name).components().map(|_| "..").collect();
            let target = if relative { up.join(OUTSIDE) } else { file };
            let tree = tree.with(name, |path| symlink(target, path).unwrap());
            let ran = tree.inspected(&[]);
            ran.assert_exit(2, &[name, "a link leads out of the captured tree"]);
            assert!(!format!("{ran}").contains(OUTSIDE), "{ran}");
        }
    }
    let status = |tree: &Tree| limited(&tree.bench.pagelab(&["direct-map", "status", "--root", "tree"])).ran();
    let tree = Tree::new();
    let file = outside(&tree.bench);
    let tree = tree.with("proc/cmdline", |path| symlink(file, path).unwrap());
    status(&tree).assert_exit(2, &["proc/cmdline", "a link leads out of the captured tree"]);
}

#[test]
fn links_inside_of_a_tree_are_followed() {
    let tree = Tree::new();
    let before = tree.inspected(&["--regions"]);
    fs::rename(tree.root.join("proc/100/maps"), tree.root.join("sys/maps")).unwrap();
    symlink("../../sys/maps", tree.root.join("proc/100/maps")).unwrap();
    fs::rename(tree.root.join("sys/kernel/mm"), tree.root.join("mm")).unwrap();
    symlink("../../mm", tree.root.join("sys/kernel/mm")).unwrap();
    assert_eq!(tree.inspected(&["--regions"]).assert_exit(0, &[]).stdout, before.stdout);
}

#[test]
fn a_file_that_is_refused_is_never_taken_for_an_absent_one() {
    const THP: &str = "sys/kernel/mm/transparent_hugepage";
    // The code that reads these files treats each of them as optional.
    for name in ["enabled", "khugepaged/max_ptes_none", "khugepaged/pages_collapsed", "shmem_enabled"] {
        let tree = Tree::new().with(&format!("{THP}/{name}"), |path| symlink("/dev/null", path).unwrap());
        tree.inspected(&[]).assert_exit(2, &[name, "a link leads out of the captured tree"]);
    }
    for name in [THP, "proc/sys/vm", "proc/100"] {
        let tree = Tree::new().with(name, |path| fs::write(path, "").unwrap());
        tree.inspected(&[]).assert_exit(2, &[name, "expected a directory on the way"]);
    }
    let tree = Tree::new().with("proc/100/status", |path| fs::create_dir(path).unwrap());
    tree.inspected(&[]).assert_exit(2, &["proc/100/status", "found a directory"]);
    let tree = Tree::new().with("proc/100/smaps", |path| {
        fs::File::create(path).unwrap().set_len((1 << 30) + 1).unwrap();
    });
    tree.inspected(&[]).assert_exit(2, &["proc/100/smaps", "expected at most 1G"]);
    // If a file is missing, what it contains is reported as unknown.
    let tree = Tree::new().with("proc/100/smaps", |_| ());
    tree.inspected(&[]).assert_exit(0, &[]).assert_stdout(&["flags of mappings could not be read", "No such file"]);
}

#[test]
fn a_map_of_more_windows_than_memory_holds_says_where_it_ends() {
    let end = 0x5000_0000_0000u64;
    let tree = Tree::new().changed("proc/100/maps", |_| mapping(0x1000, end));
    let tree = tree.changed("proc/100/pagelab-pages", |_| {
        format!("pagelab.capture/1\nby-page\nsees-folios\nrun 1000 {end:x} anonymous 4096 whole 4096\n")
    });
    let ran = tree.inspected(&["--html", "map.html"]);
    ran.assert_exit(0, &[])
        .assert_stdout(&["80.0T resident", "a map has at most 4194304 windows: none from 0x1000 on"]);
}

#[test]
fn sums_that_have_no_place_in_64_bits_are_refused() {
    let tree = Tree::new().changed("proc/100/smaps", |smaps| smaps.replace("Rss:", "Rss: 9007199254740992 kB\nRss:"));
    let ran = tree.inspected(&[]);
    ran.assert_exit(0, &[]).assert_stdout(&["flags of mappings could not be read", "sums that fit in 64 bits"]);
    let tree = Tree::new().with("proc/buddyinfo", |path| {
        fs::write(path, "Node 0, zone DMA 18446744073709551615 1\nNode 0, zone DMA 18446744073709551615 1\n").unwrap();
    });
    tree.inspected(&[]).assert_exit(2, &["proc/buddyinfo", "free blocks by order"]);
}

#[test]
fn smaps_is_read_line_by_line() {
    let is_full = std::env::var_os("PAGELAB_TORTURE").is_some_and(|size| size == "full");
    let (mappings, lines) = if is_full { (700_000, 25) } else { (200, 1000) };
    let at = |number: u64| (0x1000_0000 + number * 0x2000, 0x1000_0000 + number * 0x2000 + 0x1000);
    let of = |number| mapping(at(number).0, at(number).1);
    let tree = Tree::new().with("proc/100/maps", |path| {
        fs::write(path, (0..mappings).map(of).collect::<String>()).unwrap();
    });
    let mut entry = String::from("Rss:                   4 kB\nAnonymous:             4 kB\n");
    (0..lines).for_each(|_| writeln!(entry, "Size:                  4 kB").unwrap());
    entry += "VmFlags: rd wr mr mw me ac\n";
    let tree = tree.with("proc/100/smaps", |path| {
        let mut file = std::io::BufWriter::new(fs::File::create(path).unwrap());
        (0..mappings).for_each(|number| write!(file, "{}{entry}", of(number)).unwrap());
    });
    // Only the base page size is read from the capturing process's smaps, so the first lines of that file are enough.
    let tree = tree.changed("proc/self/smaps", |smaps| smaps.lines().take(8).collect::<Vec<_>>().join("\n") + "\n");
    let own = fs::OpenOptions::new().append(true).open(tree.root.join("proc/self/smaps")).unwrap();
    own.set_len(1 << 30).unwrap();
    let tree = tree.changed("proc/100/pagelab-pages", |_| "pagelab.capture/1\n".into());
    tree.inspected(&[]).assert_exit(0, &[]).assert_stdout(&["advice and flags: VmFlags in smaps"]);
    // A sparse file of 1G, which is a single line.
    let tree = tree.with("proc/100/smaps", |path| fs::File::create(path).unwrap().set_len(1 << 30).unwrap());
    tree.inspected(&[]).assert_exit(0, &[]).assert_stdout(&["expected lines of at most 64K, found a longer one"]);
}

#[test]
fn names_that_are_no_text_are_captured_and_stay_different() {
    let bench = Bench::new();
    let name = |byte: u8| bench.path("").join(std::ffi::OsStr::from_bytes(&[b'a', byte]));
    fs::copy("/bin/sleep", name(0xff)).unwrap();
    let sleep = Command::new(name(0xff)).arg("60").stdin(Stdio::null()).begin();
    let pid = sleep.id().to_string();
    let executed =
        || fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.windows(2).any(|two| two == b"a\xff"));
    assert!(within(Duration::from_secs(20), executed));
    let shown = "a\\377";
    let live = bench.pagelab(&["inspect", &pid, "--json"]).ran().json();
    bench.pagelab(&["inspect", &pid, "--capture", "captured"]).ran().assert_exit(0, &[]);
    let captured = bench.pagelab(&["inspect", "--root", "captured", &pid, "--json"]).ran().json();
    for document in [&live, &captured] {
        let process = &document["processes"][0];
        assert!(process["program"].as_str().unwrap().ends_with(shown), "{process:#}");
        let regions = process["regions"].as_array().unwrap();
        assert!(regions.iter().any(|region| region["text"].as_str().unwrap().ends_with(shown)), "{process:#}");
    }
    let maps = fs::read(bench.path(&format!("captured/proc/{pid}/maps"))).unwrap();
    assert_eq!(maps, fs::read(format!("/proc/{pid}/maps")).unwrap(), "byte by byte");
}
