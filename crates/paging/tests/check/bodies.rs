//! Bodies of the fuzz targets for arbitrary bytes; the tests run them on a few inputs.

use paging::check::{MAX_FAULTS, check_arena, live};
use paging::format::Kind;
use paging::format::named::Named;
use paging::{
    Action, Arena, ENTRY_BYTES, Event, Format, InputAddress, Node, OutputAddress, Rule, Tables, Visitor, with_format,
};

/// One format of each kind; the first byte of the input selects it.
const FORMATS: [&str; 20] = [
    "x86-64",
    "x86-64-la57+phys46+no-1g+no-nx",
    "arm64-4k-39",
    "arm64-4k-48+dbm",
    "arm64-4k-52+upper+bbm1",
    "arm64-16k-48+bbm2+poe",
    "arm64-64k-42",
    "arm64-64k-52",
    "arm64-s2-4k-40+no-xnx",
    "arm64-s2-16k-40+dbm",
    "sv39",
    "sv48+svnapot+svpbmt",
    "sv57+svnapot",
    "sv39x4+svnapot",
    "sv39-64k",
    "sv48-64k+svnapot",
    "arm64-64k-48+phys52",
    "arm64-4k-52+phys44",
    "arm64-s2-16k-40+phys40",
    "sv57-64k+phys40+svnapot",
];

const BASE: OutputAddress = OutputAddress(1 << 30);

/// Takes numbers from the front of arbitrary bytes; zeros at the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|_| self.u8()))
    }

    fn format(&mut self) -> Named {
        FORMATS[usize::from(self.u8()) % FORMATS.len()].parse().expect("these are names of formats")
    }
}

/// Decodes entries and checks that their kind, rules and fields agree with each other.
pub fn decode(data: &[u8]) {
    let mut bytes = Bytes(data);
    with_format!(bytes.format(), format => decode_entries(&format, &mut bytes));
}

fn decode_entries<F: Format>(format: &F, bytes: &mut Bytes<'_>) {
    let mut before = 0;
    while !bytes.0.is_empty() {
        let level = bytes.u8() % format.geometry().levels();
        let entry = bytes.u64();
        decode_entry(format, level, entry);
        let _ = (format.change(level, before, entry), format.change(level, entry, before));
        before = entry;
    }
}

fn decode_entry<F: Format>(format: &F, level: u8, entry: u64) {
    let kind = format.kind(level, entry);
    let mut rules = Vec::new();
    format.rules(level, entry, &mut |rule: Rule| rules.push(rule));
    assert!(kind != Kind::Illegal || !rules.is_empty(), "{format:?} {level} {entry:#x}: illegal without a rule");
    assert!(kind != Kind::Hole || rules.is_empty(), "{format:?} {level} {entry:#x}: {rules:?} of a hole");
    assert!(rules.iter().all(|rule| !rule.to_string().is_empty()));
    assert!(kind != Kind::Table || level > 0);
    for field in format.fields(level, entry) {
        assert!(field.low <= field.high && field.high < 64, "{field:?}");
        let value = entry << (63 - field.high) >> (63 - field.high + field.low);
        assert_eq!(value, field.value, "{format:?} {level} {entry:#x}: {field:?}");
    }
    match kind {
        Kind::Table => {
            let table = format.table_address(entry);
            assert!(table.is_aligned(format.geometry().page_bytes()));
            assert_eq!(format.table_address(format.table(table)), table);
            let _ = format.restrictions(entry);
        }
        Kind::Leaf => {
            let attributes = format.attributes(level, entry);
            let _ = (format.group_bits(level, entry), format.with_attributes(level, entry, attributes));
            let state = format.state(entry);
            assert_eq!(format.with_state(entry, state), entry, "{format:?} {level} {entry:#x}: {state:?}");
        }
        Kind::Hole | Kind::Illegal => {}
    }
}

/// Tables in arbitrary memory: numbers that are used directly or as pointers into it, repeated until there is room for
/// three tables.
fn tables<F: Format>(format: F, bytes: &mut Bytes<'_>) -> Tables<F> {
    let geometry = format.geometry();
    let root = match bytes.u8() {
        0 => OutputAddress(bytes.u64()),
        1 => BASE + bytes.u64() % (1 << 20),
        _ => BASE,
    };
    let length = geometry.table_bytes(geometry.root_level()) + 3 * geometry.page_bytes();
    let mut entries = Vec::new();
    while bytes.0.len() >= 9 && (entries.len() as u64) < length / ENTRY_BYTES {
        let tag = bytes.u8();
        let number = bytes.u64();
        entries.push(match tag % 4 {
            0 => number,
            1 => format.table(BASE + number % length / geometry.page_bytes() * geometry.page_bytes()),
            // Resembles a leaf in most cases.
            2 => format.table(BASE) | number,
            _ => 0,
        });
    }
    entries.push(0);
    let image: Vec<u8> = entries.iter().cycle().flat_map(|entry| entry.to_le_bytes()).take(length as usize).collect();
    Tables::in_arena(format, Arena::from_image(BASE, &image).expect("whole entries"), root)
}

/// Checks tables in arbitrary memory, and arbitrary steps.
pub fn check(data: &[u8]) {
    let mut bytes = Bytes(data);
    with_format!(bytes.format(), format => {
        if bytes.u8().is_multiple_of(2) {
            check_tables(&tables(format, &mut bytes));
        } else {
            check_steps(&format, &mut bytes);
        }
    });
}

fn check_tables<F: Format>(tables: &Tables<F>) {
    let geometry = tables.geometry();
    let report = check_arena(tables.format(), tables.arena(), tables.root());
    assert!(report.faults.len() <= MAX_FAULTS);
    let places = tables.arena().bytes() / geometry.page_bytes() + 2;
    assert!(report.tables <= places * u64::from(geometry.levels()), "{} tables", report.tables);
    assert!(report.faults.iter().all(|fault| !fault.to_string().is_empty() && geometry.is_canonical(fault.va)));
}

fn check_steps<F: Format>(format: &F, bytes: &mut Bytes<'_>) {
    let mut events = Vec::new();
    let (geometry, mut step) = (format.geometry(), 0);
    while !bytes.0.is_empty() {
        let (tag, level) = (bytes.u8(), bytes.u8() % geometry.levels());
        // Few positions, so that steps affect each other; sometimes any position.
        let place = u64::from(bytes.u8());
        let span = geometry.span(level);
        let near = geometry.extended(geometry.resolved(InputAddress((place % 64).wrapping_mul(span))));
        let va = if tag & 0x80 == 0 { near } else { InputAddress(bytes.u64()) };
        let table = BASE + place / 64 * geometry.page_bytes();
        let pa = table + (place % 64) * ENTRY_BYTES;
        let (old, new) = (entry(format, bytes, level), entry(format, bytes, level));
        events.push(match tag % 8 {
            0 => Event::Release { pa: table, bytes: geometry.page_bytes() },
            1 | 2 => Event::Invalidate { va, bytes: span << (tag >> 4 & 3), tables: tag & 8 == 0 },
            3 => Event::Invalidate { va, bytes: bytes.u64(), tables: true },
            _ => Event::Write { pa, va, level: level + (tag >> 6 & 1) * u8::from(place == 255), old, new },
        });
        step += 1;
    }
    let violations = live::check(format, &events);
    assert!(violations.iter().all(|violation| violation.step <= step && !violation.to_string().is_empty()));
}

fn entry<F: Format>(format: &F, bytes: &mut Bytes<'_>, level: u8) -> u64 {
    let (tag, number) = (bytes.u8(), u64::from(bytes.u8()));
    match tag % 4 {
        0 => 0,
        1 => format.table(BASE + number * format.geometry().page_bytes()),
        2 => bytes.u64(),
        _ => {
            let grouped = tag & 4 != 0 && format.group_bits_at(level) != 0;
            let attributes = format.attributes(level, number << 2);
            let leaf = format.leaf(level, attributes, grouped).unwrap_or(1);
            leaf | format.address_bits(level, number << format.geometry().shift(level).min(40), grouped)
        }
    }
}

/// Walks and translates in arbitrary memory and checks that both agree, also with the naive translation.
pub fn walk(data: &[u8]) {
    let mut bytes = Bytes(data);
    with_format!(bytes.format(), format => {
        let vas: [InputAddress; 6] = core::array::from_fn(|_| InputAddress(bytes.u64()));
        walk_tables(&tables(format, &mut bytes), &vas);
    });
}

fn walk_tables<F: Format>(tables: &Tables<F>, vas: &[InputAddress]) {
    let geometry = tables.geometry();
    let mut visited = Visited { leaves: Vec::new(), nodes: 0 };
    let _ = tables.walk_all(&mut visited);
    let _ = tables.census();
    assert!(visited.nodes <= 2 * (tables.arena().bytes() / ENTRY_BYTES + 1), "{} visits", visited.nodes);
    let canonical = vas.iter().map(|va| geometry.extended(geometry.resolved(*va)));
    for va in vas.iter().copied().chain(canonical) {
        let leaf = tables.leaf(va).ok().map(|found| (found.pa, found.level, found.entry));
        assert_eq!(leaf, slowly(tables, va), "{va:#x}");
        let translated = tables.translate(va).ok().map(|found| (found.pa, found.level));
        assert_eq!(translated, leaf.map(|(pa, level, _)| (pa, level)), "{va:#x}");
        let _ = tables.attributes(va);
    }
    for node in visited.leaves {
        let found = tables.leaf(node.va).expect("a walk found a leaf there");
        assert_eq!((found.level, found.entry), (node.level, node.entry), "{node:?}");
    }
}

/// The naive translation.
fn slowly<F: Format>(tables: &Tables<F>, va: InputAddress) -> Option<(OutputAddress, u8, u64)> {
    let (format, geometry) = (tables.format(), tables.geometry());
    let mut table = tables.root();
    for level in (0..geometry.levels()).rev().filter(|_| geometry.is_canonical(va)) {
        let entry = tables.arena().read(table.checked_add(geometry.index(level, va.0) * ENTRY_BYTES)?)?;
        match format.kind(level, entry) {
            Kind::Table => table = format.table_address(entry),
            Kind::Leaf => {
                let offset = va.0 & (geometry.span(level) - 1);
                let pa = OutputAddress(format.leaf_address(level, entry, va).0 | offset);
                return Some((pa, level, entry));
            }
            Kind::Hole | Kind::Illegal => return None,
        }
    }
    None
}

struct Visited {
    leaves: Vec<Node>,
    nodes: u64,
}

impl Visitor for Visited {
    fn table(&mut self, _: &Node) -> Action {
        self.nodes += 1;
        Action::Continue
    }

    fn leaf(&mut self, node: &Node) -> Action {
        self.nodes += 1;
        if self.leaves.len() < 64 {
            self.leaves.push(*node);
        }
        Action::Continue
    }

    fn hole(&mut self, _: &Node) -> Action {
        self.nodes += 1;
        Action::Continue
    }

    fn illegal(&mut self, _: &Node) -> Action {
        self.nodes += 1;
        Action::Continue
    }
}
