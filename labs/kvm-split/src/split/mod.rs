//! Eager splitting of stage 2 as KVM does it on arm64: the walker, the split, its chunks, and their costs.
//!
//! When dirty logging begins, KVM splits the blocks of a memory slot into pages before the guest writes to them. This
//! module runs the same algorithm on real entries, so that its variants can be counted and timed:
//!
//! ```
//! use paging::InputAddress;
//! use paging::format::arm64::Granule;
//! use paging::format::arm64_stage2::Arm64Stage2;
//! use kvm_split::split::{Backing, Options, Slot, Variant, build_slot, split_slot};
//!
//! let slot = Slot { ipa: InputAddress(1 << 30), bytes: 1 << 30 };
//! let mut tables = build_slot(Arm64Stage2::new(Granule::K4, 40), slot, Backing::Blocks)?;
//! let vanilla = split_slot(&mut tables.clone(), slot, Options::enable(1 << 30, Variant::Vanilla))?;
//! let skipping = split_slot(&mut tables, slot, Options::enable(1 << 30, Variant::SkipPages))?;
//! assert_eq!((vanilla.entries_read, skipping.entries_read), (262_657, 513));
//! # Ok::<(), kvm_split::split::Error>(())
//! ```
//!
//! Source: arch/arm64/kvm/hyp/pgtable.c (`__kvm_pgtable_walk`, `kvm_pgtable_stage2_split`,
//! `kvm_pgtable_stage2_create_unlinked`) and arch/arm64/kvm/mmu.c (`kvm_mmu_split_huge_pages`,
//! `kvm_arch_mmu_enable_log_dirty_pt_masked`) of Linux 6.12; for the variants, the series "KVM: arm64: skip level 3
//! while splitting" of 2026. Levels count from the pages here: level 0 is level 3 of those sources.
//!
//! Not modelled, because a single thread never meets it: shared walks (RCU, the locked marker, -EAGAIN), yielding the
//! lock to another task, cache maintenance, and the reference counts of table pages.

mod block;
mod build;
mod cache;
mod chunks;
mod counters;
mod error;
mod logged;
mod protect;
mod slot;
pub mod walker;

pub use block::{Variant, split};
pub use build::Build;
pub use cache::{TableCache, tables_for};
pub use chunks::{Mode, Options, Splitter, chunk_sizes, split_slot};
pub use counters::Counters;
pub use error::Error;
pub use logged::{ProtectAndSplit, log_slot};
pub use protect::write_protect_slot;
pub use slot::{Backing, Slot, build_slot, build_slot_with_log};
