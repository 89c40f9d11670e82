//! `pagelab list tcg-regions`: what QEMU's division of its code buffer does to huge pages.

pub mod listing;
