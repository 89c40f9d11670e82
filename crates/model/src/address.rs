//! Physical addresses: the output of a program's page tables. A second stage translates them once more
//! ([`paging::OutputAddress::intermediate`]). Virtual addresses are plain numbers, as in traces and calls.

pub use paging::OutputAddress as Pa;
