// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of what is emulated: where it is, and what is in it when recording begins.

pub mod owned;
pub mod ram;
mod reading;
pub mod regions;
mod segments;
pub mod startup;

pub use reading::{GuestMemory, PAGE_BYTES, ProgramMemory};
