//! Nested translation: a guest's tables in memory that a hypervisor's tables translate.

use thiserror::Error as ThisError;

use crate::address::{InputAddress, OutputAddress};
use crate::error::Error;
use crate::format::{Format, Kind, first_rule};
use crate::log::Log;
use crate::tables::Tables;

/// The translation of a guest's virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nested {
    /// The guest physical address: the output of stage 1 and the input of stage 2.
    pub ipa: InputAddress,
    /// The host physical address.
    pub pa: OutputAddress,
    /// Number of entries that a walker without any cache reads: `(n + 1)(m + 1) - 1` for `n` levels over `m`.
    pub references: u32,
    /// Bytes around the address that one TLB entry can map: the smaller of the two leaf sizes.
    pub bytes: u64,
}

/// The stage that failed, with its error.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum NestedError {
    /// The guest's own tables failed.
    #[error("stage 1: {0}")]
    Stage1(#[source] Error),
    /// The hypervisor's tables failed for a guest physical address.
    #[error("stage 2, for the guest physical address {ipa:#x}: {error}")]
    Stage2 {
        /// The guest physical address of the guest's entry or memory.
        ipa: InputAddress,
        /// The error of stage 2.
        #[source]
        error: Error,
    },
}

/// Translates `va` through `stage1`, whose table addresses are guest physical addresses and are translated by `stage2`.
///
/// ```
/// use paging::format::x86_64::X86_64;
/// use paging::nested::translate;
/// use paging::{Attributes, Flags, InputAddress, Mapping, OutputAddress, Sizes, Tables};
///
/// let attributes = Attributes::new(Flags::READ | Flags::WRITE | Flags::USER);
/// let map = |tables: &mut Tables<X86_64>, va, pa, bytes| {
///     let (va, pa) = (InputAddress(va), OutputAddress(pa));
///     tables.map(&Mapping { va, pa, bytes, attributes, sizes: Sizes::BEST })
/// };
/// // The guest's own tables are at 1G of its memory, and map 2M of it.
/// let mut guest = Tables::new(X86_64::new(4, 46), OutputAddress(1 << 30), 1 << 20)?;
/// map(&mut guest, 0x7f00_0000_0000, 2 << 30, 2 << 20)?;
/// // The hypervisor has 4G for it, from 64G on, in leaves of 1G.
/// let mut host = Tables::new(X86_64::new(4, 46), OutputAddress(1 << 30), 1 << 20)?;
/// map(&mut host, 0, 64 << 30, 4 << 30)?;
///
/// let found = translate(&guest, &host, InputAddress(0x7f00_0000_1234)).unwrap();
/// assert_eq!(found.ipa, InputAddress((2 << 30) + 0x1234));
/// assert_eq!(found.pa, OutputAddress((66 << 30) + 0x1234));
/// // Three entries of the guest and its memory, each by two of the hypervisor: (3 + 1)(2 + 1) - 1.
/// assert_eq!((found.references, found.bytes), (11, 2 << 20));
/// # Ok::<(), paging::Error>(())
/// ```
///
/// # Errors
/// One of the stages failed; the error says which, and for which address.
pub fn translate<F: Format, L: Log, G: Format, M: Log>(
    stage1: &Tables<F, L>,
    stage2: &Tables<G, M>,
    va: InputAddress,
) -> Result<Nested, NestedError> {
    let (geometry, format) = (stage1.geometry(), stage1.format());
    let host_levels = u32::from(stage2.geometry().levels());
    let mut references = 0;
    let mut host = |of_guest: OutputAddress| {
        let ipa = of_guest.intermediate();
        let found = stage2.translate(ipa).map_err(|error| NestedError::Stage2 { ipa, error })?;
        references += host_levels - u32::from(found.level);
        Ok((ipa, found))
    };
    if !geometry.is_canonical(va) {
        let (input_bits, extension) = (geometry.input_bits(), geometry.extension());
        return Err(NestedError::Stage1(Error::NotCanonical { va, input_bits, extension }));
    }
    let mut table = stage1.root();
    let mut entries_read = 0;
    for level in (0..geometry.levels()).rev() {
        let entry_at = geometry.entry_address(table, level, va);
        host(entry_at)?;
        entries_read += 1;
        let outside = || NestedError::Stage1(stage1.outside(table, va, level));
        let entry = stage1.arena().read(entry_at).ok_or_else(outside)?;
        match format.kind(level, entry) {
            Kind::Table => table = format.table_address(entry),
            Kind::Leaf => {
                let span = geometry.span(level);
                let memory = format.leaf_address(level, entry, va).0 | va.0 & (span - 1);
                let (ipa, found) = host(OutputAddress(memory))?;
                let bytes = span.min(stage2.geometry().span(found.level));
                return Ok(Nested { ipa, pa: found.pa, references: references + entries_read, bytes });
            }
            Kind::Hole => return Err(NestedError::Stage1(Error::NotMapped { va, level, entry })),
            Kind::Illegal => {
                let rule = first_rule(format, level, entry);
                return Err(NestedError::Stage1(Error::Illegal { va, level, entry, rule }));
            }
        }
    }
    // A pointer to a table at the leaf level is illegal, and was reported above.
    Err(NestedError::Stage1(Error::NotMapped { va, level: 0, entry: 0 }))
}
