//! Measures one case of `table split`: the variants of the walk in turns, round after round.

use std::time::Instant;

use crate::split::walker::{Flags, Next, Visit, Visited, Visitor, Walk, walk};
use crate::split::{
    Backing, Counters, Error, Mode, Options, Slot, TableCache, Variant, build_slot, split_slot, tables_for,
    write_protect_slot,
};
use paging::Format;
use paging::Log;
use paging::Tables;
use paging::format::arm64_stage2::Arm64Stage2;

use verbs::lab::label;
use verbs::lab::{explain, size};

/// The memory to split and its backing.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub format: Arm64Stage2,
    pub slot: Slot,
    pub backing: Backing,
    pub mode: Mode,
    pub chunk_bytes: u64,
}

/// The measurements of one variant of a case.
pub struct VariantTimes {
    pub variant: Variant,
    pub counters: Counters,
    /// Seconds of the split alone, one value per round.
    pub split_s: Vec<f64>,
    /// Seconds of the preceding walk that write-protects, one value per round.
    pub protect_s: Vec<f64>,
}

impl VariantTimes {
    /// Seconds of both walks, one value per round.
    pub fn both_s(&self) -> Vec<f64> {
        self.split_s.iter().zip(&self.protect_s).map(|(split, protect)| split + protect).collect()
    }
}

/// The measurements of a case. The first variant is vanilla.
pub struct Measured {
    pub case: Case,
    pub arms: Vec<VariantTimes>,
    /// Seconds for reading every entry that vanilla reads, without calling the visitor, one value per round.
    pub reading_s: Vec<f64>,
}

impl Case {
    /// The size of the leaves before the split, in bytes.
    pub fn leaf_bytes(&self) -> u64 {
        let geometry = self.format.geometry();
        // A format with two levels has no blocks of 1G.
        self.backing.leaf_bytes(self.format.granule()).min(geometry.span(geometry.root_level()))
    }

    /// Whether KVM builds and splits the same tables in both cases. The slot and the chunk are not compared.
    pub fn is_same(&self, other: &Case) -> bool {
        self.format == other.format && self.mode == other.mode && self.leaf_bytes() == other.leaf_bytes()
    }

    /// A title for people.
    pub fn title(&self) -> String {
        let page = size(self.format.geometry().page_bytes().into());
        let backing = match self.backing {
            Backing::Pages => "pages".to_string(),
            _ => format!("{} blocks", size(self.leaf_bytes().into())),
        };
        let when = match self.mode {
            Mode::Enable => "when logging is switched on",
            Mode::Clear => "when the log is cleared",
        };
        format!("granule {page}, {backing}, {when}, chunks of {}", size(self.chunk_bytes.into()))
    }

    /// The text of an error; levels have the names of the Arm manual.
    pub fn explain(&self, error: &Error) -> String {
        let format = &self.format;
        match error {
            Error::Tables(error) => format!("--bytes {}: {}", size(self.slot.bytes.into()), explain(format, error)),
            Error::Unsplittable { va, level } => {
                format!("the {} block at {va:#x}: KVM splits no blocks of this level", label(format, *level))
            }
            error => error.to_string(),
        }
    }
}

pub fn measure(case: Case, variants: &[Variant], rounds: u32) -> Result<Measured, Error> {
    let new_arm = |variant: &Variant| VariantTimes {
        variant: *variant,
        counters: Counters::default(),
        split_s: Vec::new(),
        protect_s: Vec::new(),
    };
    let mut measured = Measured { case, arms: variants.iter().map(new_arm).collect(), reading_s: Vec::new() };
    let count = measured.arms.len();
    for round in 0..=rounds as usize {
        // The order rotates, so that no variant comes first much more often than another.
        for at in 0..count {
            let index = (round + at) % count;
            measured.trial(index, round > 0)?;
        }
    }
    Ok(measured)
}

impl Measured {
    fn trial(&mut self, index: usize, counted: bool) -> Result<(), Error> {
        let case = self.case;
        let mut tables = build_slot(case.format, case.slot, case.backing)?;
        warm(&mut tables, &case)?;
        let (protect_s, protected) = timed(|| write_protect_slot(&mut tables, case.slot, case.mode));
        protected?;
        let variant = self.arms[index].variant;
        let options = match case.mode {
            Mode::Enable => Options::enable(case.chunk_bytes, variant),
            Mode::Clear => Options::clear(case.chunk_bytes, variant),
        };
        let (split_s, counters) = timed(|| split_slot(&mut tables, case.slot, options));
        self.arms[index].counters = counters?;
        if counted {
            self.arms[index].split_s.push(split_s);
            self.arms[index].protect_s.push(protect_s);
        }
        if counted && variant == Variant::Vanilla {
            let (reading_s, read) = timed(|| read(&mut tables, &case));
            read?;
            self.reading_s.push(reading_s);
        }
        Ok(())
    }
}

/// Touches the memory for all tables in advance, so that the times contain no page faults of this process.
fn warm(tables: &mut Tables<Arm64Stage2>, case: &Case) -> Result<(), Error> {
    if case.backing != Backing::Pages {
        let mut cache = TableCache::default();
        // The split refills its cache of tables for the next chunk, even if the slot needs no more.
        let needed = tables_for(&case.format, case.slot.bytes) + tables_for(&case.format, case.chunk_bytes);
        cache.top_up(tables, needed)?;
        cache.empty(tables);
    }
    Ok(())
}

/// Reads every entry of split tables, in walks of the same length as the walks of the split.
fn read(tables: &mut Tables<Arm64Stage2>, case: &Case) -> Result<(), Error> {
    let bytes = match case.mode {
        Mode::Enable => case.chunk_bytes,
        Mode::Clear => (64 * case.format.geometry().page_bytes()).min(case.chunk_bytes),
    };
    let mut counters = Counters::default();
    let (mut ipa, end) = (case.slot.ipa, case.slot.ipa + case.slot.bytes);
    while ipa < end {
        let next = (ipa.aligned_down(bytes) + bytes).min(end);
        walk(tables, ipa, next - ipa, Flags::empty(), &mut NoVisitor, &mut counters)?;
        ipa = next;
    }
    std::hint::black_box(counters);
    Ok(())
}

struct NoVisitor;

impl<L: Log> Visitor<L> for NoVisitor {
    fn visit(&mut self, _: &mut Walk<'_, L>, _: &Visited, _: Visit) -> Result<Next, Error> {
        Ok(Next::Entry)
    }
}

fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}
