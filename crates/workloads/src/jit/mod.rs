//! Memory for code that is generated while a program runs, and the code itself.
//!
//! Only code of this module's own making ever gets into an [`Arena`], and nothing in it is written twice: that
//! is what makes running it safe.

mod arena;
mod arm64;
mod code;
mod mapping;
mod x86_64;

pub use arena::{Arena, Shape};
pub use code::{Isa, compute};
pub use mapping::{Advice, JitError};

/// How far a step of generated code rotates its number.
const ROTATION: u32 = 23;
