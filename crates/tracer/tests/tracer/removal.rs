//! Tests that every call that frees memory stops while the memory is still present (`policy::removal`).

use std::os::unix::fs::FileExt;

use policy::removal::{Unwatched, considered};

use super::*;

/// The kernel's headers with the system call numbers of x86-64, and of arm64 and riscv64, which use the generic table.
const HEADERS: [&str; 4] = [
    "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "/usr/include/asm-generic/unistd.h",
    "/usr/aarch64-linux-gnu/include/asm-generic/unistd.h",
    "/usr/riscv64-linux-gnu/include/asm/unistd.h",
];
/// The memory that the program loses.
const BYTES: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;

/// The memory that is present when a call is about to free it, by the kernel's own counts.
#[derive(Default)]
struct Present {
    /// Bytes present in the ranges that are about to be freed.
    in_ranges: u64,
    /// Maximum of the shared memory when a call is about to reduce it.
    shared: u64,
    /// Maximum of the private memory when an image is about to be replaced, or a process to end.
    private: u64,
    ways: Vec<Unwatched>,
}

fn status_bytes(task: libc::pid_t, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{task}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

impl Witness for Present {
    fn begins(&mut self, _: libc::pid_t) {}

    fn ends(&mut self, task: libc::pid_t) {
        self.replaces(task);
    }

    fn unmaps(&mut self, task: libc::pid_t, start: u64, end: u64) {
        let pagemap = File::open(format!("/proc/{task}/pagemap")).unwrap();
        let mut entries = vec![0; ((end - start) / PAGE_BYTES * 8) as usize];
        pagemap.read_exact_at(&mut entries, start / PAGE_BYTES * 8).unwrap();
        let present = entries.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0).count() as u64;
        self.in_ranges += present * PAGE_BYTES;
    }

    fn reduces_rss(&mut self, task: libc::pid_t) {
        self.shared = self.shared.max(status_bytes(task, "RssShmem:"));
    }

    fn replaces(&mut self, task: libc::pid_t) {
        self.private = self.private.max(status_bytes(task, "RssAnon:"));
    }

    fn frees_unwatched(&mut self, _: libc::pid_t, way: Unwatched) {
        self.ways.push(way);
    }

    fn inspected_removals(&self) -> InspectedRemovals {
        InspectedRemovals::All
    }
}

/// What was present when the program `removal HOW` lost its memory; `None` if the kernel lacks the call.
fn lost_by(program: &Path, how: &str) -> Option<Present> {
    let rewriting = Rewriting::of(&"base".parse().unwrap(), host().page_sizes());
    let file = tempfile::tempfile().unwrap();
    let mut present = Present::default();
    let leftovers = Leftovers::KillAfter(Duration::from_millis(200));
    let ended = run(&launch(&[text(program), how], &file), &rewriting, Some(&mut present), leftovers).unwrap();
    match ended.exit {
        Exit::Code(3) => {
            skip(format!("a kernel with {how}"));
            None
        }
        exit => {
            let expected = if how == "killed" { Exit::Signal(libc::SIGKILL) } else { Exit::Code(0) };
            assert_eq!(exit, expected, "{how}");
            Some(present)
        }
    }
}

#[test]
fn memory_is_present_when_the_call_that_frees_it_stops() {
    let _alone = alone();
    if host().page_sizes().base != PageSize::K4 {
        return skip("base pages of 4K");
    }
    let Some(program) = c("removal") else { return };
    let ranges = [
        "munmap",
        "mmap",
        "mremap",
        "mremap_fixed",
        "brk",
        "dontneed",
        "dontneed_locked",
        "free",
        "guard",
        "process_madvise",
        "shmat",
    ];
    for how in ranges {
        let Some(present) = lost_by(&program, how) else { continue };
        // mremap leaves one page.
        let whole = present.in_ranges >= BYTES - PAGE_BYTES;
        assert!(whole && present.ways.is_empty(), "{how}: {} {:?}", present.in_ranges, present.ways);
    }
    for how in ["shmdt", "remove", "pageout", "remap_file_pages", "truncate", "ftruncate", "fallocate"] {
        let Some(present) = lost_by(&program, how) else { continue };
        assert!(present.shared >= BYTES, "{how}: {}", present.shared);
    }
    for (how, ways) in
        [("execve", &[][..]), ("execveat", &[]), ("killed", &[Unwatched::Killed]), ("io_uring", &[Unwatched::IoUring])]
    {
        let Some(present) = lost_by(&program, how) else { continue };
        assert_eq!(present.ways, ways, "{how}");
        assert!(how == "io_uring" || present.private >= BYTES, "{how}: {}", present.private);
    }
}

/// Fails if the headers of a newer kernel have a call that `policy::removal` does not list.
#[test]
fn every_call_of_the_kernels_table_is_considered() {
    let considered: std::collections::BTreeSet<&str> = considered().collect();
    let found: Vec<&str> = HEADERS.into_iter().filter(|path| Path::new(path).exists()).collect();
    if found.is_empty() {
        return skip("the kernel's headers");
    }
    for path in found {
        let text = fs::read_to_string(path).unwrap();
        // A name that is defined by one with 3264 is the 32-bit name, or a second name of the same call.
        let names = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("#define __NR")?.split_once(' ')?;
            let is_again = value.trim().starts_with("__NR3264");
            name.strip_prefix("3264_").or_else(|| name.strip_prefix('_')).filter(|_| !is_again)
        });
        let calls = names.filter(|name| !matches!(*name, "syscalls" | "arch_specific_syscall"));
        let new: Vec<&str> = calls.filter(|name| !considered.contains(name)).collect();
        assert!(new.is_empty(), "{path}: {new:?}: list them in policy::removal, with whether they free memory");
    }
}
