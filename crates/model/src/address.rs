//! Physical addresses: what a program's tables translate to. Under a second stage it translates them once more
//! ([`paging::OutputAddress::intermediate`]). Virtual ones are plain numbers, as traces and calls have them, up to the
//! tables.

pub use paging::OutputAddress as Pa;
