//! [`Modules`]: the programs and libraries that were mapped, each read once: its unwind information and its symbols.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module as UnwindModule};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadRef, SymbolKind};

use crate::event::CodeFile;

/// The longest section that is read: several times that of the largest known program.
const MAX_SECTION_BYTES: u64 = 1 << 30;

/// The largest file whose symbols are read.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// The number of a module in [`Modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId(u32);

/// All modules of all processes.
#[derive(Default)]
pub struct Modules {
    modules: Vec<Module>,
    /// By path and inode.
    numbers: HashMap<(PathBuf, u64), ModuleId>,
}

struct Module {
    path: PathBuf,
    /// `None` for a file that cannot be read, or is no 64-bit ELF file.
    elf: Option<Elf>,
}

struct Elf {
    file: File,
    segments: Vec<Segment>,
    sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
    /// In the order of their addresses; read when a function is named.
    symbols: OnceCell<Vec<Symbol>>,
}

/// A part of the file that is loaded.
struct Segment {
    offset: u64,
    file_bytes: u64,
    address: u64,
}

struct Symbol {
    address: u64,
    /// 0 where the file does not say.
    bytes: u64,
    name: String,
}

/// A module at an address of a process.
pub struct PlacedModule {
    pub id: ModuleId,
    /// What is added to the addresses in the file; wraps.
    pub bias: u64,
    pub unwind: UnwindModule<Arc<[u8]>>,
}

impl Modules {
    /// The module of a mapping, for the unwinder. The file is opened in the root directory of the process, and only if it is the
    /// file that was mapped.
    pub fn place(&mut self, process: u32, addresses: &Range<u64>, file: &CodeFile) -> PlacedModule {
        let id = self.number(process, addresses, file);
        let elf = self.modules[id.0 as usize].elf.as_ref();
        let bias = elf.map_or(addresses.start, |elf| elf.bias(addresses, file.offset));
        let sections = elf.map(|elf| elf.sections.clone()).unwrap_or_default();
        let unwind = UnwindModule::new(file.path.display().to_string(), addresses.clone(), bias, sections);
        PlacedModule { id, bias, unwind }
    }

    /// The name of the function at an address of the file; the name of the file in brackets where it has no symbol.
    pub fn name(&self, id: ModuleId, address: u64) -> String {
        let module = &self.modules[id.0 as usize];
        let symbol = module.elf.as_ref().and_then(|elf| elf.symbol_at(address));
        symbol.map_or_else(|| format!("[{}]", file_name(&module.path)), |symbol| demangled(&symbol.name))
    }

    fn number(&mut self, process: u32, addresses: &Range<u64>, file: &CodeFile) -> ModuleId {
        let new = ModuleId(self.modules.len() as u32);
        let id = *self.numbers.entry((file.path.clone(), file.inode)).or_insert(new);
        if id == new {
            self.modules.push(Module { path: file.path.clone(), elf: None });
        }
        // A process that has ended may be the only one in whose root directory the path is that file; another may follow.
        let module = &mut self.modules[id.0 as usize];
        if module.elf.is_none() {
            module.elf = open(process, addresses, file).and_then(Elf::read);
        }
        id
    }
}

/// Opens the mapped file: by its mapping, which needs root and works for a file that was deleted; or in the root directory of its
/// process, or in pagelab's if the process has ended.
fn open(process: u32, addresses: &Range<u64>, file: &CodeFile) -> Option<File> {
    let mapping = format!("/proc/{process}/map_files/{:x}-{:x}", addresses.start, addresses.end);
    let inside = Path::new("/proc").join(process.to_string()).join("root");
    let inside = inside.join(file.path.strip_prefix("/").unwrap_or(&file.path));
    let open = |path: &Path| host::open_regular(path, Some(file.inode)).ok().flatten();
    open(Path::new(&mapping)).or_else(|| open(&inside)).or_else(|| open(&file.path))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.trim_end_matches(" (deleted)").to_string()
}

impl Elf {
    fn read(file: File) -> Option<Elf> {
        // Only what is needed is read: the file can be large.
        let cache = ReadCache::new(file.try_clone().ok()?);
        let object = object::File::parse(&cache).ok()?;
        let segments = object.segments().map(|segment| {
            let (offset, file_bytes) = segment.file_range();
            Segment { offset, file_bytes, address: segment.address() }
        });
        let segments = segments.collect();
        Some(Elf { file, segments, sections: sections(&object), symbols: OnceCell::new() })
    }

    /// What is added to the addresses of the file where `mapped_offset` is mapped at these addresses.
    fn bias(&self, addresses: &Range<u64>, mapped_offset: u64) -> u64 {
        // The mapping begins at the page of its segment.
        let mapped_end = mapped_offset.saturating_add(addresses.end - addresses.start);
        let covers = |segment: &&Segment| {
            mapped_offset < segment.offset.saturating_add(segment.file_bytes) && mapped_end > segment.offset
        };
        let (address, offset) = self.segments.iter().find(covers).map_or((0, 0), |found| (found.address, found.offset));
        addresses.start.wrapping_sub(mapped_offset).wrapping_add(offset).wrapping_sub(address)
    }

    fn symbol_at(&self, address: u64) -> Option<&Symbol> {
        let symbols = self.symbols.get_or_init(|| symbols_of(&self.file).unwrap_or_default());
        let after = symbols.partition_point(|symbol| symbol.address <= address);
        // The symbols that begin at the last address below may differ in length.
        let last = symbols[..after].last()?.address;
        let mut found = symbols[..after].iter().rev().take_while(|symbol| symbol.address == last);
        found.find(|symbol| symbol.bytes == 0 || address - symbol.address < symbol.bytes)
    }
}

fn sections<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    let range = |name: &str| {
        let section = object.section_by_name(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    };
    let data = |name: &str| {
        let section = object.section_by_name(name).filter(|section| section.size() <= MAX_SECTION_BYTES)?;
        section.data().ok().map(Arc::from)
    };
    ExplicitModuleSectionInfo {
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        debug_frame: data(".debug_frame"),
        ..ExplicitModuleSectionInfo::default()
    }
}

/// The functions of a file, of its debug file if it is stripped, or else those that it exports. `None` if it cannot be read.
fn symbols_of(file: &File) -> Option<Vec<Symbol>> {
    let bytes = whole(file)?;
    let object = object::File::parse(&bytes[..]).ok()?;
    let own = functions(object.symbols());
    let found = if own.is_empty() { symbols_of_debug_file(&object).unwrap_or_default() } else { own };
    Some(if found.is_empty() { functions(object.dynamic_symbols()) } else { found })
}

/// The symbols of the file that a distribution's package of debug symbols installs.
fn symbols_of_debug_file(object: &object::File<'_>) -> Option<Vec<Symbol>> {
    let id = object.build_id().ok()??;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = hex.split_at_checked(2)?;
    let path = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
    let bytes = whole(&host::open_regular(Path::new(&path), None).ok()??)?;
    Some(functions(object::File::parse(&bytes[..]).ok()?.symbols()))
}

/// The content of a file: names are read much faster from memory.
fn whole(file: &File) -> Option<Vec<u8>> {
    let bytes = file.metadata().ok().filter(|about| about.len() <= MAX_FILE_BYTES)?.len();
    let mut content = vec![0; bytes as usize];
    file.read_exact_at(&mut content, 0).ok()?;
    Some(content)
}

fn functions<'data>(symbols: impl Iterator<Item = impl ObjectSymbol<'data>>) -> Vec<Symbol> {
    let is_function = |symbol: &_| {
        let kind = ObjectSymbol::kind(symbol);
        // Assembly functions often have no type.
        ObjectSymbol::is_definition(symbol) && kind == SymbolKind::Text
            || kind == SymbolKind::Unknown && ObjectSymbol::section_index(symbol).is_some()
    };
    let functions = symbols.filter(is_function).filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        Some(Symbol { address: symbol.address(), bytes: symbol.size(), name: name.into() })
    });
    let mut functions: Vec<Symbol> = functions.collect();
    functions.sort_by(|a, b| (a.address, a.bytes, &a.name).cmp(&(b.address, b.bytes, &b.name)));
    functions
}

/// The name that the programmer wrote.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = cpp_demangle::Symbol::new(name).ok().filter(|_| name.starts_with("_Z"));
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| name.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use testing::{Random, mutation};

    use super::*;
    use crate::event::{Caller, CodeMapping, Event, PageFault, Timed};
    use crate::names::GeneratedNames;
    use crate::registers::Registers;
    use crate::unwinding::Unwinding;

    /// The place of a file's text in memory.
    const TEXT: Range<u64> = 0x5000_0000..0x5100_0000;

    /// The names of the functions of a stack that begins in this file, with random words on it.
    fn unwound(path: &Path, random: &mut Random) -> Vec<String> {
        let inode = std::fs::metadata(path).unwrap().ino();
        let file = CodeFile { path: path.into(), inode, offset: random.below(4) << 12 };
        let mut unwinding = Unwinding::default();
        let word = |random: &mut Random| match random.below(3) {
            0 => TEXT.start + random.below(TEXT.end - TEXT.start),
            1 => 0x7000 + 8 * random.below(64),
            _ => random.below(u64::MAX),
        };
        let stack = (0..64).flat_map(|_| word(random).to_ne_bytes()).collect();
        let instruction = TEXT.start + random.below(0x4_0000);
        let registers = Registers { instruction, stack: 0x7000, frame: word(random), link: word(random) };
        let fault = PageFault { task: 1, address: 0, is_in_kernel: false, caller: Caller { registers, stack } };
        for event in [Event::Code(CodeMapping { addresses: TEXT, file: Some(file) }), Event::Fault(fault)] {
            if let Some(step) = unwinding.step(Timed { time_ns: 1, process: u32::MAX, event })
                && let crate::event::Step::Touched(_, _, stack) = step.event
            {
                return unwinding.names(stack, &GeneratedNames::default());
            }
        }
        Vec::new()
    }

    #[test]
    fn damaged_files_are_read_without_a_panic() {
        let whole = std::fs::read("/bin/true").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random::new();
        for number in 0..mutation::count(300) {
            // The headers, which have offsets and lengths, as often as the rest.
            let (mut head, mut rest) = (whole[..0x400].to_vec(), whole[0x400..].to_vec());
            for _ in 0..random.below(8) {
                let part = if random.below(2) == 0 { &mut head } else { &mut rest };
                random.change_bytes(part);
            }
            let bytes = [head, rest].concat();
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, &bytes).unwrap();
            assert!(!unwound(&path, &mut random).is_empty());
        }
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(
            demangled("_ZNSt6vectorIdSaIdEE14_M_fill_insertEv"),
            "std::vector<double, std::allocator<double> >::_M_fill_insert"
        );
        assert_eq!(demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangled("main.planted"), "main.planted");
        assert_eq!(file_name(Path::new("/tmp/a;b (deleted)")), "a;b");
    }
}
