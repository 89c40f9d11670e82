//! pagelab's own tables.

use paging::{Attributes, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};

use super::TABLES_BYTES;
use super::contender::Contender;
use super::scene::Range;

pub struct Engine<F> {
    tables: Tables<F>,
    data: Attributes,
}

impl<F: Format> Engine<F> {
    pub fn new(format: F) -> Engine<F> {
        let tables = Tables::new(format, OutputAddress(1 << 40), TABLES_BYTES).expect("an arena for the root");
        let flags = Flags::READ | Flags::WRITE | Flags::USER | Flags::ACCESSED;
        Engine { tables, data: Attributes { memory: format.normal_memory(), ..Attributes::new(flags) } }
    }
}

impl<F: Format> Contender for Engine<F> {
    fn name(&self) -> &'static str {
        "pagelab"
    }

    /// Unmapping has already released all tables.
    fn begin(&mut self) {
        let geometry = self.tables.geometry();
        assert_eq!(self.tables.arena().used_bytes(), geometry.table_bytes(geometry.root_level()));
    }

    fn map(&mut self, range: &Range) {
        let Range { va, pa, bytes, largest_bytes } = *range;
        let (va, pa) = (InputAddress(va), OutputAddress(pa));
        let mapping = Mapping { va, pa, bytes, attributes: self.data, sizes: Sizes::up_to(largest_bytes) };
        self.tables.map(&mapping).expect("nothing is mapped");
    }

    fn protect(&mut self, range: &Range) {
        let read_only = Attributes { flags: self.data.flags - Flags::WRITE, ..self.data };
        self.tables.protect(InputAddress(range.va), range.bytes, read_only).expect("all is mapped");
    }

    fn unmap(&mut self, range: &Range) {
        self.tables.unmap(InputAddress(range.va), range.bytes).expect("all is mapped");
    }

    #[inline]
    fn translate(&self, va: u64) -> Option<u64> {
        self.tables.translate(InputAddress(va)).ok().map(|found| found.pa.0)
    }

    fn is_writable(&self, va: u64) -> bool {
        self.tables.attributes(InputAddress(va)).is_ok_and(|attributes| attributes.flags.contains(Flags::WRITE))
    }
}
