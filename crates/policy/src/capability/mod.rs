//! Which page each kind of memory can get on a kernel: the cells of a matrix, each of which was tried.
//!
//! A *kind* is what backs the memory, a *way* is how its pages come about, and a *size* is what was wanted. A cell never
//! falls back silently: if it could not be tried, or its outcome could not be seen, it has a reason.

mod changes;
mod judge;
mod kind;
mod matrix;
mod way;

pub use changes::{Change, changes};
pub use judge::{Wanted, judge};
pub use kind::{Kind, Memory};
pub use matrix::{Cell, Contiguous, Matrix, Outcome, Refusal, Setting, SettingsMode};
pub use way::Way;
