//! The model beside the measurement: what arm64's eager split does with the same memory, for each granule.

use paging::InputAddress;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::stage2_split::{Backing, Slot, Variant, chunk_sizes};
use policy::census::Census;
use policy::size::{PageSize, format_bytes};

use super::phases::Phases;
use super::{Arguments, Mode};
use crate::table::split::experiment::{Case, Measured, measure};

/// Granules that arm64 kernels have.
const GRANULES: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];
/// The walk of Linux, and the one that never reads entries of pages.
pub const VARIANTS: [Variant; 2] = [Variant::Vanilla, Variant::SkipPages];
/// How often each is timed.
const ROUNDS: u32 = 5;
/// The tables of a slot this large take 4G with 4K pages.
const MOST_BYTES: u64 = 2 << 40;
/// Bits of IPA, KVM's default.
const IPA_BITS: u8 = 40;
/// Where the slot lies: where a guest's memory begins on QEMU's machine `virt`.
const SLOT_IPA: InputAddress = InputAddress(1 << 30);

/// The model's rows, or why there are none.
pub struct Model {
    /// One for each granule that it was asked for.
    pub rows: Vec<Result<Measured, Unmodelled>>,
}

/// Why there is no row.
#[derive(Debug, thiserror::Error)]
pub enum Unmodelled {
    /// Nothing is known of the memory that would be modelled.
    #[error("what backs the memory could not be seen: {0}")]
    Unseen(String),
    /// The tables would take more than a host has.
    #[error("{} are too much for it", format_bytes(*.0))]
    TooLarge(u64),
    /// The engine refuses it, in the words of the format.
    #[error("{0}")]
    Refused(String),
}

/// Runs the model for memory that is backed as the host backed it.
pub fn run(arguments: &Arguments, phases: &Phases) -> Model {
    let row = |granule: &Granule| match &phases.host {
        Ok(census) => one(arguments, *granule, backing(census)),
        Err(error) => Err(Unmodelled::Unseen(error.to_string())),
    };
    Model { rows: GRANULES.iter().map(row).collect() }
}

/// What stands for memory of which at least half has leaves of such a size in the host. No base page is as large
/// as the smallest block.
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
    if arguments.bytes > MOST_BYTES {
        return Err(Unmodelled::TooLarge(arguments.bytes));
    }
    let mode = match arguments.mode {
        Mode::Enable => paging::stage2_split::Mode::Enable,
        Mode::Clear => paging::stage2_split::Mode::Clear,
    };
    let slot = Slot { ipa: SLOT_IPA, bytes: arguments.bytes };
    // A block that is larger than the slot cannot map it.
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
    fn the_leaf_of_most_memory_decides_what_is_modelled() {
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
