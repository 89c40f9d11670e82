// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of the emulated program or machine: where it is, and what it holds when recording begins.

pub mod owned;
pub mod ram;
mod reading;
pub mod regions;
mod segments;
pub mod startup;

pub use reading::{GuestMemory, PAGE_BYTES, ProgramMemory};
