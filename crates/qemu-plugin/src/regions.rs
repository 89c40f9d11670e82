// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of the emulated program, read off the map of the process that emulates it.
//!
//! QEMU places the program below its own code: what lies below the lowest mapping that was there when the plugin was
//! loaded, which is before the program was, is the program's. The kernel's map knows what QEMU does: code is not
//! executable there.

use trace::Call;

/// Where QEMU's own memory begins, in a map from before the program was loaded.
pub fn lowest(maps: &str) -> Option<u64> {
    maps.lines().filter_map(parsed).map(|line| line.begin).min()
}

/// The program's memory below `lowest`, as if it had just been mapped. `base` is where the program's address 0 is.
pub fn regions(maps: &str, lowest: u64, base: u64) -> Vec<Call> {
    let own = maps.lines().filter_map(parsed).filter(|line| line.begin >= base && line.end <= lowest);
    own.map(|line| Call::Region {
        address: line.begin - base,
        bytes: line.end - line.begin,
        protection: line.protection,
        name: line.name.to_owned(),
    })
    .collect()
}

struct Line<'a> {
    begin: u64,
    end: u64,
    protection: u64,
    name: &'a str,
}

/// A line of `/proc/PID/maps` (proc(5)).
fn parsed(line: &str) -> Option<Line<'_>> {
    let mut words = line.splitn(6, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    let flags = words.next()?;
    let bits = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
    let protection = bits.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, bit)| *bit as u64).sum();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let name = words.nth(3).unwrap_or_default().trim();
    Some(Line { begin: number(begin)?, end: number(end)?, protection, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
5604f266e000-5604f26da000 r--p 00000000 fe:00 10167161                   /usr/bin/qemu-x86_64
7ffe6c847000-7ffe6c868000 rw-p 00000000 00:00 0                          [stack]
";
    const AFTER: &str = "\
00400000-004b6000 r--p 00000000 fe:00 11763898                           /a program
4000000000-4000001000 ---p 00000000 00:00 0 
4000001000-4000803000 rw-p 00000000 00:00 0 
5604f266e000-5604f26da000 r--p 00000000 fe:00 10167161                   /usr/bin/qemu-x86_64
7ffe6c847000-7ffe6c868000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn what_lies_below_qemu_is_the_programs() {
        let lowest = lowest(BEFORE).unwrap();
        let region =
            |address, bytes, protection, name: &str| Call::Region { address, bytes, protection, name: name.to_owned() };
        let expected = [
            region(0x40_0000, 0xb_6000, 1, "/a program"),
            region(0x40_0000_0000, 0x1000, 0, ""),
            region(0x40_0000_1000, 0x80_2000, 3, ""),
        ];
        assert_eq!(regions(AFTER, lowest, 0), expected);
        assert_eq!(regions(AFTER, lowest, 0x40_0000_0000)[0], region(0, 0x1000, 0, ""));
        assert_eq!(regions("", lowest, 0), []);
    }
}
