//! Starts a program natively and under QEMU so that its memory layout is the same on both sides ([`Launch`]).
//!
//! This removes differences that a trace does not record: randomised addresses, different environments, allocations of the
//! dynamic linker that depend on the processor, and the effect of addresses on programs whose allocations depend on them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const BASE_BYTES: u64 = 4096;
/// The step between the stack limits that are tried. It is a multiple of 2M, so that the alignment for large pages does not change.
const LARGE_BYTES: u64 = 2 << 20;

/// How a program is started: its environment, and a command that starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The whole environment: no other variable is set.
    pub environment: Vec<(String, String)>,
    /// The command that starts the native program, with its arguments.
    pub wrapper: Vec<String>,
}

/// The point up to which the mappings of a program are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The call `set_robust_list`, which the dynamic linker makes after it has allocated the memory of the first
    /// thread.
    Program,
    /// The end of the program.
    End,
}

/// How a program's memory grows.
#[derive(Debug, PartialEq, Eq)]
enum Growth {
    /// An mmap without an address: its length in base pages.
    Mapped(u64),
    /// A change of the end of the heap since the previous brk, in bytes.
    Heap(i64),
}

impl Launch {
    /// A launch without randomised addresses.
    pub fn new(environment: Vec<(String, String)>) -> Launch {
        Launch { environment, wrapper: ["setarch", "--addr-no-randomize"].map(str::to_owned).into() }
    }

    /// A launch in which the dynamic linker of a program maps the same lengths in the same order on both sides; `None` if none was
    /// found.
    ///
    /// The dynamic linker allocates memory for the vDSO, which QEMU 7.2 does not have, and for the names of the processor's library
    /// directories, which differ between the sides. The difference is some 900 bytes. It can make one side map one page more, which
    /// moves all later mappings by a page. The length of `LD_LIBRARY_PATH` decides whether that happens, and with some lengths it
    /// happens on neither side. `libraries` returns a value for that variable which is the given number of bytes longer than its
    /// shortest value.
    pub fn same_start(&self, command: &[String], libraries: impl Fn(usize) -> String) -> Option<Launch> {
        let padded = |bytes| {
            let mut launch = self.clone();
            launch.environment.push(("LD_LIBRARY_PATH".to_owned(), libraries(bytes)));
            launch
        };
        let is_same = |launch: &Launch| {
            let emulated = launch.growth_under_qemu(command, Until::Program);
            emulated.is_some_and(|emulated| launch.maps_natively(command, Until::Program, &emulated))
        };
        (0..4096).step_by(64).map(padded).find(is_same)
    }

    /// A launch for a program whose allocations depend on its addresses; `None` if none was found.
    ///
    /// The launch sets the stack limit, because mmap places memory below the area that is reserved for the stack. With the right
    /// limit, the program maps the same memory from its beginning to its end as at QEMU's addresses.
    pub fn same_addresses(&self, command: &[String]) -> Option<Launch> {
        const MIN_GAP_BYTES: u64 = 128 << 20;
        const GUARD_BYTES: u64 = 1 << 20;
        let simulated = self.growth_under_qemu(command, Until::End)?;
        let limited = |larges: u64| {
            let limit = format!("--stack={}:", MIN_GAP_BYTES - GUARD_BYTES + larges * LARGE_BYTES);
            let mut launch = self.clone();
            launch.wrapper.extend(["prlimit".to_owned(), limit]);
            launch
        };
        let is_same = |launch: &Launch| launch.maps_natively(command, Until::End, &simulated);
        (0..32).map(limited).find(is_same)
    }

    /// Gives a command exactly this environment.
    pub fn in_environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)))
    }

    /// A command in this environment, started through the wrapper.
    pub fn natively<'a>(&'a self, arguments: impl IntoIterator<Item = &'a OsStr>) -> Command {
        let mut all = self.wrapper.iter().map(AsRef::as_ref).chain(arguments);
        let mut command = Command::new(all.next().unwrap_or(OsStr::new("true")));
        command.args(all);
        self.in_environment(&mut command);
        command
    }

    /// Whether the program, when run natively, makes exactly the expected mappings.
    fn maps_natively(&self, command: &[String], until: Until, expected: &[Growth]) -> bool {
        let arguments = self.wrapper.iter().cloned().chain(["strace".to_owned()]).chain(command.iter().cloned());
        // A difference is often visible before the program ends, so reading stops there.
        let continues = |growth: &[Growth]| expected.starts_with(growth);
        self.trace_growth(&arguments.collect::<Vec<_>>(), until, continues).is_some_and(|growth| growth == expected)
    }

    fn growth_under_qemu(&self, command: &[String], until: Until) -> Option<Vec<Growth>> {
        let arguments = ["qemu-x86_64", "-strace"].map(str::to_owned).into_iter().chain(command.iter().cloned());
        self.trace_growth(&arguments.collect::<Vec<_>>(), until, |_| true)
    }

    /// How the memory of a command grows, in order, read from the output of strace on standard error. Reading stops as soon as
    /// `continues` returns false; `None` if there are no mappings.
    fn trace_growth(
        &self,
        arguments: &[String],
        until: Until,
        continues: impl Fn(&[Growth]) -> bool,
    ) -> Option<Vec<Growth>> {
        let mut traced = Command::new(&arguments[0]);
        traced.args(&arguments[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // In a process group of its own, because the children of strace do not end when strace is killed.
        let mut child = self.in_environment(&mut traced).process_group(0).spawn().ok()?;
        let lines = BufReader::new(child.stderr.take()?).split(b'\n').map_while(Result::ok);
        let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        let lines = lines.take_while(|line| until == Until::End || !line.contains("set_robust_list("));
        let growth = growth(lines, continues);
        end_group(child);
        Some(growth).filter(|growth| !growth.is_empty())
    }
}

/// How memory grows by the calls in these lines of strace's output.
fn growth(lines: impl Iterator<Item = String>, continues: impl Fn(&[Growth]) -> bool) -> Vec<Growth> {
    let mut heap_end = None;
    let mut growth = Vec::new();
    for line in lines {
        if !continues(&growth) {
            break;
        }
        if let Some((_, rest)) = line.split_once("mmap(NULL,") {
            let bytes = rest.split(',').next().and_then(|bytes| bytes.trim().parse::<u64>().ok());
            growth.extend(bytes.map(|bytes| Growth::Mapped(bytes.div_ceil(BASE_BYTES))));
        } else if let Some((_, rest)) = line.split_once("brk(0x") {
            let set = rest.split(')').next().and_then(|set| i64::from_str_radix(set, 16).ok());
            growth.extend(heap_end.zip(set).map(|(end, set)| Growth::Heap(set - end)));
            heap_end = set.or(heap_end);
        }
    }
    growth
}

/// Kills a child and its process group.
fn end_group(mut child: Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_same_growth_from_strace_and_qemu() {
        let native =
            ["brk(NULL) = 0x5000", "brk(0x5000) = 0x5000", "mmap(NULL, 8193, PROT_READ) = 1", "brk(0x9000) = 0x9000"];
        let emulated = ["7 brk(0x1000) = 0x1000", "7 mmap(NULL,12288,PROT_READ) = 2", "7 brk(0x5000) = 0x5000"];
        let both = [&native[..], &emulated[..]].map(|lines| growth(lines.iter().map(ToString::to_string), |_| true));
        assert_eq!(both[0], [Growth::Mapped(3), Growth::Heap(0x4000)]);
        assert_eq!(both[0], both[1]);
        let first = growth(native.iter().map(ToString::to_string), |growth| growth.is_empty());
        assert_eq!(first, [Growth::Mapped(3)]);
    }

    #[test]
    fn a_launch_has_no_variable_but_its_own() {
        let launch = Launch { environment: vec![("A".into(), "b".into())], wrapper: vec!["env".into()] };
        let printed = launch.natively([OsStr::new("env")]).output().map(|output| output.stdout);
        assert_eq!(printed.ok().as_deref(), Some(&b"A=b\n"[..]));
    }
}
