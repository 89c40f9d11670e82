//! Runs a kernel in QEMU ([`Bench`]), and measures the phases of `kvm-dirty-log` in instructions, or reads the counters of a
//! kernel that has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::counts::Counts;
use crate::cache::cache;
use crate::command;
use crate::command::is_in_path;
use crate::dist::{self, Compiler, Target};
use crate::guests::initrd::{self, Programs};
use crate::guests::machine::{self, Board, Boot, End};
use crate::guests::transcript::{self, CheckOutput};
use crate::linux::Granule;

/// The script that runs in a guest.
const SCRIPT: &str = include_str!("split.sh");
/// The name of the script in the guest.
const CHECK: &str = "split";
/// The kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The duration of the phases, by a clock that counts instructions.
    Instructions,
    /// The kernel's counters. A kernel with counters executes other instructions than a kernel without, so the two are
    /// measured separately.
    Counts,
}

/// The guest's memory in addition to the logged memory. The first GiB contains the kernel and the last one the struct pages, so
/// neither can hold a 1G page.
const OTHER_BYTES: u64 = 2 << 30;

/// The reported phases: the name, the name of the phase in the document, and the run that contains it.
const PHASES: [(&str, &str, &str); 4] = [
    ("protect", "enable", "protect"),
    ("enable", "enable", "enable"),
    ("clear", "clear", "clear"),
    ("clear again", "clear 1", "clear"),
];

/// The duration of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The backing of the memory: base, thp, hugetlb-1g.
    pub backing: String,
    /// `protect` (enabling logging without splitting), `enable`, `clear`, `clear again`.
    pub name: String,
    /// Instructions in each cycle.
    pub instructions: Vec<u64>,
}

/// The counts of one backing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The backing of the memory.
    pub backing: String,
    /// The counts of the phase `enable`.
    pub counts: Counts,
}

/// The output of a guest: its phases, and the commit of the program in it.
#[derive(Debug)]
pub struct GuestOutput {
    pub phases: Vec<Phase>,
    /// The commit that the program reports.
    pub commit: String,
}

/// The size of the logged memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes for the backings of base pages and of THP.
    pub bytes: u64,
    /// Bytes for the backing of 1G pages, which kernels with 4K pages have.
    pub gigabyte_bytes: u64,
}

/// The default size for base pages and THP. It is small, because each base page takes several faults, which execute most
/// of all instructions.
const BYTES: u64 = 256 << 20;

impl Memory {
    /// The sizes for kernels with base pages of this size.
    pub fn of(granule: Granule, bytes: Option<u64>, gigabytes: u64) -> Result<Memory, String> {
        let block = granule.block_bytes();
        let bytes = bytes.unwrap_or(BYTES.max(block));
        if !bytes.is_multiple_of(block) {
            return Err(format!("--bytes expects whole blocks of {} M with base pages of {granule}", block >> 20));
        }
        Ok(Memory { bytes, gigabyte_bytes: gigabytes << 30 })
    }

    /// Bytes of a backing.
    pub fn of_backing(self, backing: &str) -> u64 {
        if backing == "hugetlb-1g" { self.gigabyte_bytes } else { self.bytes }
    }
}

/// What all guests of a measurement have in common.
#[derive(Debug)]
pub struct Bench {
    /// Base page size of the kernels.
    pub granule: Granule,
    /// Sizes of the logged memory.
    pub memory: Memory,
    /// The number of bytes that KVM splits at a time: the largest block.
    pub chunk_bytes: u64,
    board: &'static Board,
    programs: Programs,
    logs: PathBuf,
    limit: Duration,
}

impl Bench {
    /// Builds the programs of the guests.
    pub fn prepare(
        root: &Path,
        granule: Granule,
        memory: Memory,
        limit: Duration,
        given: Option<&Path>,
    ) -> Result<Bench, String> {
        let (cache, target) = (cache()?.join("pagelab"), Target::named("arm64")?);
        let board = Board::of("arm64", Some(granule)).ok_or("there is no machine for arm64")?;
        let (program, package) = board.program;
        if !is_in_path(program) {
            return Err(format!("needs {program}; apt-get install {package}"));
        }
        let busybox = initrd::busybox(&cache, target, false)?;
        let pagelab = match given {
            Some(program) => program.to_path_buf(),
            None => dist::for_guests(root, target, &Compiler::find(root, target, &cache, false)?)?,
        };
        let programs = Programs::make(root, target, &pagelab, &busybox)?;
        let chunk_bytes = if granule == Granule::K4 { 1 << 30 } else { granule.block_bytes() };
        Ok(Bench { granule, memory, chunk_bytes, board, programs, logs: machine::logs(root)?, limit })
    }

    /// The program name of the emulator.
    pub fn emulator(&self) -> &'static str {
        self.board.program.0
    }

    /// The processor that it emulates.
    pub fn processor(&self) -> &'static str {
        self.board.processor()
    }

    /// Measures a kernel with a clock that counts instructions, and returns its output.
    pub fn instructions(&self, variant: &str, image: &Path) -> Result<GuestOutput, String> {
        let mut seen = GuestOutput { phases: Vec::new(), commit: String::new() };
        for backings in self.boots() {
            let part = self.boot(variant, image, backings, Kind::Instructions)?;
            seen.commit = command::commit_in(part.output("version")?);
            for backing in backings.iter() {
                for (name, phase, run) in PHASES {
                    let document: Value = serde_json::from_str(part.output(&format!("{backing}.{run}"))?)
                        .map_err(|error| format!("{backing}.{run}: expected JSON: {error}"))?;
                    let instructions = instructions_of(&document, phase)?;
                    seen.phases.push(Phase { backing: (*backing).into(), name: name.into(), instructions });
                }
            }
        }
        Ok(seen)
    }

    /// Runs the same phases once on a kernel with counters, and returns the counts.
    pub fn counts(&self, variant: &str, image: &Path) -> Result<Vec<Counted>, String> {
        let mut all = Vec::new();
        for backings in self.boots() {
            let part = self.boot(variant, image, backings, Kind::Counts)?;
            for backing in backings.iter() {
                part.output(&format!("{backing}.enable"))?;
                let of = |when: &str| Counts::read(part.output(&format!("{backing}.enable.{when}"))?);
                let counts = of("after")?.since(of("before")?)?;
                all.push(Counted { backing: (*backing).into(), counts });
            }
        }
        Ok(all)
    }

    /// The backings that each boot measures. 1G pages have a boot of their own, which allocates the pool before
    /// anything else.
    fn boots(&self) -> &'static [&'static [&'static str]] {
        if self.granule == Granule::K4 { &[&["base", "thp"], &["hugetlb-1g"]] } else { &[&["base", "thp"]] }
    }

    fn boot(&self, variant: &str, image: &Path, backings: &[&str], kind: Kind) -> Result<CheckOutput, String> {
        let name = format!("kvm-arm64-{}-{variant}-{}", self.granule, backings.join("-"));
        let bytes = self.memory.of_backing(backings.first().copied().unwrap_or_default());
        let given = format!("bytes={bytes}\nchunk={}\nbackings=\"{}\"\n", self.chunk_bytes, backings.join(" "));
        let initrd = self.logs.join(format!("{name}.initrd"));
        fs::write(&initrd, self.programs.initrd(&[(CHECK, SCRIPT)], &[("checks/given", given.as_bytes())]))
            .map_err(|error| format!("cannot write {}: {error}", initrd.display()))?;
        let _lock = machine::lock_guest(&self.logs.join(format!("{name}.lock")))?;
        println!("==> {name}: {}", self.board.program.0);
        let pool = format!("hugepagesz=1G hugepages={}", self.memory.gigabyte_bytes >> 30);
        let boot = Boot {
            board: self.board,
            kernel: image,
            initrd: &initrd,
            log: self.logs.join(format!("{name}.log")),
            limit: self.limit,
            counts: kind == Kind::Instructions,
            arguments: if backings == ["hugetlb-1g"] { &pool } else { "" },
            disks: &[],
            memory: &format!("{}M", (bytes + OTHER_BYTES) >> 20),
        };
        let (console, end) = machine::run(&boot)?;
        let _ = fs::remove_file(&initrd);
        let part = transcript::read(&console).into_iter().find(|part| part.check == CHECK && part.is_complete);
        let part = part.ok_or_else(|| match end {
            End::TooSlow => format!("{name}: timed out after {} s; see {name}.log", self.limit.as_secs()),
            End::Off => format!("{name}: the guest ended with {:?}; see {name}.log", machine::last_line(&console)),
        })?;
        if !part.needs.is_empty() {
            return Err(format!("{name}: needs {}", part.needs.join(", ")));
        }
        let release = part.output("release")?.trim();
        if !release.ends_with(&format!("-{}-{variant}", self.granule)) {
            return Err(format!("{name}: expected the kernel {}-{variant}, found {release}", self.granule));
        }
        Ok(part)
    }
}

/// Instructions of a phase in each cycle. QEMU's clock advances by one nanosecond per instruction, so times in
/// nanoseconds are instructions.
fn instructions_of(document: &Value, phase: &str) -> Result<Vec<u64>, String> {
    let phases = document["phases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found =
        phases.iter().find(|one| one["name"] == phase).ok_or_else(|| format!("the document has no phase {phase:?}"))?;
    let walls = found["walls_s"].as_array().map(Vec::as_slice).unwrap_or_default();
    let walls: Option<Vec<f64>> = walls.iter().map(Value::as_f64).collect();
    let walls = walls.filter(|walls| !walls.is_empty()).ok_or_else(|| format!("phase {phase:?} has no times"))?;
    Ok(walls.into_iter().map(|wall_s| (wall_s * 1e9).round() as u64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_nanoseconds_of_the_counting_clock() {
        let document = serde_json::json!({ "phases": [
            { "name": "enable", "walls_s": [0.001, 0.002] }, { "name": "get", "walls_s": [] }] });
        assert_eq!(instructions_of(&document, "enable").unwrap(), [1_000_000, 2_000_000]);
        assert!(instructions_of(&document, "get").unwrap_err().contains("no times"));
        assert!(instructions_of(&document, "clear").unwrap_err().contains("\"clear\""));
    }
}
