//! What runs in each boot: the built-in workloads and the command, as arguments of `compare`.

use clap::ValueEnum;
use guest::Sysroot;
use study::kernel_series::{COMMAND, Workload};

use crate::kernels::kernel::Kernel;

/// The word for pagelab in a workload's command.
const PAGELAB: &str = "pagelab";

/// A built-in workload of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Builtin {
    /// Fork a process with memory, whose children write a part of it
    Fork,
    /// Map, touch and unmap memory that is too small for large pages of PMD size
    Mmap,
    /// Touch fresh memory
    Fault,
    /// Change the protection of parts of memory, and write to it
    Mprotect,
    /// Collapse touched memory into large pages (MADV_COLLAPSE)
    Collapse,
    /// Write and read memory in random order with a memory limit of half of it, and swap (zram)
    SwapIn,
    /// Map and read files of a tmpfs
    MappedFile,
    /// No built-in workload
    None,
}

/// The program of a built-in workload, with the phases that it reports.
struct Program {
    words: &'static str,
    /// The options with a size, and the sizes.
    sizes: &'static [(&'static str, u64)],
    /// Names of times that it prints (`fork` of `fork_total_s`), which count instructions in a guest.
    phases: &'static [&'static str],
}

impl Builtin {
    /// All of them, in the order in which they run.
    pub const ALL: [Builtin; 7] = [
        Builtin::Fork,
        Builtin::Mmap,
        Builtin::Fault,
        Builtin::Mprotect,
        Builtin::Collapse,
        Builtin::SwapIn,
        Builtin::MappedFile,
    ];

    /// The name in tables and assertions.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The workload of this name.
    pub fn of_name(name: &str) -> Option<Builtin> {
        Builtin::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    fn program(self) -> Option<Program> {
        let program = |words, sizes, phases| Some(Program { words, sizes, phases });
        match self {
            Builtin::Fork => {
                program("fork-cow --share 0.25 --rounds 4", &[("--bytes", 32 << 20)], &["fork", "cow_write", "child"])
            }
            Builtin::Mmap => program("mmap-churn --rounds 100", &[("--bytes", 512 << 10)], &["map", "touch", "unmap"]),
            Builtin::Fault => program("page-touch", &[("--bytes", 64 << 20)], &["write"]),
            Builtin::Mprotect => {
                program("mprotect --rounds 4", &[("--bytes", 32 << 20)], &["protect", "write", "restore"])
            }
            Builtin::Collapse => program("collapse", &[("--bytes", 32 << 20)], &["collapse"]),
            Builtin::SwapIn => program(
                "swap-in --order random",
                &[("--bytes", 32 << 20), ("--limit", 16 << 20)],
                &["write", "swap_in"],
            ),
            Builtin::MappedFile => program("mapped-read --seconds 0.002", &[("--bytes", 1 << 20)], &[]),
            Builtin::None => None,
        }
    }

    /// As a workload of a series. `quick`: with a quarter of the memory.
    pub fn workload(self, quick: bool) -> Option<Workload> {
        let program = self.program()?;
        let divisor = if quick { 4 } else { 1 };
        let size = |(option, bytes): &(&str, u64)| [(*option).to_owned(), policy::size::format_bytes(bytes / divisor)];
        let words = [PAGELAB, "workload"].into_iter().chain(program.words.split(' ')).map(str::to_owned);
        let sizes = program.sizes.iter().flat_map(size);
        let command = words.chain(sizes).chain(["--json".to_owned()]).collect();
        Some(Workload { name: self.name(), command })
    }
}

/// The command of the user as a workload.
pub fn of_command(command: &[String]) -> Workload {
    Workload { name: COMMAND.to_owned(), command: command.to_vec() }
}

/// The arguments of `compare` for a workload in a guest of this kernel: one discarded and two counted runs with the tracer, and as many
/// without.
pub fn compare_words(workload: &Workload, kernel: &Kernel, program: &str) -> Vec<String> {
    const FIXED: [&str; 9] =
        ["-p", "default", "--blocks", "2", "--min-blocks", "2", "--trial-time", "none", "--no-advice"];
    let mut words: Vec<String> = FIXED.map(str::to_owned).into();
    let builtin = Builtin::of_name(&workload.name).and_then(Builtin::program);
    for phase in builtin.iter().flat_map(|program| program.phases) {
        words.extend(["--metric".to_owned(), format!("{phase}_s:lower=\"{phase}_total_s\":([0-9.e-]+)")]);
    }
    words.push("--".to_owned());
    let own = kernel.sysroot.as_ref().map_or_else(|| program.to_owned(), in_system);
    // Only commands of ours begin with the word; the user's may name another program.
    let is_own = builtin.is_some();
    let word = |word: &String| if is_own && word == PAGELAB { own.clone() } else { word.clone() };
    words.extend(workload.command.iter().map(word));
    words
}

fn in_system(sysroot: &Sysroot) -> String {
    sysroot.program().display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(name = "pagelab workload", no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        _workload: crate::workload::WorkloadArguments,
    }

    #[test]
    fn every_builtin_is_a_workload_with_a_name_of_its_own() {
        for builtin in Builtin::ALL {
            assert_eq!(Builtin::of_name(&builtin.name()), Some(builtin));
            for quick in [false, true] {
                let workload = builtin.workload(quick).unwrap();
                let words = &workload.command[2..];
                assert!(Line::try_parse_from(words).is_ok(), "{words:?}");
            }
        }
        assert_eq!((Builtin::None.workload(true), Builtin::of_name("none")), (None, None));
    }
}
