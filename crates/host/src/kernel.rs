//! What of the kernel decides what pagelab may do on it.

use std::fmt;

use super::Host;

/// The first two numbers of a kernel release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: String,
    /// Its type.
    pub kind: String,
    /// Its options, such as `ro` or `hidepid=2`.
    pub options: Vec<String>,
}

/// What Yama lets a process trace (Documentation/admin-guide/LSM/Yama.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceLimit {
    /// No Yama, or its scope is 0: every process of the same user.
    None,
    /// Scope 1: descendants only.
    Descendants,
    /// Scope 2: CAP_SYS_PTRACE only.
    Privileged,
    /// Scope 3: nobody, until reboot.
    Nobody,
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl KernelVersion {
    /// That of a release, such as `6.18.44-fc`; `None` where it does not begin with two numbers.
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
        Some(KernelVersion(numbers.next()??, numbers.next()??))
    }
}

impl Host {
    /// The release of the kernel; `None` where it does not begin with two numbers.
    pub fn kernel_version(&self) -> Option<KernelVersion> {
        KernelVersion::parse(&self.value("/proc/sys/kernel/osrelease")?)
    }

    /// The mount that holds `path`: the longest mount point that leads to it, the last of several.
    pub fn mount_of(&self, path: &str) -> Option<Mount> {
        let text = self.root.text("/proc/self/mounts").ok()?;
        let leads = |mount: &Mount| {
            let point = mount.point.trim_end_matches('/');
            path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        text.lines().filter_map(mount).filter(leads).max_by_key(|mount| mount.point.len())
    }

    /// Whether the file system that holds `path` is mounted read-only, as sysfs is in most containers.
    pub fn is_read_only(&self, path: &str) -> bool {
        self.mount_of(path).is_some_and(|mount| mount.options.iter().any(|option| option == "ro"))
    }

    /// How far tracing is limited by Yama.
    pub fn ptrace_limit(&self) -> PtraceLimit {
        match self.number("/proc/sys/kernel/yama/ptrace_scope") {
            None | Some(0) => PtraceLimit::None,
            Some(1) => PtraceLimit::Descendants,
            Some(2) => PtraceLimit::Privileged,
            Some(_) => PtraceLimit::Nobody,
        }
    }

    /// The value of an option on the kernel command line (`transparent_hugepage`), the last one given.
    pub fn boot_option(&self, name: &str) -> Option<String> {
        let line = self.root.text("/proc/cmdline").ok()?;
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=').map(String::from);
        line.split_whitespace().filter_map(value).next_back()
    }
}

fn mount(line: &str) -> Option<Mount> {
    let mut fields = line.split_whitespace().skip(1);
    let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Mount { point: point.into(), kind: kind.into(), options: options.split(',').map(String::from).collect() })
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
}
