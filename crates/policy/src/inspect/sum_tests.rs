//! The removable causes of any region add up to its memory that could be larger.

use proptest::prelude::*;

use super::*;
use crate::call::prot;
use crate::census::{Backing, Census, Folio, Mapping, Region as Run, VmaKind};
use crate::size::PageSize;

const PAGE: u64 = 4096;
/// Where regions begin: a multiple of all sizes.
const PLACE: u64 = 1 << 30;

fn mappings() -> Vec<Mapping> {
    let (k4, k64, m2) = (PageSize::K4, PageSize::K64, PageSize::M2);
    let folios =
        [Folio::Unknown, Folio::Whole(k4), Folio::Whole(k64), Folio::Whole(m2), Folio::Part(k64), Folio::Part(m2)];
    let backings = [Backing::Anonymous, Backing::Shmem, Backing::File, Backing::Zero];
    let small = backings.into_iter().flat_map(|backing| folios.map(|folio| Mapping { backing, leaf: k4, folio }));
    small.chain([Mapping { backing: Backing::Anonymous, leaf: m2, folio: Folio::Whole(m2) }]).collect()
}

/// A mapping of this many pages, and its memory: for each run the pages before it, its pages, and how they are mapped.
#[derive(Clone, Debug)]
struct MadeVma {
    pages: u64,
    protection: u64,
    flags: &'static str,
    runs: Vec<(u64, u64, Mapping)>,
}

fn made_vma() -> impl Strategy<Value = MadeVma> {
    let run = (0u64..300, 1u64..700, proptest::sample::select(mappings()));
    let flags = ["", "hg", "nh", "hg um", "hg lo"];
    (1u64..1500, 0u64..4, proptest::sample::select(flags.to_vec()), proptest::collection::vec(run, 0..6)).prop_map(
        |(pages, protection, flags, runs)| MadeVma {
            pages: if protection == 0 { pages.div_ceil(100) } else { pages },
            protection: if protection == 0 { 0 } else { prot::READ | prot::WRITE },
            flags,
            runs,
        },
    )
}

/// How the memory was read, and under which settings.
#[derive(Clone, Debug)]
struct Setting {
    kind: VmaKind,
    offset_pages: u64,
    word: &'static str,
    by_page: bool,
    may_have: bool,
    misplaced_pages: Option<u64>,
    windows: bool,
    shared_bytes: u64,
}

fn setting() -> impl Strategy<Value = Setting> {
    let kinds = [VmaKind::Anonymous, VmaKind::Anonymous, VmaKind::Shared, VmaKind::PrivateFile, VmaKind::Stack];
    let words = proptest::sample::select(vec!["always", "madvise", "never"]);
    let misplaced = proptest::option::of(0u64..600);
    (proptest::sample::select(kinds.to_vec()), 0u64..3, words, any::<[bool; 3]>(), misplaced, 0u64..2).prop_map(
        |(kind, offset_pages, word, [by_page, may_have, windows], misplaced_pages, shared)| Setting {
            kind,
            offset_pages,
            word,
            by_page,
            may_have,
            misplaced_pages,
            windows,
            shared_bytes: shared << 12,
        },
    )
}

/// The mappings of a region, each with its memory.
fn laid_out(first_page: u64, made_vmas: &[MadeVma], setting: &Setting) -> (Vec<VmaFacts>, Vec<Vec<Run>>) {
    let (mut at, mut vmas, mut memory) = (PLACE + first_page * PAGE, Vec::new(), Vec::new());
    for made_vma in made_vmas {
        let (start, end) = (at, at + made_vma.pages * PAGE);
        let (mut next, mut runs) = (start, Vec::new());
        for (hole, pages, mapping) in &made_vma.runs {
            let from = (next + hole * PAGE).next_multiple_of(mapping.leaf.bytes());
            let to = from + (pages * PAGE).next_multiple_of(mapping.leaf.bytes());
            if to <= end {
                runs.push(Run { start: from, end: to, mapping: *mapping });
                next = to;
            }
        }
        let is_file = matches!(setting.kind, VmaKind::Shared | VmaKind::PrivateFile);
        vmas.push(VmaFacts {
            start,
            end,
            kind: setting.kind,
            protection: made_vma.protection,
            shared: setting.kind == VmaKind::Shared,
            device: (0, 1),
            inode: u64::from(is_file),
            offset: if is_file { start - PLACE + setting.offset_pages * PAGE } else { 0 },
            name: if is_file { "/memfd:x (deleted)".into() } else { String::new() },
            is_shmem: is_file,
            file_system: None,
            part: VmaPart::First,
            smaps_info: Some(SmapsInfo {
                flags: VmFlags::of(made_vma.flags),
                shared_bytes: setting.shared_bytes,
                ..SmapsInfo::default()
            }),
        });
        memory.push(runs);
        at = end;
    }
    (vmas, memory)
}

/// What is seen of a region, and its causes.
fn inspected(vmas: &[VmaFacts], memory: &[Vec<Run>], setting: &Setting) -> (RegionMemory, Vec<Explained>) {
    let (start, end) = (vmas[0].start, vmas[vmas.len() - 1].end);
    let has_slot = |size: &PageSize| size.align_up(start).is_some_and(|first| first + size.bytes() <= end);
    let bounds = RegionBounds {
        start,
        end,
        target: [PageSize::M2, PageSize::K64].into_iter().find(has_slot),
        may_have: setting.may_have,
        base: PageSize::K4,
        pmd: Some(PageSize::M2),
        window: setting.windows.then_some(PageSize::M2),
    };
    let mut seen = RegionMemory::default();
    for (at, (vma, runs)) in vmas.iter().zip(memory).enumerate() {
        if setting.by_page {
            let tlb_runs =
                setting.misplaced_pages.map(|pages| TlbRuns { misplaced_bytes: pages * PAGE, ..TlbRuns::default() });
            seen.add(&bounds, at, vma, runs, tlb_runs);
        } else {
            let mut sums = Census::default();
            runs.iter().for_each(|run| sums.add(run.mapping, run.length_bytes()));
            seen.add_sums(&bounds, at, vma, &sums);
        }
    }
    let path = |name: &str| format!("{}/{name}", crate::judge::THP);
    let settings =
        [(path("enabled"), setting.word.into()), (path("shmem_enabled"), setting.word.replace("madvise", "advise"))];
    let (process, supply) = (Process::default(), Supply { settings: settings.into(), ..Supply::default() });
    let (base, pmd) = (PageSize::K4, Some(PageSize::M2));
    let context =
        Context { process: &process, supply: &supply, base, pmd, sees_folios: true, runtimes: &[], kernel: None };
    let cuts: Vec<Cut> = cuts(vmas).collect();
    let causes = explain(&bounds, &Kind::Anonymous, vmas, &cuts, &seen, &context);
    (seen, causes)
}

proptest! {
    #![proptest_config(testing::properties(512))]
    #[test]
    fn bytes_that_could_be_larger_are_the_sum_of_their_causes(
        first_page in 0u64..600, made_vmas in proptest::collection::vec(made_vma(), 1..5), setting in setting(),
    ) {
        let (vmas, memory) = laid_out(first_page, &made_vmas, &setting);
        let (seen, causes) = inspected(&vmas, &memory, &setting);
        let removable: u64 = causes.iter().filter(|one| one.is_removable()).map(|one| one.bytes).sum();
        prop_assert_eq!(removable, seen.benefit.bytes, "{:#?}", causes);
        let present = seen.census.bytes_where(|mapping| mapping.backing != Backing::Zero);
        let explained: u64 = causes.iter().map(|one| one.bytes).sum();
        prop_assert!(explained <= present, "{explained} of {present} are explained: {causes:#?}");
    }
}
