//! What stands above the bits of an input address that tables resolve.

/// What input addresses look like above the bits that the tables resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// All zero: arm64 TTBR0, every stage 2.
    Zero,
    /// All one: arm64 TTBR1.
    Ones,
    /// Copies of the highest bit that the tables resolve: x86-64 "canonical", RISC-V.
    Sign,
}
