//! Files on hugetlbfs and on tmpfs with large pages, and the processes that map them or have them open.
//!
//! Other users may have made the files. No symbolic link is followed: each directory is opened below the one that lists it, and
//! the number of entries is limited.

use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host::{if_exists, read};
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, major, minor};
use policy::held_files::{FileWithMemory, FilesWithMemory};
use policy::size::PageSize;

use crate::inspect::which;

/// The most entries of all directories together.
const MAX_ENTRIES: usize = 10_000;
/// The most directories above a file, below its mount.
const MAX_DEPTH: usize = 16;
/// The mount table of this process.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Device and inode number of a file, which /proc/PID/maps shows too.
type Identity = ((u32, u32), u64);

/// The files on all hugetlbfs mounts that this process sees, with their holders.
pub fn hugetlb_files() -> FilesWithMemory {
    on_mounts(FileSystemKind::Hugetlbfs, FoundFiles::default())
}

/// The files that hold more than their length, on all tmpfs mounts with `huge=` that this process sees, with their holders.
pub fn tmpfs_files(base: PageSize) -> FilesWithMemory {
    on_mounts(FileSystemKind::Tmpfs, FoundFiles { surplus_above: Some(base), ..FoundFiles::default() })
}

fn on_mounts(kind: FileSystemKind, mut found: FoundFiles) -> FilesWithMemory {
    match fs::read(MOUNTS) {
        Ok(table) => mounts(&table, kind).into_iter().for_each(|mount| found.list(&mount)),
        Err(error) => found.all.unread.push(format!("{MOUNTS}: {error}")),
    }
    found.find_holders();
    let mut all = found.all;
    all.files.sort_by(|one, other| (other.bytes, &one.path).cmp(&(one.bytes, &other.path)));
    all
}

/// A kind of file system whose files hold large pages.
#[derive(Clone, Copy)]
enum FileSystemKind {
    Hugetlbfs,
    /// A tmpfs mounted with `huge=`, other than `never`.
    Tmpfs,
}

impl FileSystemKind {
    fn matches(self, file_system: &[u8], options: &str) -> bool {
        let mut options = options.split(',');
        match self {
            FileSystemKind::Hugetlbfs => file_system == b"hugetlbfs",
            FileSystemKind::Tmpfs => {
                file_system == b"tmpfs" && options.any(|option| option.starts_with("huge=") && option != "huge=never")
            }
        }
    }
}

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    device: (u32, u32),
    page_size: Option<PageSize>,
}

/// The mounts of a kind in a mount table (proc_pid_mountinfo(5)).
fn mounts(table: &[u8], kind: FileSystemKind) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = words.iter().position(|word| *word == b"-")?;
        let (device, point) = (words.get(2)?, words.get(4)?);
        let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
        let options = std::str::from_utf8(words.get(dash + 3)?).unwrap_or_default();
        if !kind.matches(words.get(dash + 1)?, options) {
            return None;
        }
        let page_size = options.split(',').find_map(|option| option.strip_prefix("pagesize=")?.parse().ok());
        let point = PathBuf::from(OsString::from_vec(unescaped(point)));
        Some(Mount { point, device: (major.parse().ok()?, minor.parse().ok()?), page_size })
    };
    table.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// A word of a mount table without its escapes of three octal digits (`mangle`, fs/proc_namespace.c).
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// The files found so far.
#[derive(Default)]
struct FoundFiles {
    all: FilesWithMemory,
    /// Indexes into `all.files`.
    indexes: HashMap<Identity, usize>,
    entries: usize,
    /// The base page size, if only files that hold more than their length are kept.
    surplus_above: Option<PageSize>,
}

impl FoundFiles {
    /// Adds the files of a mount, unless another file system is mounted over it.
    fn list(&mut self, mount: &Mount) {
        match open_directory(&mount.point).and_then(|directory| Ok((device(directory.metadata()?.dev()), directory))) {
            Ok((device, directory)) if device == mount.device => {
                self.descend(mount, &directory, &mount.point, MAX_DEPTH)
            }
            Ok(_) => {}
            Err(error) => self.unread(&mount.point, &error),
        }
    }

    fn descend(&mut self, mount: &Mount, directory: &File, path: &Path, depth: usize) {
        let beneath = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let entries = match fs::read_dir(&beneath) {
            Ok(entries) => entries,
            Err(error) => return self.unread(path, &error),
        };
        for entry in entries {
            if self.entries == MAX_ENTRIES {
                self.all.is_cut = true;
                return;
            }
            self.entries += 1;
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.unread(path, &error),
            };
            let (name, at) = (entry.file_name(), path.join(entry.file_name()));
            // An entry that was removed meanwhile is absent.
            let about = match if_exists(entry.metadata()) {
                Ok(Some(about)) => about,
                Ok(None) => continue,
                Err(error) => {
                    self.unread(&at, &error);
                    continue;
                }
            };
            if about.is_file() {
                self.add(mount, &at, &about);
            } else if about.is_dir() && depth == 0 {
                self.all.is_cut = true;
            } else if about.is_dir() {
                match if_exists(open_directory(&beneath.join(name))) {
                    Ok(Some(below)) => self.descend(mount, &below, &at, depth - 1),
                    Ok(None) => {}
                    Err(error) => self.unread(&at, &error),
                }
            }
        }
    }

    fn add(&mut self, mount: &Mount, path: &Path, about: &fs::Metadata) {
        let identity = (device(about.dev()), about.ino());
        if self.indexes.contains_key(&identity) {
            return;
        }
        let file = FileWithMemory {
            path: read::escaped(path.as_os_str().as_bytes().to_vec()),
            page_size: mount.page_size,
            // The kernel counts the pages that the file holds: whole folios on tmpfs (`shmem_recalc_inode`), and on hugetlbfs no
            // pages that are only reserved (`hugetlb_add_to_page_cache`).
            bytes: about.blocks().saturating_mul(512),
            length_bytes: about.len(),
            holders: Vec::new(),
        };
        if self.surplus_above.is_none_or(|base| file.surplus_bytes(base) > 0) {
            self.indexes.insert(identity, self.all.files.len());
            self.all.files.push(file);
        }
    }

    fn unread(&mut self, path: &Path, error: &io::Error) {
        self.all.unread.push(format!("{}: {error}", read::escaped(path.as_os_str().as_bytes().to_vec())));
    }

    /// Finds the processes that map the files or have them open.
    fn find_holders(&mut self) {
        if self.all.files.is_empty() {
            return;
        }
        match which::all() {
            Ok(processes) => processes.into_iter().for_each(|pid| self.add_holder(pid)),
            Err(error) => self.all.unread.push(error.to_string()),
        }
    }

    fn add_holder(&mut self, pid: u32) {
        let held = if_exists(mapped(pid)).and_then(|mapped| Ok((mapped, if_exists(opened(pid))?)));
        let Ok((mapped, opened)) = held else {
            self.all.unseen_processes += 1;
            return;
        };
        for identity in mapped.into_iter().chain(opened).flatten() {
            let Some(index) = self.indexes.get(&identity) else { continue };
            let holders = &mut self.all.files[*index].holders;
            if holders.last() != Some(&pid) {
                holders.push(pid);
            }
        }
    }
}

/// Opens a directory. The last part of its path is not followed if it is a symbolic link.
#[expect(clippy::disallowed_methods, reason = "it only reads, and follows no link")]
fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(nix::fcntl::open(path, flags, Mode::empty())?))
}

fn device(number: u64) -> (u32, u32) {
    (major(number) as u32, minor(number) as u32)
}

/// The files that a process maps.
fn mapped(pid: u32) -> io::Result<Vec<Identity>> {
    let vmas = host::maps::of_process(pid.cast_signed())?;
    Ok(vmas.into_iter().filter(|vma| vma.inode != 0).map(|vma| (vma.device, vma.inode)).collect())
}

/// The files that a process has open.
fn opened(pid: u32) -> io::Result<Vec<Identity>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        // Pipes, sockets and other files without a path are not on a mount.
        let is_of_mount = if_exists(fs::read_link(&path))?.is_some_and(|link| link.is_absolute());
        files.extend(if is_of_mount { if_exists(identity(&path))? } else { None });
    }
    Ok(files)
}

/// The identity of an open file. Does not wait for a file system that does not answer, such as a dead network mount.
fn identity(path: &Path) -> io::Result<Identity> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut about = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path ends in a zero byte, and the kernel writes at most one `struct statx`.
    let result = unsafe {
        libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_STATX_DONT_SYNC, libc::STATX_INO, about.as_mut_ptr())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes were zero, and the kernel has filled in what it knows.
    let about = unsafe { about.assume_init() };
    Ok(((about.stx_dev_major, about.stx_dev_minor), about.stx_ino))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn mounts_are_found_with_their_page_sizes() {
        let table = b"30 23 0:24 / /dev/hugepages rw,relatime shared:9 - hugetlbfs hugetlbfs rw,gid=5,pagesize=2M\n\
                      31 23 0:25 / /mnt/a\\040b\\134\xff rw - hugetlbfs none rw,pagesize=1024M\n\
                      32 23 0:26 / /dev/shm rw - tmpfs tmpfs rw,pagesize=2M\n\
                      33 23 0:27 / /huge rw - hugetlbfs none rw\n\
                      34 23 0:28 / /tmp rw - tmpfs tmpfs rw,huge=always,inode64\n\
                      35 23 0:29 / /run rw - tmpfs tmpfs rw,huge=never\n\
                      broken\n";
        let of = |point: &[u8], minor, page_size| Mount {
            point: OsStr::from_bytes(point).into(),
            device: (0, minor),
            page_size,
        };
        let expected = [
            of(b"/dev/hugepages", 24, Some(PageSize::M2)),
            of(b"/mnt/a b\\\xff", 25, Some(PageSize::G1)),
            of(b"/huge", 27, None),
        ];
        assert_eq!(mounts(table, FileSystemKind::Hugetlbfs), expected);
        assert_eq!(mounts(table, FileSystemKind::Tmpfs), [of(b"/tmp", 28, None)]);
    }

    /// Any directory shows how entries are read: what counts is that links are not followed and that the number is limited.
    #[test]
    fn links_are_not_followed_and_entries_are_limited() {
        let tree = tempfile::tempdir().unwrap();
        let inside = tree.path().join("inside");
        fs::create_dir_all(inside.join("below")).unwrap();
        fs::create_dir(tree.path().join("outside")).unwrap();
        fs::write(tree.path().join("outside/secret"), "").unwrap();
        fs::write(inside.join("below/file\x1b"), [1; 8192]).unwrap();
        fs::hard_link(inside.join("below/file\x1b"), inside.join("again")).unwrap();
        std::os::unix::fs::symlink(tree.path().join("outside"), inside.join("link")).unwrap();
        std::os::unix::fs::symlink(tree.path().join("outside/secret"), inside.join("below/link")).unwrap();
        let device = device(fs::metadata(&inside).unwrap().dev());
        let mount = Mount { point: inside.clone(), device, page_size: Some(PageSize::M2) };
        let held = File::open(inside.join("again")).unwrap();
        let mut found = FoundFiles::default();
        found.list(&mount);
        let [file] = &found.all.files[..] else { panic!("{:?}", found.all) };
        assert_eq!((file.bytes, file.length_bytes, found.all.is_cut), (8192, 8192, false), "{:?}", found.all);
        assert!(file.path.contains("again") || file.path.contains("below/file"), "one of its two names: {}", file.path);
        found.add_holder(std::process::id());
        assert_eq!(found.all.files[0].holders, [std::process::id()]);
        drop(held);
        let mut surplus = FoundFiles { surplus_above: Some(PageSize::K4), ..FoundFiles::default() };
        surplus.list(&mount);
        assert_eq!(surplus.all, FilesWithMemory::default(), "it holds as much as its length");
        let elsewhere = Mount { device: (device.0, device.1 + 1), ..mount };
        let mut none = FoundFiles::default();
        none.list(&elsewhere);
        assert_eq!(none.all, FilesWithMemory::default(), "something is mounted over it");
        let mut full = FoundFiles { entries: MAX_ENTRIES, ..FoundFiles::default() };
        full.list(&Mount { device, ..elsewhere });
        assert!(full.all.is_cut && full.all.files.is_empty(), "{:?}", full.all);
    }
}
