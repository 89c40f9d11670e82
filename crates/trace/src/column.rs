//! Columns: parts of a chunk that are compressed on their own.

use std::io;

use thiserror::Error;

/// zstd's compression level. Higher levels cost much time and save little.
const LEVEL: i32 = 1;

/// Why bytes are not a column; each variant names the column.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// The bytes end within the column.
    #[error("the {0} column is cut off")]
    CutOff(&'static str),
    /// The column does not decompress to the size that it states.
    #[error("the {0} column does not decompress")]
    Compression(&'static str),
    /// The column states a size larger than it can have.
    #[error("the {0} column is too long")]
    TooLong(&'static str),
}

/// Encodes chunks. Reuse it: the compressor holds most of its memory.
pub struct Encoder {
    compressor: zstd::bulk::Compressor<'static>,
    column: Vec<u8>,
    packed: Vec<u8>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Creates the compressor.
    ///
    /// # Errors
    /// There is no memory for the compressor.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder { compressor: zstd::bulk::Compressor::new(LEVEL)?, column: Vec::new(), packed: Vec::new() })
    }

    /// Appends a column: its size when decompressed, its size as stored, and the compressed bytes.
    pub(crate) fn column(&mut self, column: &[u8], bytes: &mut Vec<u8>) -> io::Result<()> {
        self.packed.clear();
        if !column.is_empty() {
            self.packed.reserve(zstd::zstd_safe::compress_bound(column.len()));
            self.compressor.compress_to_buffer(column, &mut self.packed)?;
        }
        bytes.extend((column.len() as u32).to_le_bytes());
        bytes.extend((self.packed.len() as u32).to_le_bytes());
        bytes.extend(&self.packed);
        Ok(())
    }

    /// Appends the column that `fill` writes.
    pub(crate) fn filled(&mut self, bytes: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut column = std::mem::take(&mut self.column);
        column.clear();
        fill(&mut column);
        let stored = self.column(&column, bytes);
        self.column = column;
        stored
    }
}

pub const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

pub fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends numbers as differences from the previous one.
pub fn push_differences(bytes: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) {
    let mut before = 0u64;
    for number in numbers {
        push_varint(bytes, zigzag(number.wrapping_sub(before) as i64));
        before = number;
    }
}

/// Decodes the numbers of [`push_differences`]; `None` if the bytes end within one.
pub fn differences(mut bytes: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::with_capacity(bytes.len());
    let mut number = 0u64;
    while let Some((byte, rest)) = bytes.split_first() {
        // Most differences take one byte.
        let difference = if *byte < 0x80 {
            bytes = rest;
            u64::from(*byte)
        } else {
            take_varint(&mut bytes)?
        };
        number = number.wrapping_add(unzigzag(difference) as u64);
        numbers.push(number);
    }
    Some(numbers)
}

/// Appends counts of one byte each; a count of 255 or more is the byte 255 followed by four bytes.
pub fn push_counts(bytes: &mut Vec<u8>, counts: impl Iterator<Item = u32>) {
    for count in counts {
        match u8::try_from(count) {
            Ok(short) if short < u8::MAX => bytes.push(short),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend(count.to_le_bytes());
            }
        }
    }
}

/// Decodes the counts of [`push_counts`]; `None` if the bytes end within one.
pub fn counts(mut bytes: &[u8]) -> Option<Vec<u32>> {
    let mut counts = Vec::with_capacity(bytes.len());
    while let Some((byte, after)) = bytes.split_first() {
        bytes = after;
        if *byte < u8::MAX {
            counts.push(u32::from(*byte));
        } else {
            let (long, after) = bytes.split_first_chunk()?;
            counts.push(u32::from_le_bytes(*long));
            bytes = after;
        }
    }
    Some(counts)
}

/// Appends 16-bit words, little-endian.
pub fn push_words(bytes: &mut Vec<u8>, words: impl ExactSizeIterator<Item = u16>) {
    bytes.resize(words.len() * 2, 0);
    for (place, word) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

/// Decodes the words of [`push_words`].
pub fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word)).collect()
}

/// Decodes columns. Reuse it to keep its memory.
#[derive(Default)]
pub(crate) struct Decoder {
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
    column: Vec<u8>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// Takes a column off the front of `rest` if it has at most `max_bytes` bytes when decompressed.
    pub(crate) fn column(
        &mut self,
        rest: &mut &[u8],
        name: &'static str,
        max_bytes: usize,
    ) -> Result<&[u8], ColumnError> {
        let mut number = || {
            let (number, after) = rest.split_first_chunk().ok_or(ColumnError::CutOff(name))?;
            *rest = after;
            Ok(u32::from_le_bytes(*number) as usize)
        };
        let (inflated, stored) = (number()?, number()?);
        if stored > rest.len() {
            return Err(ColumnError::CutOff(name));
        }
        let (column, after) = rest.split_at(stored);
        *rest = after;
        if inflated > max_bytes {
            return Err(ColumnError::TooLong(name));
        }
        self.column.clear();
        if inflated != 0 {
            self.column.reserve(inflated);
            let refused = |_| ColumnError::Compression(name);
            let decompressor = match &mut self.decompressor {
                Some(decompressor) => decompressor,
                none => none.insert(zstd::bulk::Decompressor::new().map_err(refused)?),
            };
            decompressor.decompress_to_buffer(column, &mut self.column).map_err(refused)?;
        }
        if self.column.len() == inflated { Ok(&self.column) } else { Err(ColumnError::Compression(name)) }
    }
}
