// SPDX-License-Identifier: GPL-2.0-or-later
//! What QEMU tells of an access: whether it is a store, and its size. It is asked once for each value that stands for that,
//! because asking costs as much as recording.
//!
//! A callback for loads alone would not have to ask. QEMU 7.2 calls it for stores, and that for stores for both
//! (`op_rw`, accel/tcg/plugin-gen.c, takes 1 and 2 for 0 and 1).

use std::sync::atomic::{AtomicU8, Ordering};

use trace::{Access, Kind};

use crate::api::Api;

/// More than QEMU has values.
const VALUES: usize = 1 << 18;
/// log2 of the size stands above the bits of the kind.
const SIZE_SHIFT: u32 = 4;

/// What was told so far, by value; 0 where nothing was.
pub struct Told([AtomicU8; VALUES]);

impl Told {
    /// Nothing yet.
    pub const fn new() -> Told {
        Told([const { AtomicU8::new(0) }; VALUES])
    }

    /// Whether it is a load or a store, if that was told.
    #[inline(always)]
    pub fn known(&self, info: u32) -> Option<Kind> {
        match self.0.get(info as usize)?.load(Ordering::Relaxed) {
            0 => None,
            told => Some(kind(told)),
        }
    }

    /// Whether it is a load or a store, and its bytes; 0 where they are more than any that is kept.
    pub fn ask(&self, api: &Api, info: u32) -> (Kind, u64) {
        let place = self.0.get(info as usize);
        let mut told = place.map_or(0, |place| place.load(Ordering::Relaxed));
        if told == 0 {
            let kind = if (api.access_is_store)(info) { Kind::STORE } else { Kind::LOAD };
            told = kind.bits() | ((api.access_size_shift)(info).min(0xf) as u8) << SIZE_SHIFT;
            if let Some(place) = place {
                place.store(told, Ordering::Relaxed);
            }
        }
        let bytes = 1 << (told >> SIZE_SHIFT);
        (kind(told), if bytes <= u64::from(Access::MAX_BYTES) { bytes } else { 0 })
    }
}

#[inline(always)]
fn kind(told: u8) -> Kind {
    if told & Kind::STORE.bits() == 0 { Kind::LOAD } else { Kind::STORE }
}
