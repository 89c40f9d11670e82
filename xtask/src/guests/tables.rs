//! Reads a process's page tables in a guest as the architecture defines them ([`entries`]), independently of the code
//! under test.

use super::debugger::Debugger;

/// What a guest requests: the entries that map a range of the process that is running on the guest's last processor.
#[derive(Debug, PartialEq)]
pub struct TableRequest {
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The base page size in bytes.
    pub page: u64,
    /// The frame of the first page, from /proc/PID/pagemap.
    pub frame: u64,
    /// The number of the processor, from 1.
    pub processor: u32,
}

impl TableRequest {
    /// Parses `ADDRESS BYTES PAGE FRAME PROCESSOR`, of which the first and the fourth are hexadecimal.
    pub fn read(words: &str) -> Option<TableRequest> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let [address, bytes, page, frame, processor] = words.as_slice() else { return None };
        let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
        Some(TableRequest {
            address: hexadecimal(address)?,
            bytes: bytes.parse().ok()?,
            page: page.parse().ok().filter(|page: &u64| page.is_power_of_two())?,
            frame: hexadecimal(frame)?,
            processor: processor.parse().ok()?,
        })
    }
}

/// The page table format of an architecture.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    /// Stage 1 of VMSAv8-64, without 52-bit addresses, which no guest's memory needs.
    Arm64,
    /// Sv39, Sv48 and Sv57.
    Riscv,
}

impl Format {
    fn table(self, entry: u64) -> u64 {
        match self {
            Format::Arm64 => entry & 0x0000_ffff_ffff_f000,
            Format::Riscv => (entry >> 10 & ((1 << 44) - 1)) << 12,
        }
    }

    /// The frame in an entry that maps a page; for an entry of a contiguous group, the first frame of the group. A NAPOT entry
    /// encodes the size of its group in the low bits of the address: 64K is 0b1000 (RISC-V Privileged, Svnapot).
    fn frame(self, entry: u64, shift: u32) -> u64 {
        let frame = self.table(entry) >> shift;
        let is_napot = self == Format::Riscv && entry >> 63 == 1;
        if is_napot { frame & frame.wrapping_sub(1) } else { frame }
    }

    /// Whether a valid entry points to another table.
    fn is_table(self, entry: u64) -> bool {
        match self {
            Format::Arm64 => entry & 3 == 3,
            Format::Riscv => entry & 0xf == 1,
        }
    }
}

/// The number of address bits, and the last-level entry of each page of the range.
pub fn entries(guest: &mut Debugger, architecture: &str, request: &TableRequest) -> Result<(u32, Vec<u64>), String> {
    let shift = request.page.trailing_zeros();
    let (format, mut root, bits) = match architecture {
        "arm64" => {
            // A kernel that runs in EL2 as its own hypervisor (HCR_EL2.E2H) keeps the tables of its processes in EL2's
            // registers.
            let is_host = guest.register(request.processor, "HCR_EL2").is_ok_and(|control| control >> 34 & 1 == 1);
            let level = if is_host { "EL2" } else { "EL1" };
            let root = guest.register(request.processor, &format!("TTBR0_{level}"))?;
            let control = guest.register(request.processor, &format!("TCR_{level}"))?;
            // The root table has the smallest possible size, and is aligned to that size.
            (Format::Arm64, root & 0x0000_ffff_ffff_ffc0, 64 - (control & 63) as u32)
        }
        "riscv64" => {
            let satp = guest.register(request.processor, "satp")?;
            (Format::Riscv, (satp & ((1 << 44) - 1)) << 12, 39 + 9 * ((satp >> 60) as u32).saturating_sub(8))
        }
        _ => return Err(format!("reading the tables of {architecture} is not supported")),
    };
    let levels = (bits - shift).div_ceil(shift - 3);
    let index = |address: u64, level: u32| address >> (shift + level * (shift - 3)) & ((1 << (shift - 3)) - 1);
    for level in (1..levels).rev() {
        let entry = guest.words(root + index(request.address, level) * 8, 1)?[0];
        if !format.is_table(entry) {
            return Err(format!("{:#x} has no table below level {level}: {entry:#x}", request.address));
        }
        root = format.table(entry);
    }
    let (first, count) = (index(request.address, 0), request.bytes / request.page);
    if first + count > request.page / 8 {
        return Err(format!("the {} bytes at {:#x} span more than one table", request.bytes, request.address));
    }
    let entries = guest.words(root + first * 8, count)?;
    let found = format.frame(entries[0], shift);
    if found != request.frame {
        return Err(format!("expected the frame {:#x} of pagemap in the first entry, found {found:#x}", request.frame));
    }
    Ok((bits, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_request_of_a_guest() {
        let request = TableRequest::read("ffff80000000 65536 4096 4a000 2").unwrap();
        assert_eq!((request.address, request.frame, request.processor), (0xffff_8000_0000, 0x4a000, 2));
        assert_eq!(
            (TableRequest::read("1 2 3 4 5"), TableRequest::read("1 2"), TableRequest::read("")),
            (None, None, None)
        );
    }

    #[test]
    fn entries_lead_to_tables() {
        assert!(Format::Arm64.is_table(0x4000_1003) && !Format::Arm64.is_table(0x4000_1001));
        assert_eq!(Format::Arm64.table(0x0008_0000_4000_1003), 0x4000_1000);
        assert!(Format::Riscv.is_table(0x2000_0401) && !Format::Riscv.is_table(0x2000_040f));
        assert_eq!(Format::Riscv.table(0x2000_0401), 0x8000_1000);
        let frames = [0x2000_04cf, 0x8000_0000_2000_60cf].map(|entry| Format::Riscv.frame(entry, 12));
        assert_eq!(frames, [0x80001, 0x80010], "of a page, and of 16 folded ones");
    }
}
