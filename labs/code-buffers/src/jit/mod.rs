//! Memory for code that is generated while a program runs, and the code itself.
//!
//! Only code that this module generated is ever put into an [`Arena`], and no byte of it is written twice. This makes it safe
//! to run the code.

mod arena;
mod arm64;
mod code;
mod mapping;
mod x86_64;

pub use arena::{Arena, Shape};
pub use code::{Isa, compute};
pub use mapping::{Advice, JitError};

/// The number of bits by which a step of generated code rotates its number.
const ROTATION: u32 = 23;
