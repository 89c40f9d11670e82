// SPDX-License-Identifier: GPL-2.0-or-later
//! What QEMU reports about an access: whether it is a store, and its size. QEMU is asked once for each value that encodes this,
//! because asking costs as much as recording.
//!
//! A callback for loads alone would not have to ask. But QEMU 7.2 calls a callback for loads at stores, and a callback for
//! stores at both (`op_rw`, accel/tcg/plugin-gen.c, takes 1 and 2 for 0 and 1).

use std::sync::atomic::{AtomicU8, Ordering};

use trace::{Access, Kind};

use crate::api::Api;

/// Values from here on are not cached; QEMU uses fewer.
const VALUES: usize = 1 << 18;
/// log2 of the size is stored above the bits of the kind.
const SIZE_SHIFT: u32 = 4;

/// The answers so far, by value; 0 where QEMU has not been asked.
pub struct AccessInfoCache([AtomicU8; VALUES]);

impl AccessInfoCache {
    /// An empty cache.
    pub const fn new() -> AccessInfoCache {
        AccessInfoCache([const { AtomicU8::new(0) }; VALUES])
    }

    /// Whether the access is a load or a store, if the answer is cached.
    #[inline(always)]
    pub fn known(&self, info: u32) -> Option<Kind> {
        match self.0.get(info as usize)?.load(Ordering::Relaxed) {
            0 => None,
            reported => Some(kind(reported)),
        }
    }

    /// Whether the access is a load or a store, and its size in bytes; 0 where it exceeds the largest recorded size.
    pub fn ask(&self, api: &Api, info: u32) -> (Kind, u64) {
        let place = self.0.get(info as usize);
        let mut reported = place.map_or(0, |place| place.load(Ordering::Relaxed));
        if reported == 0 {
            let kind = if (api.access_is_store)(info) { Kind::STORE } else { Kind::LOAD };
            reported = kind.bits() | ((api.access_size_shift)(info).min(0xf) as u8) << SIZE_SHIFT;
            if let Some(place) = place {
                place.store(reported, Ordering::Relaxed);
            }
        }
        let bytes = 1 << (reported >> SIZE_SHIFT);
        (kind(reported), if bytes <= u64::from(Access::MAX_BYTES) { bytes } else { 0 })
    }
}

#[inline(always)]
fn kind(reported: u8) -> Kind {
    if reported & Kind::STORE.bits() == 0 { Kind::LOAD } else { Kind::STORE }
}
