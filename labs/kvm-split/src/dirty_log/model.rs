//! `--with-model`: a model of arm64's eager page splitting of the same memory, for each granule ([`Model`]), to compare
//! with the measurement.

use crate::split::{Backing, Slot, Variant, chunk_sizes};
use paging::InputAddress;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use policy::census::Census;
use policy::size::{PageSize, format_bytes};

use super::phases::Phases;
use super::{Arguments, Mode};
use crate::table_split::experiment::{Case, Measured, measure};

/// The granules that arm64 kernels support.
const GRANULES: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];
/// Linux's walk, and a variant that never reads entries that map pages.
pub const VARIANTS: [Variant; 2] = [Variant::Vanilla, Variant::SkipPages];
/// The number of timed rounds per variant.
const ROUNDS: u32 = 5;
/// Maximum size of a slot: its tables take 4G with 4K pages.
const MAX_BYTES: u64 = 2 << 40;
/// The number of IPA bits: KVM's default.
const IPA_BITS: u8 = 40;
/// The address of the slot: the start of guest memory on QEMU's machine `virt`.
const SLOT_IPA: InputAddress = InputAddress(1 << 30);

/// The rows of the model.
pub struct Model {
    /// One row per requested granule, or why the granule has none.
    pub rows: Vec<Result<Measured, Unmodelled>>,
}

/// Why there is no row for a granule.
#[derive(Debug, thiserror::Error)]
pub enum Unmodelled {
    /// The backing of the memory could not be inspected.
    #[error("the mappings of the memory could not be read: {0}")]
    UnknownBacking(String),
    /// The tables would be too large for the host.
    #[error("{} are too much for the model", format_bytes(*.0))]
    TooLarge(u64),
    /// The `paging` crate refuses the case, with this message.
    #[error("{0}")]
    Refused(String),
}

/// Runs the model for memory with the same backing as on the host.
pub fn run(arguments: &Arguments, phases: &Phases) -> Model {
    let row = |granule: &Granule| match &phases.host {
        Ok(census) => one(arguments, *granule, backing(census)),
        Err(error) => Err(Unmodelled::UnknownBacking(error.to_string())),
    };
    Model { rows: GRANULES.iter().map(row).collect() }
}

/// The backing to model: the largest block size for which leaves of at least that size map at least half of the memory on the
/// host. If even the smallest block is too large for that, base pages.
fn backing(census: &Census) -> Backing {
    let at_least = |leaf: PageSize| 2 * census.bytes_where(|mapping| mapping.leaf >= leaf) >= census.total_bytes();
    match (at_least(PageSize::G1), at_least(PageSize::M2)) {
        (true, _) => Backing::Gigabyte,
        (false, true) => Backing::Blocks,
        (false, false) => Backing::Pages,
    }
}

fn one(arguments: &Arguments, granule: Granule, backing: Backing) -> Result<Measured, Unmodelled> {
    let format = Arm64Stage2::new(granule, IPA_BITS);
    let sizes = chunk_sizes(granule);
    let chunk_bytes = match arguments.split_chunk {
        Some(bytes) if sizes.contains(&bytes) => bytes,
        _ => sizes.last().copied().unwrap_or_default(),
    };
    if arguments.bytes > MAX_BYTES {
        return Err(Unmodelled::TooLarge(arguments.bytes));
    }
    let mode = match arguments.mode {
        Mode::Enable => crate::split::Mode::Enable,
        Mode::Clear => crate::split::Mode::Clear,
    };
    let slot = Slot { ipa: SLOT_IPA, bytes: arguments.bytes };
    // A block that is larger than the slot cannot map it, so the next smaller backing is used.
    let backing = match backing.leaf_bytes(granule) > arguments.bytes {
        true if Backing::Blocks.leaf_bytes(granule) <= arguments.bytes => Backing::Blocks,
        true => Backing::Pages,
        false => backing,
    };
    let case = Case { format, slot, backing, mode, chunk_bytes };
    measure(case, &VARIANTS, ROUNDS).map_err(|error| Unmodelled::Refused(case.explain(&error)))
}

#[cfg(test)]
mod tests {
    use policy::census::{Backing as Behind, Folio, Mapping};

    use super::*;

    #[test]
    fn models_the_leaf_size_of_most_memory() {
        let census = |parts: &[(PageSize, u64)]| {
            let mut census = Census::default();
            for (leaf, bytes) in parts {
                census.add(Mapping { backing: Behind::Anonymous, leaf: *leaf, folio: Folio::Unknown }, *bytes);
            }
            census
        };
        assert_eq!(backing(&census(&[(PageSize::K4, 3 << 20)])), Backing::Pages);
        assert_eq!(backing(&census(&[(PageSize::K4, 3 << 20), (PageSize::M2, 4 << 20)])), Backing::Blocks);
        assert_eq!(backing(&census(&[(PageSize::M2, 8 << 20)])), Backing::Blocks);
        assert_eq!(backing(&census(&[(PageSize::K4, 9 << 20), (PageSize::M2, 4 << 20)])), Backing::Pages);
        assert_eq!(backing(&census(&[(PageSize::G1, 1 << 30), (PageSize::M2, 4 << 20)])), Backing::Gigabyte);
    }
}
