//! [`recognise`]: finds the kind of a region by its names, files, addresses and shape.

use super::group::{GLIBC_ARENA_BYTES, RESERVE_BYTES};
use super::vma::VmaFacts;
use crate::census::VmaKind;
use crate::kind::{Allocator, FilePart, Kind};

/// Facts about the process that help to recognise a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Paths of the files mapped executable: the program and its libraries. Consecutive duplicates are removed.
    pub code_files: Vec<String>,
    /// Stack pointers of all threads except the main thread; empty if they cannot be read.
    pub stacks: Vec<u64>,
    /// Whether the process has a KVM virtual machine open.
    pub has_guest: bool,
    /// Whether this is a Go program.
    pub is_go: bool,
}

impl Surroundings {
    /// The surroundings for a process with these mappings and stack pointers.
    pub fn of(vmas: &[VmaFacts], stacks: Vec<u64>, has_guest: bool, is_go: bool) -> Surroundings {
        let code = vmas.iter().filter(|vma| vma.kind == VmaKind::PrivateFile && vma.is_executable());
        let mut code_files: Vec<String> = code.map(|vma| vma.name.clone()).collect();
        code_files.dedup();
        Surroundings { code_files, stacks, has_guest, is_go }
    }

    /// The path of the mapped library whose file name begins with `name`.
    fn library(&self, name: &str) -> Option<&str> {
        let file = |path: &'_ str| path.rsplit('/').next().is_some_and(|file| file.starts_with(name));
        self.code_files.iter().map(String::as_str).find(|path| file(path))
    }
}

/// The nearest mappings below and above a region. There may be a gap between them and the region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neighbours<'a> {
    /// The mapping before it.
    pub before: Option<&'a VmaFacts>,
    /// The mapping after it.
    pub after: Option<&'a VmaFacts>,
}

/// The kind of a region, and how it was recognised. `vmas` are its mappings.
pub fn recognise(vmas: &[VmaFacts], neighbours: Neighbours, around: &Surroundings) -> (Kind, String) {
    let Some(first) = vmas.first() else { return (Kind::Anonymous, String::new()) };
    if vmas.iter().any(VmaFacts::is_hugetlb) {
        let size = vmas.iter().find_map(|vma| vma.smaps_info?.hugetlb);
        return (Kind::Hugetlb { size }, "its mapping belongs to a hugetlb pool".into());
    }
    match first.kind {
        VmaKind::Special => (Kind::Special { name: first.name.clone() }, "named by the kernel".into()),
        VmaKind::Stack => (Kind::Stack, "named by the kernel".into()),
        VmaKind::Shared if first.is_shmem => shared_memory(first),
        VmaKind::Shared | VmaKind::PrivateFile => file(first),
        VmaKind::Anonymous => bss(first, neighbours.before)
            .or_else(|| moved_text(vmas, neighbours))
            .unwrap_or_else(|| anonymous(vmas, around)),
    }
}

fn shared_memory(vma: &VmaFacts) -> (Kind, String) {
    if vma.is_executable() {
        return (Kind::Jit, format!("executable shared memory ({})", vma.name));
    }
    (Kind::SharedMemory { name: vma.name.clone() }, "its file is in shared memory".into())
}

fn file(vma: &VmaFacts) -> (Kind, String) {
    let part = match vma {
        _ if vma.is_executable() => FilePart::Text,
        _ if vma.is_writable() && !vma.shared => FilePart::Data,
        _ => FilePart::Content,
    };
    if vma.name.starts_with("/memfd:") && part == FilePart::Text {
        return (Kind::Jit, format!("executable memory of a memfd ({})", vma.name));
    }
    (Kind::File { path: vma.name.clone(), part }, "its file".into())
}

/// Recognises the .bss section of a file: data that the file does not contain, directly after the data that it does.
fn bss(first: &VmaFacts, before: Option<&VmaFacts>) -> Option<(Kind, String)> {
    let data = before.filter(|before| before.end == first.start && before.kind == VmaKind::PrivateFile)?;
    let is_data = data.is_writable() && first.is_writable() && first.name.is_empty() && !data.is_hugetlb();
    let kind = || Kind::File { path: data.name.clone(), part: FilePart::Data };
    is_data.then(|| (kind(), "it follows the file's data, without being in the file (.bss)".into()))
}

/// Recognises code that a program has moved to anonymous memory to get large pages for it (`node --use-largepages`).
/// The addresses do not change, so the mappings directly below and above it still map the program's file.
fn moved_text(vmas: &[VmaFacts], neighbours: Neighbours) -> Option<(Kind, String)> {
    let (before, after) = (neighbours.before?, neighbours.after?);
    let is_inside = before.end == vmas.first()?.start && after.start == vmas.last()?.end;
    let of_file = |vma: &VmaFacts| (vma.kind == VmaKind::PrivateFile).then_some((vma.device, vma.inode));
    let is_same_file = of_file(before).is_some() && of_file(before) == of_file(after);
    let is_code = vmas.iter().any(VmaFacts::is_executable);
    let kind = || Kind::MovedText { path: before.name.clone() };
    let how = "anonymous and executable, between mappings of one file: the program has moved its code there";
    (is_inside && is_same_file && is_code).then(|| (kind(), how.into()))
}

fn anonymous(vmas: &[VmaFacts], around: &Surroundings) -> (Kind, String) {
    if vmas.iter().any(|vma| vma.name == "[heap]") {
        return (Kind::Heap, "named by the kernel: the memory of brk".into());
    }
    let holds = |stack: &&u64| vmas.iter().any(|vma| (vma.start..vma.end).contains(stack));
    if vmas.len() <= 2
        && vmas[0].is_inaccessible()
        && vmas[0].length_bytes() < RESERVE_BYTES
        && let Some(stack) = around.stacks.iter().find(holds)
    {
        return (Kind::ThreadStack, format!("the stack pointer of a thread is in it ({stack:#x})"));
    }
    if vmas.iter().all(VmaFacts::is_inaccessible) {
        return (Kind::Reserved, "no access (PROT_NONE)".into());
    }
    named(vmas).or_else(|| by_shape(vmas, around)).unwrap_or((Kind::Anonymous, String::new()))
}

/// Recognises a region by a name that the program gave it (PR_SET_VMA_ANON_NAME). The longest named mapping decides.
fn named(vmas: &[VmaFacts]) -> Option<(Kind, String)> {
    let longest = vmas.iter().filter(|vma| vma.given_name().is_some()).max_by_key(|vma| vma.length_bytes())?;
    let name = longest.given_name()?;
    let kind = match name {
        _ if name.starts_with("Go: heap") => Kind::GoHeap,
        _ if name.starts_with("jemalloc") => Kind::Arena(Allocator::Jemalloc),
        _ if name.starts_with("tcmalloc") => Kind::Arena(Allocator::Tcmalloc),
        _ if name.starts_with("mimalloc") => Kind::Arena(Allocator::Mimalloc),
        _ if name.trim() == "glibc: malloc arena" => Kind::Arena(Allocator::Glibc),
        _ => Kind::Named { name: name.to_string() },
    };
    Some((kind, format!("the program named it {name:?}")))
}

fn by_shape(vmas: &[VmaFacts], around: &Surroundings) -> Option<(Kind, String)> {
    let (first, last) = (vmas.first()?, vmas.last()?);
    if let Some(code) = vmas.iter().find(|vma| vma.is_executable()) {
        return Some((Kind::Jit, format!("anonymous and executable at {:#x}", code.start)));
    }
    if is_glibc_arena(vmas) {
        let how = "64M at a multiple of 64M, writable at the start and inaccessible after it: glibc's HEAP_MAX_SIZE";
        return Some((Kind::Arena(Allocator::Glibc), how.into()));
    }
    let length = last.end - first.start;
    if first.start >> 40 == 0 && (first.start >> 32) & 0xff == 0xc0 {
        return Some((Kind::GoHeap, "it is where Go puts its heap (from 0xc000000000 on)".into()));
    }
    // Since Go 1.26 the heap begins at a random address.
    if around.is_go && first.start.is_multiple_of(GO_ARENA_BYTES) {
        let how = "the program was made by Go (.go.buildinfo), and this begins at a multiple of its arenas' 64M";
        return Some((Kind::GoHeap, how.into()));
    }
    if let Some(library) = around.library("libjvm.so")
        && length >= JVM_HEAP_BYTES
        && first.start < 32 << 30
    {
        return Some((Kind::JvmHeap, format!("{library} is mapped, and compressed pointers reach it (below 32G)")));
    }
    if around.has_guest && length >= GUEST_BYTES {
        return Some((Kind::GuestMemory, "the process has a virtual machine of KVM, and this is at least 16M".into()));
    }
    let libraries = [
        ("libjemalloc", Allocator::Jemalloc, JEMALLOC_BYTES),
        ("libmimalloc", Allocator::Mimalloc, MIMALLOC_BYTES),
        ("libtcmalloc", Allocator::Tcmalloc, TCMALLOC_BYTES),
    ];
    libraries.into_iter().find_map(|(name, allocator, unit)| {
        let library = around.library(name)?;
        let is_multiple = length >= unit && length.is_multiple_of(unit);
        is_multiple.then(|| {
            let unit = crate::size::format_bytes(unit);
            (Kind::Arena(allocator), format!("{library} is mapped, and this is a multiple of its {unit}: likely"))
        })
    })
}

/// Size of Go's heap arenas (`heapArenaBytes`, runtime/malloc.go, on 64-bit Linux).
const GO_ARENA_BYTES: u64 = 64 << 20;
/// The smallest region that is recognised as a Java heap.
const JVM_HEAP_BYTES: u64 = 8 << 20;
/// The smallest region that is recognised as guest memory.
pub(super) const GUEST_BYTES: u64 = 16 << 20;
/// jemalloc maps extents in multiples of this (jemalloc 5: HUGEPAGE).
const JEMALLOC_BYTES: u64 = 2 << 20;
/// Size of mimalloc's segments (mimalloc 2: MI_SEGMENT_SIZE).
const MIMALLOC_BYTES: u64 = 32 << 20;
/// gperftools requests at least this much from the system at a time (kMinSystemAlloc).
const TCMALLOC_BYTES: u64 = 1 << 20;

/// Whether the mappings have the shape of a glibc arena of a thread other than the main thread.
fn is_glibc_arena(vmas: &[VmaFacts]) -> bool {
    let (Some(first), Some(last)) = (vmas.first(), vmas.last()) else { return false };
    first.start.is_multiple_of(GLIBC_ARENA_BYTES)
        && last.end - first.start == GLIBC_ARENA_BYTES
        && first.is_writable()
        && last.is_inaccessible()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::prot;
    use crate::inspect::VmaPart;

    const M: u64 = 1 << 20;

    fn vma(start: u64, end: u64, kind: VmaKind, inode: u64) -> VmaFacts {
        VmaFacts {
            start,
            end,
            kind,
            protection: prot::READ | prot::EXEC,
            shared: false,
            device: (8, 1),
            inode,
            offset: 0,
            name: if inode == 0 { String::new() } else { "/usr/bin/node".into() },
            is_shmem: false,
            file_system: None,
            part: VmaPart::First,
            smaps_info: None,
        }
    }

    #[test]
    fn executable_memory_between_mappings_of_one_file_is_moved_text_and_not_a_jit() {
        let code = [vma(2 * M, 8 * M, VmaKind::Anonymous, 0)];
        let (below, above) = (vma(M, 2 * M, VmaKind::PrivateFile, 7), vma(8 * M, 9 * M, VmaKind::PrivateFile, 7));
        let kind = |before: &VmaFacts, after: &VmaFacts| {
            let neighbours = Neighbours { before: Some(before), after: Some(after) };
            recognise(&code, neighbours, &Surroundings::default()).0
        };
        assert_eq!(kind(&below, &above), Kind::MovedText { path: "/usr/bin/node".into() });
        assert_eq!(kind(&below, &VmaFacts { inode: 8, ..above.clone() }), Kind::Jit);
        assert_eq!(kind(&below, &VmaFacts { start: 8 * M + 4096, ..above.clone() }), Kind::Jit);
        assert_eq!(kind(&VmaFacts { kind: VmaKind::Anonymous, inode: 0, ..below }, &above), Kind::Jit);
        assert_eq!(recognise(&code, Neighbours::default(), &Surroundings::default()).0, Kind::Jit);
    }
}
