//! Reads, writes and restores one setting, on behalf of the lease and the watchdog. An [`Entry`] has its old and its new
//! value.
//!
//! Nothing here allocates, locks or panics: the watchdog runs it in the child of a fork of a program that may have other threads,
//! where only async-signal-safe calls are allowed (signal-safety(7)).

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use super::text::Text;

/// Maximum bytes of a file's name, including a terminating zero byte.
pub const FILE_BYTES: usize = 512;
/// Maximum bytes of a value, including a terminating zero byte.
pub const VALUE_BYTES: usize = 128;

/// Number of attempts at an operation that an exiting program can disturb, and the pause in between: one second in total.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// A file's name, including the root.
pub type File = Text<FILE_BYTES>;
/// A value of a setting.
pub type Value = Text<VALUE_BYTES>;

/// The meaning of a setting's values when it is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A word or a number that keeps the written value.
    Value,
    /// The size of a hugetlb pool: the kernel may provide fewer pages than requested.
    Pages,
    /// A value that the kernel itself changes when another setting is written.
    KernelAdjusted,
}

/// A value that was, or is about to be, written to a setting, with the value before the lease.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Entry {
    /// Path of the file.
    pub file: File,
    /// The meaning of its values.
    pub kind: Kind,
    /// The value before the lease first wrote to it.
    pub before: Value,
    /// The value that the lease writes; empty where the kind is `KernelAdjusted`.
    pub written: Value,
}

/// The result of restoring a setting.
#[derive(Clone, Copy)]
pub enum RestoreOutcome {
    /// It already had its old value.
    Unchanged,
    /// It has its old value again.
    Restored,
    /// It has a value that is neither the old one nor one that the lease wrote; it was left unchanged.
    Foreign(Value),
    /// The kernel accepted the write, but the setting has another value.
    NotTaken(Value),
    /// The system returned an error, an `errno`.
    Failed(i32),
}

/// Restores every setting in `entries`, the last one first, and calls `report` for each.
pub fn put_back_all(entries: &[Entry], mut report: impl FnMut(&Entry, RestoreOutcome)) {
    for (index, entry) in entries.iter().enumerate().rev() {
        let same = |other: &&Entry| other.file.as_bytes() == entry.file.as_bytes();
        let is_first = !entries.iter().take(index).any(|other| same(&other));
        if is_first {
            let written = |value: &Value| entries.iter().filter(same).any(|entry| entry.could_have_made(value));
            report(entry, put_back(entry, written));
        }
    }
}

impl Entry {
    /// Whether `found` can result from this entry: it is the written value; or fewer pages than the pool was asked for; or any
    /// value, where the kernel chooses it.
    pub fn could_have_made(&self, found: &Value) -> bool {
        match self.kind {
            Kind::Value => found.as_bytes() == self.written.as_bytes(),
            Kind::KernelAdjusted => true,
            Kind::Pages => match (number(&self.before), number(&self.written), number(found)) {
                (Some(before), Some(written), Some(found)) => {
                    (before.min(written)..=before.max(written)).contains(&found)
                }
                _ => false,
            },
        }
    }
}

/// Restores one setting if its value is one that the lease `wrote`.
pub fn put_back(entry: &Entry, wrote: impl Fn(&Value) -> bool) -> RestoreOutcome {
    let found = match read(&entry.file, entry.kind) {
        Ok(found) => found,
        Err(errno) => return RestoreOutcome::Failed(errno),
    };
    if found.as_bytes() == entry.before.as_bytes() {
        return RestoreOutcome::Unchanged;
    }
    if !wrote(&found) {
        return RestoreOutcome::Foreign(found);
    }
    if let Err(errno) = give_back(entry) {
        return RestoreOutcome::Failed(errno);
    }
    match read(&entry.file, entry.kind) {
        Ok(now) if now.as_bytes() == entry.before.as_bytes() => RestoreOutcome::Restored,
        Ok(now) => RestoreOutcome::NotTaken(now),
        Err(errno) => RestoreOutcome::Failed(errno),
    }
}

/// Writes the old value of a setting, and leaves no pages behind if that makes a pool smaller.
fn give_back(entry: &Entry) -> Result<(), i32> {
    let before = if entry.kind == Kind::Pages { Pool::read(&entry.file)? } else { None };
    write(&entry.file, &entry.before)?;
    before.map_or(Ok(()), |before| free_idle_surplus(entry, before.surplus))
}

/// Frees pages that are free, unreserved and surplus after a pool was shrunk; nothing else frees them.
///
/// The kernel (`set_max_huge_pages`, mm/hugetlb.c) counts the pages in use and reserved, frees the others without its lock, and
/// only then makes the counted ones surplus, so that they are freed after their last use. Pages that a dying
/// program returns in between stay free, but are made surplus too. Raising the pool to all its pages removes the surplus; then
/// the pool is lowered once more.
fn free_idle_surplus(entry: &Entry, surplus_before: u64) -> Result<(), i32> {
    for _ in 0..TRIES {
        let Some(pool) = Pool::read(&entry.file)? else { return Ok(()) };
        if pool.surplus <= surplus_before || pool.idle == 0 {
            return Ok(());
        }
        write(&entry.file, &decimal(pool.pages).ok_or(libc::ERANGE)?)?;
        write(&entry.file, &entry.before)?;
        // The program may not have ended yet.
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The kernel's figures for a hugetlb pool, in pages.
struct Pool {
    /// All pages, as in the pool's own file.
    pages: u64,
    /// Pages above the requested size.
    surplus: u64,
    /// Free pages that are not reserved.
    idle: u64,
}

impl Pool {
    /// `None` where the files next to that of the pool do not exist. The error is an `errno`.
    fn read(file: &File) -> Result<Option<Pool>, i32> {
        // Pages and surplus shrink together while a program ends, so both must be from the same moment.
        let Some(mut surplus) = sibling_number(file, b"surplus_hugepages")? else { return Ok(None) };
        for _ in 0..TRIES {
            let pages = number(&read_file(file)?).ok_or(libc::EINVAL)?;
            let Some(after) = sibling_number(file, b"surplus_hugepages")? else { return Ok(None) };
            if after == surplus {
                // In this order a reservation that ends in between does not make pages look idle.
                let reserved = sibling_number(file, b"resv_hugepages")?;
                let free = sibling_number(file, b"free_hugepages")?;
                let idle = free.zip(reserved).map_or(0, |(free, reserved)| free.saturating_sub(reserved));
                return Ok(Some(Pool { pages, surplus, idle }));
            }
            surplus = after;
        }
        Err(libc::EAGAIN)
    }
}

/// The value of a setting, which is its first line: the chosen word of a file with choices; for a pool its persistent pages, which
/// are those that are not surplus. The error is an `errno`.
pub fn read(file: &File, kind: Kind) -> Result<Value, i32> {
    match if kind == Kind::Pages { Pool::read(file)? } else { None } {
        Some(pool) => decimal(pool.pages.saturating_sub(pool.surplus)).ok_or(libc::ERANGE),
        None => read_file(file),
    }
}

/// Writes a value as one line in one call, as `echo` does: the kernel accepts it completely or not at all. The file is not
/// truncated first, because a plain file would stay empty if the process was killed in between. The error is an `errno`.
pub fn write(file: &File, value: &Value) -> Result<(), i32> {
    let mut line = Text::<{ VALUE_BYTES + 1 }>::EMPTY;
    line.push(value.as_bytes()).and_then(|()| line.push(b"\n")).ok_or(libc::ERANGE)?;
    let opened = open(file, libc::O_WRONLY)?;
    let bytes = line.as_bytes();
    // SAFETY: pointer and length belong to one slice.
    let written = retry(|| unsafe { libc::write(opened.0, bytes.as_ptr().cast(), bytes.len()) });
    match written {
        Ok(length) if length == bytes.len() => Ok(()),
        Ok(_) => Err(libc::EIO),
        Err(errno) => Err(errno),
    }
}

/// A descriptor that is closed when dropped.
struct Open(libc::c_int);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        unsafe { libc::close(self.0) };
    }
}

fn open(file: &File, flags: libc::c_int) -> Result<Open, i32> {
    let name: &CStr = file.as_c_str().ok_or(libc::EINVAL)?;
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the name is a C string that outlives the call.
    let opened = retry(|| unsafe { libc::open(name.as_ptr(), flags) } as isize)?;
    Ok(Open(opened as libc::c_int))
}

fn read_file(file: &File) -> Result<Value, i32> {
    let opened = open(file, libc::O_RDONLY)?;
    let mut buffer = [0u8; 1024];
    // SAFETY: pointer and length belong to one buffer.
    let length = retry(|| unsafe { libc::read(opened.0, buffer.as_mut_ptr().cast(), buffer.len()) })?;
    let bytes = buffer.get(..length).unwrap_or_default();
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Value::new(chosen_word(line)).ok_or(libc::ERANGE)
}

fn retry(mut call: impl FnMut() -> isize) -> Result<usize, i32> {
    loop {
        match usize::try_from(call()) {
            Ok(result) => return Ok(result),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                errno => return Err(errno.unwrap_or(libc::EIO)),
            },
        }
    }
}

/// As [`host::chosen_word`], on bytes.
fn chosen_word(bytes: &[u8]) -> &[u8] {
    let open = bytes.iter().position(|byte| *byte == b'[');
    let after = open.and_then(|open| bytes.get(open.saturating_add(1)..));
    let word = after.and_then(|after| after.get(..after.iter().position(|byte| *byte == b']')?));
    word.unwrap_or(bytes.trim_ascii())
}

fn number(value: &Value) -> Option<u64> {
    std::str::from_utf8(value.as_bytes()).ok()?.parse().ok()
}

fn decimal(number: u64) -> Option<Value> {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start = start.checked_sub(1)?;
        *digits.get_mut(start)? = b'0'.saturating_add((rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            return Value::new(digits.get(start..)?);
        }
    }
}

/// The number in a file in the same directory; `None` where the file does not exist.
fn sibling_number(file: &File, name: &[u8]) -> Result<Option<u64>, i32> {
    match read_file(&sibling(file, name).ok_or(libc::ENAMETOOLONG)?) {
        Err(libc::ENOENT) => Ok(None),
        found => number(&found?).map(Some).ok_or(libc::EINVAL),
    }
}

fn sibling(file: &File, name: &[u8]) -> Option<File> {
    let slash = file.as_bytes().iter().rposition(|byte| *byte == b'/')?;
    let mut sibling = File::new(file.as_bytes().get(..=slash)?)?;
    sibling.push(name)?;
    Some(sibling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, before: &str, written: &str) -> Entry {
        let value = |text: &str| Value::new(text.as_bytes()).unwrap();
        Entry { file: File::EMPTY, kind, before: value(before), written: value(written) }
    }

    /// The file of a pool of 8 pages, 3 of them surplus.
    fn pool(directory: &std::path::Path) -> File {
        let put = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        put("nr_hugepages", "8\n");
        put("surplus_hugepages", "3\n");
        put("free_hugepages", "4\n");
        put("resv_hugepages", "1\n");
        File::new(directory.join("nr_hugepages").as_os_str().as_encoded_bytes()).unwrap()
    }

    #[test]
    fn a_pool_whose_surplus_cannot_be_read_has_no_value() {
        let directory = tempfile::tempdir().unwrap();
        let file = pool(directory.path());
        let surplus = directory.path().join("surplus_hugepages");
        let pages = || read(&file, Kind::Pages).map(|value| value.lossy());
        assert_eq!(pages(), Ok("5".into()), "the surplus pages are not what was set");
        std::fs::write(&surplus, "three\n").unwrap();
        assert_eq!(pages(), Err(libc::EINVAL));
        std::fs::remove_file(&surplus).unwrap();
        std::fs::create_dir(&surplus).unwrap();
        assert_eq!(pages(), Err(libc::EISDIR));
        std::fs::remove_dir(&surplus).unwrap();
        assert_eq!(pages(), Ok("8".into()), "a pool without a file of surplus pages");
    }

    #[test]
    fn pages_are_not_idle_where_reservations_are_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let file = pool(directory.path());
        let idle = || Pool::read(&file).map(|pool| pool.unwrap().idle);
        assert_eq!(idle(), Ok(3));
        let reserved = directory.path().join("resv_hugepages");
        std::fs::remove_file(&reserved).unwrap();
        assert_eq!(idle(), Ok(0));
        std::fs::create_dir(&reserved).unwrap();
        assert_eq!(idle(), Err(libc::EISDIR));
    }

    #[test]
    fn fewer_pages_than_requested_count_as_written_by_the_lease() {
        let made = |kind, found: &str| entry(kind, "8", "64").could_have_made(&Value::new(found.as_bytes()).unwrap());
        assert!(made(Kind::Pages, "64") && made(Kind::Pages, "8") && made(Kind::Pages, "31"));
        assert!(!made(Kind::Pages, "65") && !made(Kind::Pages, "7") && !made(Kind::Pages, "x"));
        assert!(made(Kind::Value, "64") && !made(Kind::Value, "31"));
        assert!(made(Kind::KernelAdjusted, "anything"));
    }

    #[test]
    fn numbers_are_written_as_the_kernel_writes_them() {
        for (value, text) in [(0, "0"), (9, "9"), (10, "10"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(decimal(value).unwrap().as_bytes(), text.as_bytes());
        }
    }

    #[test]
    fn bytes_have_the_same_chosen_word_as_text() {
        for text in ["always [madvise] never\n", "4096\n", "[broken\n", "] odd [\n", "", "[]", "  a b  \n"] {
            assert_eq!(chosen_word(text.as_bytes()), host::chosen_word(text).as_bytes(), "{text:?}");
        }
    }
}
