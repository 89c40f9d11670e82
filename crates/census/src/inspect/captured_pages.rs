//! [`Pages`]: the file of a capture with the facts that only a running kernel reports, `pagelab.capture/1`
//! (docs/reference/formats/capture.md).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead};

use host::maps::{MAX_USER_END, MalformedLine};
use host::read::{escaped_line, next_line};
use policy::census::{Backing, Folio, Mapping, Region as Run};
use policy::inspect::{FileSystem, MemoryLimit, TlbRuns, VmaFacts};
use policy::size::PageSize;

use super::subject::{PresentMemory, Subject};
use crate::CensusError;

/// The first line of the file.
pub const VERSION: &str = "pagelab.capture/1";

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pages {
    /// Path of the program.
    pub program: Option<String>,
    /// Whether there are runs of pages; otherwise the sums of smaps are the only source.
    pub is_by_page: bool,
    /// Whether folios behind base-page PTEs were visible.
    pub sees_folios: bool,
    /// Whether the process had a KVM virtual machine open.
    pub has_guest: bool,
    /// Whether the process is known to have no children.
    pub has_no_children: bool,
    /// Whether its program was built by Go.
    pub is_go: bool,
    /// Devices whose files are shared memory.
    pub shmem_devices: Vec<(u32, u32)>,
    /// Mounted file systems by their devices.
    pub file_systems: BTreeMap<(u32, u32), FileSystem>,
    /// The limit of its memory control group.
    pub memory_limit: Option<MemoryLimit>,
    /// Stack pointers of its threads, sorted.
    pub stacks: Vec<u64>,
    /// Guards inside mappings, in address order.
    pub guards: Vec<(u64, u64)>,
    /// Sizes of which the system had an anonymous folio; `None` where the kernel did not report it.
    pub folios_of_system: Option<Vec<PageSize>>,
    /// Runs of pages, in address order.
    pub runs: Vec<Run>,
    /// Memory by the size of the TLB entry that could hold it, by the first address of the mapping, in address order.
    pub tlb_runs: Vec<(u64, TlbRuns)>,
}

const BACKINGS: [(&str, Backing); 5] = [
    ("anonymous", Backing::Anonymous),
    ("hugetlb", Backing::Hugetlb),
    ("shmem", Backing::Shmem),
    ("file", Backing::File),
    ("zero", Backing::Zero),
];

impl Pages {
    /// The pages of a process; `vmas` are its mappings, cut at guards.
    pub fn of(subject: &dyn Subject, vmas: &[VmaFacts]) -> Result<Pages, CensusError> {
        let mut pages = Pages {
            program: subject.program(),
            is_by_page: subject.is_by_page(),
            sees_folios: subject.sees_folios(),
            has_guest: subject.has_guest(),
            has_no_children: subject.has_children() == Some(false),
            is_go: subject.is_go(),
            stacks: subject.stacks(),
            ..Pages::default()
        };
        let transparent = &subject.sizes().transparent;
        pages.folios_of_system = Some(transparent.iter().copied().filter(|size| subject.may_have(*size)).collect());
        for vma in vmas {
            if vma.is_shmem && !pages.shmem_devices.contains(&vma.device) {
                pages.shmem_devices.push(vma.device);
            }
            if let Some(on) = &vma.file_system {
                pages.file_systems.insert(vma.device, on.clone());
            }
            if vma.part == policy::inspect::VmaPart::Guard {
                pages.guards.push((vma.start, vma.end));
            }
            if pages.is_by_page {
                let found = subject.present_memory(std::slice::from_ref(vma), vma.start, vma.end)?;
                for found in found {
                    pages.runs.extend(found.runs);
                    pages.tlb_runs.extend(found.tlb_runs.map(|runs| (vma.start, runs)));
                }
            }
        }
        Ok(pages)
    }

    /// Present memory between two addresses of one mapping.
    pub fn present_memory(&self, start: u64, end: u64) -> PresentMemory {
        let first = self.runs.partition_point(|run| run.end <= start);
        let inside = self.runs[first..].iter().take_while(|run| run.start < end);
        let runs = inside.map(|run| Run { start: run.start.max(start), end: run.end.min(end), ..*run }).collect();
        let at = self.tlb_runs.binary_search_by_key(&start, |(start, _)| *start);
        PresentMemory { runs, tlb_runs: at.ok().map(|at| self.tlb_runs[at].1) }
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = format!("{VERSION}\n");
        let mut line = |line: std::fmt::Arguments| {
            let _ = writeln!(text, "{line}");
        };
        if let Some(program) = &self.program {
            line(format_args!("program {}", program.replace('\n', " ")));
        }
        for (is, word) in [
            (self.is_by_page, "by-page"),
            (self.sees_folios, "sees-folios"),
            (self.has_guest, "has-guest"),
            (self.has_no_children, "has-no-children"),
            (self.is_go, "is-go"),
        ] {
            if is {
                line(format_args!("{word}"));
            }
        }
        if let Some(sizes) = &self.folios_of_system {
            let sizes: Vec<String> = sizes.iter().map(|size| size.bytes().to_string()).collect();
            line(format_args!("folios-of-system {}", sizes.join(" ")));
        }
        self.shmem_devices.iter().for_each(|(major, minor)| line(format_args!("shmem {major} {minor}")));
        for ((major, minor), on) in &self.file_systems {
            let huge = on.huge.as_ref().map_or(String::new(), |huge| format!(" {huge}"));
            line(format_args!("file-system {major} {minor} {}{huge}", on.name));
        }
        if let Some(MemoryLimit { group, limit_bytes, charged_bytes, reached }) = &self.memory_limit {
            let limit = limit_bytes.map_or("none".to_string(), |bytes| bytes.to_string());
            line(format_args!("memory-limit {limit} {charged_bytes} {reached} {}", group.replace('\n', " ")));
        }
        self.stacks.iter().for_each(|stack| line(format_args!("stack {stack:x}")));
        self.guards.iter().for_each(|(start, end)| line(format_args!("guard {start:x} {end:x}")));
        for run in &self.runs {
            let backing =
                BACKINGS.iter().find(|(_, backing)| *backing == run.mapping.backing).map_or("", |known| known.0);
            let folio = match run.mapping.folio {
                Folio::Unknown => "unknown".to_string(),
                Folio::Whole(size) => format!("whole {}", size.bytes()),
                Folio::Part(size) => format!("part {}", size.bytes()),
            };
            line(format_args!("run {:x} {:x} {backing} {} {folio}", run.start, run.end, run.mapping.leaf.bytes()));
        }
        for (start, runs) in &self.tlb_runs {
            let TlbRuns { k16_bytes, k32_bytes, k64_bytes, misplaced_bytes, in_place_bytes } = runs;
            let in_place = in_place_bytes.map(|bytes| format!(" {bytes}")).unwrap_or_default();
            line(format_args!("tlb {start:x} {k16_bytes} {k32_bytes} {k64_bytes} {misplaced_bytes}{in_place}"));
        }
        text
    }

    /// Reads the file of a process on a kernel with this base page. `path` is used in errors, and `failed` makes the error of a
    /// failed read.
    pub fn read(
        mut text: impl BufRead,
        base: PageSize,
        path: &str,
        failed: impl Fn(io::Error) -> CensusError,
    ) -> Result<Pages, CensusError> {
        let mut reading = Reading { pages: Pages::default(), base, tlb_bytes: 0 };
        let (mut line, mut expected) = (Vec::new(), VERSION);
        while next_line(&mut text, &mut line).map_err(&failed)? {
            let line = escaped_line(&line);
            let understood = match expected {
                VERSION => (line == VERSION).then_some(()),
                _ => reading.add(&line),
            };
            understood.ok_or_else(|| MalformedLine::new(path, expected, &line))?;
            expected = LINE;
        }
        match expected {
            VERSION => Err(MalformedLine::new(path, VERSION, "").into()),
            _ => Ok(reading.pages),
        }
    }
}

/// What every line except the first must be.
const LINE: &str = "a line of pagelab.capture/1, with ascending user-space addresses in multiples of the base page";
/// The most runs of pages; memory is allocated in proportion to their number.
const MAX_RUNS: usize = 16 << 20;

/// The state of reading a file.
struct Reading {
    pages: Pages,
    base: PageSize,
    /// The sum of all TLB figures, which must fit in 64 bits, so that later sums do too.
    tlb_bytes: u64,
}

impl Reading {
    /// The addresses of a range, if they are valid.
    fn range<'a>(&self, words: &mut impl Iterator<Item = &'a str>) -> Option<(u64, u64)> {
        let (start, end) = (address(words.next())?, address(words.next())?);
        let is_range = start < end && end <= MAX_USER_END && (start | end).is_multiple_of(self.base.bytes());
        is_range.then_some((start, end))
    }

    /// Parses a line; `None` where that is not possible.
    fn add(&mut self, line: &str) -> Option<()> {
        let pages = &mut self.pages;
        let mut words = line.split(' ');
        match words.next()? {
            "program" => pages.program = Some(line.strip_prefix("program ")?.to_string()),
            "by-page" => pages.is_by_page = true,
            "sees-folios" => pages.sees_folios = true,
            "has-guest" => pages.has_guest = true,
            "has-no-children" => pages.has_no_children = true,
            "is-go" => pages.is_go = true,
            "folios-of-system" => {
                let sizes = words.filter(|word| !word.is_empty()).map(|word| size(Some(word)));
                pages.folios_of_system = Some(sizes.collect::<Option<Vec<PageSize>>>()?);
            }
            "shmem" => pages.shmem_devices.push(device(&mut words)?),
            "file-system" => {
                let device = device(&mut words)?;
                let on = FileSystem { name: words.next()?.to_string(), huge: words.next().map(String::from) };
                pages.file_systems.insert(device, on);
            }
            "memory-limit" => {
                let limit_bytes =
                    Some(words.next()?).filter(|word| *word != "none").map(str::parse).transpose().ok()?;
                let (charged_bytes, reached) = (number(words.next())?, number(words.next())?);
                let group = words.collect::<Vec<_>>().join(" ");
                pages.memory_limit = Some(MemoryLimit { group, limit_bytes, charged_bytes, reached });
            }
            // A thread can have any number in its stack pointer.
            "stack" => {
                let stack = address(words.next())?;
                let is_next = pages.stacks.last().is_none_or(|last| *last <= stack);
                pages.stacks.push(is_next.then_some(stack)?);
            }
            "guard" => {
                let guard = self.range(&mut words)?;
                let is_next = self.pages.guards.last().is_none_or(|(_, end)| *end <= guard.0);
                self.pages.guards.push(is_next.then_some(guard)?);
            }
            "run" => {
                let (start, end) = self.range(&mut words)?;
                let mapping = mapping(&mut words)?;
                let runs = &mut self.pages.runs;
                let is_next = runs.last().is_none_or(|last| last.end <= start) && runs.len() < MAX_RUNS;
                runs.push(is_next.then_some(Run { start, end, mapping })?);
            }
            "tlb" => self.add_tlb_runs(&mut words)?,
            _ => return None,
        }
        Some(())
    }

    fn add_tlb_runs<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        let start = address(words.next())?;
        let runs = TlbRuns {
            k16_bytes: number(words.next())?,
            k32_bytes: number(words.next())?,
            k64_bytes: number(words.next())?,
            misplaced_bytes: number(words.next())?,
            in_place_bytes: words.next().map(|word| number(Some(word)).ok_or(())).transpose().ok()?,
        };
        let in_place_bytes = runs.in_place_bytes.unwrap_or(0);
        let figures = [runs.k16_bytes, runs.k32_bytes, runs.k64_bytes, runs.misplaced_bytes, in_place_bytes];
        self.tlb_bytes = figures.iter().try_fold(self.tlb_bytes, |sum, bytes| sum.checked_add(*bytes))?;
        let is_next = self.pages.tlb_runs.last().is_none_or(|(last, _)| *last < start);
        self.pages.tlb_runs.push(is_next.then_some((start, runs))?);
        Some(())
    }
}

fn address(word: Option<&str>) -> Option<u64> {
    u64::from_str_radix(word?, 16).ok()
}

fn number(word: Option<&str>) -> Option<u64> {
    word?.parse().ok()
}

fn size(word: Option<&str>) -> Option<PageSize> {
    PageSize::new(number(word)?).ok()
}

fn device<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(u32, u32)> {
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn mapping<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Mapping> {
    let name = words.next()?;
    let backing = BACKINGS.iter().find(|(known, _)| *known == name)?.1;
    let leaf = size(words.next())?;
    let folio = match words.next()? {
        "unknown" => Folio::Unknown,
        "whole" => Folio::Whole(size(words.next())?),
        "part" => Folio::Part(size(words.next())?),
        _ => return None,
    };
    Some(Mapping { backing, leaf, folio })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Pages, CensusError> {
        let failed = |error| CensusError::Io { path: "pages".into(), error };
        Pages::read(text.as_bytes(), PageSize::K4, "pages", failed)
    }

    #[test]
    fn reads_what_was_written() {
        let mapping = Mapping { backing: Backing::Shmem, leaf: PageSize::K4, folio: Folio::Part(PageSize::K64) };
        let zero = Mapping { backing: Backing::Zero, leaf: PageSize::M2, folio: Folio::Whole(PageSize::M2) };
        let pages = Pages {
            program: Some("/usr/bin/a b".into()),
            is_by_page: true,
            sees_folios: true,
            has_guest: true,
            has_no_children: true,
            is_go: true,
            shmem_devices: vec![(0, 1), (0, 24)],
            file_systems: BTreeMap::from([
                ((0, 24), FileSystem { name: "tmpfs".into(), huge: Some("advise".into()) }),
                ((8, 1), FileSystem { name: "ext4".into(), huge: None }),
            ]),
            memory_limit: Some(MemoryLimit {
                group: "/sys/fs/cgroup/a b".into(),
                limit_bytes: None,
                charged_bytes: 5,
                reached: 6,
            }),
            stacks: vec![0x7f00],
            guards: vec![(0x3000, 0x4000)],
            folios_of_system: Some(vec![PageSize::K64, PageSize::M2]),
            runs: vec![
                Run { start: 0x1000, end: 0x3000, mapping },
                Run { start: 0x200000, end: 0x400000, mapping: zero },
            ],
            tlb_runs: vec![(0x1000, TlbRuns::EMPTY)],
        };
        assert_eq!(read(&pages.text()).unwrap(), pages);
        assert_eq!(read(&Pages::default().text()).unwrap(), Pages::default());
        let part = pages.present_memory(0x2000, 0x201000);
        assert_eq!(
            part.runs.iter().map(|run| (run.start, run.end)).collect::<Vec<_>>(),
            [(0x2000, 0x3000), (0x200000, 0x201000)]
        );
    }

    #[test]
    fn rubbish_is_refused_with_its_line() {
        for line in [
            "x",
            "run 1000",
            "run 2000 1000 file 4096 unknown",
            "run 1000 2000 file 3 unknown",
            "run 1000 2000 tape 4096 unknown",
            "run 1000 1800 file 4096 unknown",
            "run 1000 fffffffffffff000 file 4096 unknown",
            "run 100000000000000 100000000001000 file 4096 unknown",
            "run 1000 3000 file 4096 unknown\nrun 2000 4000 file 4096 unknown",
            "run 2000 3000 file 4096 unknown\nrun 1000 2000 file 4096 unknown",
            "guard g 1000",
            "guard 2000 1000",
            "guard 2000 3000\nguard 1000 2000",
            "stack 2\nstack 1",
            "tlb 1000 0 0 0 0\ntlb 1000 0 0 0 0",
            "tlb 1000 18446744073709551615 1 0 0",
            "shmem 4294967296 0",
        ] {
            let error = read(&format!("{VERSION}\n{line}\n")).unwrap_err().to_string();
            assert!(error.contains("pages: ") && error.contains(line.lines().last().unwrap()), "{line}: {error}");
        }
        for text in ["", "\n", "pagelab.capture/2\n"] {
            assert!(read(text).unwrap_err().to_string().contains(VERSION), "{text:?}");
        }
    }
}
