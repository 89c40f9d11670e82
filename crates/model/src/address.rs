//! Physical addresses: the output of a program's page tables. Under a second stage they are translated once more
//! ([`paging::OutputAddress::intermediate`]). Virtual addresses are plain numbers, as in traces and calls, until the
//! tables translate them.

pub use paging::OutputAddress as Pa;
