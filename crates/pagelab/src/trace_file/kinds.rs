//! Names of the kinds of runs.

use trace::Kind;

/// The name of a kind of run.
pub fn name(kind: Kind) -> &'static str {
    if kind.has(Kind::KERNEL) {
        return if kind.has(Kind::STORE) { "kernel store" } else { "kernel load" };
    }
    match (kind.has(Kind::FETCH), kind.has(Kind::LOAD), kind.has(Kind::STORE), kind.has(Kind::STORE_FIRST)) {
        (true, ..) => "fetch",
        (_, true, false, _) => "load",
        (_, false, ..) => "store",
        (_, true, true, false) => "load+store",
        (_, true, true, true) => "store+load",
    }
}
