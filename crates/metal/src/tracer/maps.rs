//! The mappings of a process, as /proc/PID/maps lists them.

use super::ptrace::Tid;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// PROT_READ, PROT_WRITE and PROT_EXEC.
    pub protection: u64,
    /// Whether it is private memory without a file.
    pub anonymous: bool,
    /// The name that the kernel shows (`[heap]`, `[stack]`, a path), empty for most.
    pub name: String,
}

impl Vma {
    /// Bytes of the mapping.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it can be read, written or executed at all.
    pub fn accessible(&self) -> bool {
        self.protection != libc::PROT_NONE as u64
    }

    /// Whether it can be written.
    pub fn writable(&self) -> bool {
        self.protection & libc::PROT_WRITE as u64 != 0
    }
}

/// All mappings of a process, in order of address; empty where it is gone.
pub fn of_process(process: Tid) -> Vec<Vma> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// `start-end perms offset device inode name` (Documentation/filesystems/proc.rst).
fn parse(line: &str) -> Option<Vma> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let inode = fields.nth(2)?;
    let name = fields.collect::<Vec<_>>().join(" ");
    Some(Vma {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: protection(permissions),
        anonymous: inode == "0" && permissions[3] == b'p' && !name.starts_with("[v"),
        name,
    })
}

fn protection(permissions: &[u8]) -> u64 {
    let bits = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
    bits.into_iter().filter(|(letter, _)| permissions.contains(letter)).map(|(_, bit)| bit as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let reserved = parse("7f1c00000000-7f1c04000000 ---p 00000000 00:00 0 ").unwrap();
        assert!(reserved.anonymous && !reserved.accessible() && reserved.bytes() == 64 << 20);
        let file = parse("55d0c0000000-55d0c0001000 rw-p 00003000 fe:01 1234    /usr/bin/a b").unwrap();
        assert!(!file.anonymous && file.writable() && file.name == "/usr/bin/a b");
        assert!(!parse("7ffd000-7ffe000 r-xp 00000000 00:00 0 [vdso]").unwrap().anonymous);
        assert_eq!(parse("nonsense"), None);
    }
}
