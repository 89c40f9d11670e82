// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of what is emulated: where it is, and what is in it when recording begins.

pub mod owned;
pub mod ram;
pub mod regions;
pub mod startup;
