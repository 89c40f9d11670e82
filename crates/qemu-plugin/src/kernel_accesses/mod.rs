// SPDX-License-Identifier: GPL-2.0-or-later
//! What the kernel reads and writes of the program's memory in a system call: pages that are faulted in without an instruction of
//! the program touching them.
//!
//! `table` lists the accesses; this module computes the addresses.
//!
//! Not covered: `ioctl`, whose arguments only the device knows; calls that access memory after they return (`io_uring_enter`,
//! `io_submit`) or in another process; `mlock`; the frames of signal handlers; `recvmmsg` and `sendmmsg`. Data that a stream
//! socket discards because of `MSG_TRUNC` (tcp(7)) is recorded as if it had been copied.

use trace::PAGE_SHIFT;

use crate::guest_memory::GuestMemory;

mod table;

use table::Length;
use table::Length::{Argument, AtMost, Bits, Bytes, IfNonzero, IfPositive, Result, SizeAt, Text};
pub use table::{Abi, KernelAccess, of_call};

/// A memory range that the kernel accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessedRange {
    /// First address of the range.
    pub address: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Whether the kernel writes the range; otherwise it reads it.
    pub store: bool,
}

impl AccessedRange {
    /// Splits the range at page boundaries.
    pub fn pages(self) -> impl Iterator<Item = AccessedRange> {
        let last = self.address.saturating_add(self.bytes - 1);
        (self.address >> PAGE_SHIFT..=last >> PAGE_SHIFT).map(move |page| {
            let address = self.address.max(page << PAGE_SHIFT);
            let end = last.min(page << PAGE_SHIFT | ((1 << PAGE_SHIFT) - 1));
            AccessedRange { address, bytes: end - address + 1, ..self }
        })
    }
}

/// The results of calls that access no memory: the call does not exist, or its memory is not mapped.
const NO_ACCESS_RESULTS: [i64; 2] = [-(libc::ENOSYS as i64), -(libc::EFAULT as i64)];
/// The maximum number of elements in an array of `struct iovec` (`UIO_MAXIOV`).
const MAX_PARTS: u64 = 1024;
/// More bytes than any structure whose length is an argument.
const MAX_BYTES: u64 = 1 << 20;

/// The size of the program's buffer, for a call in which the kernel overwrites that size with the actual length. Must be read
/// before the call.
pub fn buffer_bytes(accesses: &[KernelAccess], arguments: &[u64; 6], memory: &impl GuestMemory) -> u64 {
    let length = accesses.iter().find_map(|access| match *access {
        KernelAccess::Range { length: SizeAt(index), .. } => memory.half(arguments[index]),
        KernelAccess::Message { header, .. } => memory.half(arguments[header].wrapping_add(NAME_BYTES)),
        _ => None,
    });
    length.map_or(0, u64::from)
}

/// The memory that the kernel accessed in a call, in that order. `buffer_bytes` is the value from before the call.
pub fn ranges(
    accesses: &[KernelAccess],
    arguments: &[u64; 6],
    buffer_bytes: u64,
    result: i64,
    memory: &impl GuestMemory,
) -> Vec<AccessedRange> {
    let mut done = Call { arguments, buffer_bytes, result, memory, ranges: Vec::new() };
    if !NO_ACCESS_RESULTS.contains(&result) {
        accesses.iter().for_each(|access| done.add(*access));
    }
    done.ranges
}

/// Offset of the name's length in a `struct msghdr`.
const NAME_BYTES: u64 = 8;

struct Call<'a, M> {
    arguments: &'a [u64; 6],
    buffer_bytes: u64,
    result: i64,
    memory: &'a M,
    ranges: Vec<AccessedRange>,
}

impl<M: GuestMemory> Call<'_, M> {
    fn add(&mut self, access: KernelAccess) {
        match access {
            KernelAccess::Range { pointer, length, store } => {
                let address = self.arguments[pointer];
                // A call that fails has read its arguments of fixed length and strings, and written nothing.
                let done = self.result >= 0 || !store && matches!(length, Bytes(_) | Text);
                if done && address != 0 {
                    let bytes = self.bytes(address, length);
                    self.push(address, bytes, store);
                }
            }
            KernelAccess::Vector { array, count, store } if self.result >= 0 => {
                self.vector(self.arguments[array], self.arguments[count], store);
            }
            KernelAccess::Message { header, store } if self.result >= 0 => self.message(self.arguments[header], store),
            KernelAccess::Vector { .. } | KernelAccess::Message { .. } => {}
        }
    }

    fn bytes(&self, address: u64, length: Length) -> u64 {
        match length {
            Bytes(bytes) => bytes,
            Result(each) => self.result.max(0) as u64 * each,
            AtMost(index) => (self.result.max(0) as u64).min(self.arguments[index]),
            IfPositive(bytes) => {
                if self.result > 0 {
                    bytes
                } else {
                    0
                }
            }
            IfNonzero(index, bytes) => match self.memory.half(self.arguments[index]) {
                None | Some(0) => 0,
                Some(_) => bytes,
            },
            Argument(index, each) => self.arguments[index].saturating_mul(each).min(MAX_BYTES),
            Bits(index) => self.arguments[index].min(MAX_BYTES).div_ceil(64) * 8,
            SizeAt(index) => {
                let length = self.memory.half(self.arguments[index]).map_or(0, u64::from);
                length.min(self.buffer_bytes).min(MAX_BYTES)
            }
            Text => self.memory.text(address).len() as u64 + 1,
        }
    }

    fn push(&mut self, address: u64, bytes: u64, store: bool) {
        if bytes > 0 {
            self.ranges.push(AccessedRange { address, bytes, store });
        }
    }

    fn vector(&mut self, array: u64, count: u64, store: bool) {
        let count = count.min(MAX_PARTS);
        self.push(array, 16 * count, false);
        let mut left = self.result as u64;
        for element in 0..count {
            let at = array.wrapping_add(16 * element);
            let (Some(address), Some(bytes)) = (self.memory.word(at), self.memory.word(at.wrapping_add(8))) else {
                return;
            };
            let bytes = bytes.min(left);
            self.push(address, bytes, store);
            left -= bytes;
        }
    }

    fn message(&mut self, header: u64, store: bool) {
        let field = |offset: u64| self.memory.word(header.wrapping_add(offset)).unwrap_or(0);
        let name_bytes = self.memory.half(header.wrapping_add(NAME_BYTES)).map_or(0, u64::from);
        let name = (field(0), name_bytes.min(self.buffer_bytes));
        let (array, count) = (field(16), field(24));
        let control = (field(32), field(40));
        self.push(header, 56, store);
        for (address, bytes) in [name, control] {
            self.push(address, if address == 0 { 0 } else { bytes.min(MAX_BYTES) }, store);
        }
        self.vector(array, count, store);
    }
}

#[cfg(test)]
mod tests;
