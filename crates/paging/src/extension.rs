//! The bits of an input address above those that tables resolve.

/// The required value of the bits above those that the tables resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// All zero: arm64 TTBR0, every stage 2.
    Zero,
    /// All one: arm64 TTBR1.
    Ones,
    /// Copies of the highest bit that the tables resolve: x86-64 "canonical", RISC-V.
    Sign,
}
