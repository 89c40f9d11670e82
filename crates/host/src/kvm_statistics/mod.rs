//! KVM's binary statistics of a virtual machine: the [`Leaves`] that map its guest, as KVM counts them.
//!
//! Layout: a header, the descriptors, and one 64-bit word or more for each (include/uapi/linux/kvm.h, `struct kvm_stats_header`
//! and `struct kvm_stats_desc`; Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of `struct kvm_stats_header`.
const HEADER_BYTES: usize = 24;
/// Bytes of `struct kvm_stats_desc` before its name.
const DESCRIPTOR_BYTES: usize = 16;

/// Leaves that map a guest's memory, by the size of the entry (`pages_4k`, `pages_2m`, `pages_1g` of a VM on
/// x86, arch/x86/kvm/x86.c). With shadow paging they are the leaves of the shadow tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaves {
    /// Number of 4K leaves.
    pub pages_4k: u64,
    /// Number of 2M leaves.
    pub pages_2m: u64,
    /// Number of 1G leaves.
    pub pages_1g: u64,
}

impl Leaves {
    /// Bytes that the leaves map.
    pub fn bytes(&self) -> u64 {
        (self.pages_4k << 12) + (self.pages_2m << 21) + (self.pages_1g << 30)
    }
}

/// Reads the statistics. The position of the descriptor, which processes may share, stays as it is.
pub fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match file.read_at(&mut piece, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// The number of leaves in these statistics; `None` where this KVM does not count them.
pub fn leaves(bytes: &[u8]) -> Result<Option<Leaves>, StatisticsError> {
    let word = |name: &str| value(bytes, name);
    let [Some(pages_4k), Some(pages_2m), Some(pages_1g)] = [word("pages_4k")?, word("pages_2m")?, word("pages_1g")?]
    else {
        return Ok(None);
    };
    Ok(Some(Leaves { pages_4k, pages_2m, pages_1g }))
}

/// The first word of the statistic `wanted`; `None` where there is no statistic of that name.
fn value(bytes: &[u8], wanted: &str) -> Result<Option<u64>, StatisticsError> {
    let [name_bytes, count] = [4, 8].map(|at| number(bytes, at));
    let [descriptors, data] = [16, 20].map(|at| number(bytes, at));
    let (name_bytes, count, descriptors, data) = (name_bytes?, count?, descriptors?, data?);
    for index in 0..count {
        let at = index
            .checked_mul(DESCRIPTOR_BYTES + name_bytes)
            .and_then(|offset| offset.checked_add(descriptors))
            .ok_or(StatisticsError::Descriptors { count, name_bytes })?;
        let name = part(bytes, at.saturating_add(DESCRIPTOR_BYTES), name_bytes)?;
        if name.split(|byte| *byte == 0).next() == Some(wanted.as_bytes()) {
            let offset = number(bytes, at + 8)?;
            let word = part(bytes, data.saturating_add(offset), size_of::<u64>())?;
            return Ok(Some(u64::from_ne_bytes(word.try_into().expect("part gives as many bytes"))));
        }
    }
    Ok(None)
}

fn number(bytes: &[u8], at: usize) -> Result<usize, StatisticsError> {
    let word = part(bytes, at, size_of::<u32>())?;
    Ok(u32::from_ne_bytes(word.try_into().expect("part gives as many bytes")) as usize)
}

fn part(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], StatisticsError> {
    let end = at.saturating_add(length);
    bytes.get(at..end).ok_or(StatisticsError::Short { bytes: bytes.len(), at, needed_bytes: length })
}

/// An error in the format of the statistics file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatisticsError {
    /// There are more descriptors than an address can count.
    #[error("expected descriptors that fit into memory, found {count} with names of {name_bytes} bytes")]
    Descriptors {
        /// Number of descriptors according to the header.
        count: usize,
        /// Length of each name in bytes.
        name_bytes: usize,
    },
    /// The file ends before something that it refers to.
    #[error("expected {needed_bytes} bytes at offset {at}, found a file of {bytes} bytes{}", less_than_header(*bytes))]
    Short {
        /// Length of the file in bytes.
        bytes: usize,
        /// Offset of the missing data.
        at: usize,
        /// Length of the missing data in bytes.
        needed_bytes: usize,
    },
}

fn less_than_header(bytes: usize) -> &'static str {
    if bytes < HEADER_BYTES { ", less than the header" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file like the one that KVM provides for these statistics; each has one word, its value.
    fn file(statistics: &[(&str, u64)]) -> Vec<u8> {
        const NAME_BYTES: usize = 48;
        let data = HEADER_BYTES + statistics.len() * (DESCRIPTOR_BYTES + NAME_BYTES);
        let header = [0, NAME_BYTES, statistics.len(), 0, HEADER_BYTES, data];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| (*word as u32).to_ne_bytes()).collect();
        for (index, (name, _)) in statistics.iter().enumerate() {
            bytes.extend([0; 6]);
            bytes.extend(1u16.to_ne_bytes());
            bytes.extend((8 * index as u32).to_ne_bytes());
            bytes.extend([0; 4]);
            let mut padded = name.as_bytes().to_vec();
            padded.resize(NAME_BYTES, 0);
            bytes.extend(padded);
        }
        bytes.extend(statistics.iter().flat_map(|(_, value)| value.to_ne_bytes()));
        bytes
    }

    #[test]
    fn leaves_are_found_by_name() {
        let all = file(&[("remote_tlb_flush", 9), ("pages_4k", 4097), ("pages_2m", 504), ("pages_1g", 1)]);
        let found = leaves(&all).unwrap().unwrap();
        assert_eq!(found, Leaves { pages_4k: 4097, pages_2m: 504, pages_1g: 1 });
        assert_eq!(found.bytes(), (4097 << 12) + (504 << 21) + (1 << 30));
    }

    #[test]
    fn a_kvm_that_does_not_count_leaves_has_none() {
        assert_eq!(leaves(&file(&[("remote_tlb_flush", 9), ("pages_4", 1)])), Ok(None));
        assert_eq!(leaves(&file(&[])), Ok(None));
    }

    #[test]
    fn damaged_statistics_are_refused_at_every_length() {
        let all = file(&[("pages_4k", 1), ("pages_2m", 2), ("pages_1g", 3)]);
        for length in 0..all.len() {
            let error = leaves(&all[..length]).unwrap_err();
            assert!(error.to_string().contains("bytes"), "{error}");
        }
        let mut wild = all.clone();
        wild[4..12].fill(0xff);
        assert!(leaves(&wild).is_err());
    }
}
