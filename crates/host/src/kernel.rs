//! Properties of the kernel that decide what pagelab may do.

use std::fmt;

use super::Host;
use super::absent;
use super::read::HostError;

/// The first two numbers of a kernel release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its mount point.
    pub point: String,
    /// Its type.
    pub kind: String,
    /// Its options, such as `ro` or `hidepid=2`.
    pub options: Vec<String>,
}

/// Which processes Yama allows a process to trace (Documentation/admin-guide/LSM/Yama.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceLimit {
    /// No Yama, or its scope is 0: every process of the same user.
    None,
    /// Scope 1: descendants only.
    Descendants,
    /// Scope 2: CAP_SYS_PTRACE only.
    Privileged,
    /// Scope 3: no process, until reboot.
    NoProcess,
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl KernelVersion {
    /// The version in a release such as `6.18.44-fc`; `None` where it does not begin with two numbers.
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
        Some(KernelVersion(numbers.next()??, numbers.next()??))
    }
}

impl Host {
    /// The version of the kernel; `None` where its release does not begin with two numbers.
    pub fn kernel_version(&self) -> Result<Option<KernelVersion>, HostError> {
        Ok(KernelVersion::parse(&self.root.required("/proc/sys/kernel/osrelease")?))
    }

    /// The mount that contains `path`: the one with the longest mount point that is a prefix, the last of several. `None` where
    /// the host has no mount table, as in a capture without one.
    pub fn mount_of(&self, path: &str) -> Result<Option<Mount>, HostError> {
        let Some(text) = absent::text(&self.root, "/proc/self/mounts")? else { return Ok(None) };
        let leads = |mount: &Mount| {
            let point = mount.point.trim_end_matches('/');
            path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        Ok(text.lines().filter_map(mount).filter(leads).max_by_key(|mount| mount.point.len()))
    }

    /// Whether the file system that contains `path` is mounted read-only, as sysfs is in most containers.
    pub fn is_read_only(&self, path: &str) -> Result<bool, HostError> {
        let mount = self.mount_of(path)?;
        Ok(mount.is_some_and(|mount| mount.options.iter().any(|option| option == "ro")))
    }

    /// How Yama limits tracing.
    pub fn ptrace_limit(&self) -> Result<PtraceLimit, HostError> {
        Ok(match self.number("/proc/sys/kernel/yama/ptrace_scope")? {
            None | Some(0) => PtraceLimit::None,
            Some(1) => PtraceLimit::Descendants,
            Some(2) => PtraceLimit::Privileged,
            Some(_) => PtraceLimit::NoProcess,
        })
    }

    /// The last value of an option on the kernel command line (`transparent_hugepage`); also `None` in a capture without the
    /// command line.
    pub fn boot_option(&self, name: &str) -> Result<Option<String>, HostError> {
        let Some(line) = absent::text(&self.root, "/proc/cmdline")? else { return Ok(None) };
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=').map(String::from);
        Ok(line.split_whitespace().filter_map(value).next_back())
    }
}

fn mount(line: &str) -> Option<Mount> {
    let mut fields = line.split_whitespace().skip(1);
    let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let options = options.split(',').map(String::from).collect();
    Some(Mount { point: unescaped(point), kind: kind.into(), options })
}

/// A field of a mount table with space, tab, newline and backslash decoded from octal escapes of three digits (`mangle`,
/// fs/proc_namespace.c).
pub(crate) fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let first = parts.next().unwrap_or(field).to_string();
    parts.fold(first, |so_far, part| {
        let character = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match character {
            Some(character) => format!("{so_far}{}{}", char::from(character), &part[3..]),
            None => format!("{so_far}\\{part}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_two_numbers_and_a_rest() {
        assert_eq!(KernelVersion::parse("6.18.44-fc"), Some(KernelVersion(6, 18)));
        assert_eq!(KernelVersion::parse("5.15+"), Some(KernelVersion(5, 15)));
        assert_eq!(KernelVersion::parse("next"), None);
        assert!(KernelVersion(5, 14) < KernelVersion(6, 7));
    }

    #[test]
    fn mount_points_are_read_without_their_escapes() {
        let point = |point: &str| mount(&format!("none {point} tmpfs ro,size=1k 0 0")).unwrap().point;
        assert_eq!(point(r"/a\040b\011c"), "/a b\tc");
        assert_eq!(point(r"/a\134040"), r"/a\040", "an escaped backslash begins no other escape");
    }

    #[test]
    fn a_table_of_mounts_that_cannot_be_read_is_not_a_writable_one() {
        let host = captured_with("proc/self/mounts");
        assert!(host.is_read_only("/sys/kernel/mm").is_err());
    }

    #[test]
    fn a_limit_of_tracing_that_cannot_be_read_is_not_none() {
        let host = captured_with("proc/sys/kernel/yama/ptrace_scope");
        assert!(host.ptrace_limit().is_err());
    }

    #[test]
    fn a_command_line_that_cannot_be_read_is_not_empty() {
        assert!(captured_with("proc/cmdline").boot_option("transparent_hugepage").is_err());
    }

    /// A host that has a directory in place of a file.
    fn captured_with(directory: &str) -> Host {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/smaps"), "KernelPageSize: 4 kB\n").unwrap();
        std::fs::create_dir_all(root.path().join(directory)).unwrap();
        Host::open(root.keep()).unwrap()
    }
}
