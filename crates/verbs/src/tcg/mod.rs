//! `pagelab list tcg-regions`: how QEMU's division of its code buffer affects huge pages.

pub mod listing;
