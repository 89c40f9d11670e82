// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of the emulated program, from the maps of the QEMU process.
//!
//! All memory below the lowest mapping that existed when the plugin was loaded, which is before the program is loaded, belongs to
//! the program; for memory above it see [`owned`](crate::guest_memory::owned). The maps show what QEMU does: it maps code without
//! execute permission.
//!
//! The maps have no names for the program's stack and heap, and the whole stack is mapped. This module reports them as the kernel
//! would show them. Sources are `setup_arg_pages` of QEMU (`linux-user/elfload.c`) and of Linux (`fs/exec.c`).

use std::ops::Range;

use trace::Call;

use crate::guest_memory::PAGE_BYTES;

/// The lowest address of QEMU's own memory, from maps read before the program was loaded.
pub fn lowest(maps: &str) -> Option<u64> {
    maps.lines().filter_map(parsed).map(|line| line.begin).min()
}

/// All memory of the process, in guest addresses. `base` is the host address of the program's address 0.
pub fn all(maps: &str, base: u64) -> Vec<Region> {
    let lines = maps.lines().filter_map(parsed).filter(|line| line.begin >= base);
    lines
        .map(|line| Region {
            range: line.begin - base..line.end - base,
            protection: line.protection,
            name: line.name.to_owned(),
        })
        .collect()
}

/// One mapping of the program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its addresses.
    pub range: Range<u64>,
    /// `PROT_*`.
    pub protection: u64,
    /// Its name in `/proc/PID/maps`; empty for anonymous memory.
    pub name: String,
}

impl Region {
    /// The region as an event, as if it had just been mapped.
    pub fn call(self) -> Call {
        let bytes = self.range.end - self.range.start;
        Call::Region { address: self.range.start, bytes, protection: self.protection, name: self.name }
    }

    fn is_anonymous(&self) -> bool {
        self.name.is_empty()
    }
}

/// Size of the stack for a stack limit, in bytes. QEMU raises a limit below 8 MiB to 8 MiB, and also takes "no limit" as 8 MiB.
pub fn stack_bytes(limit: Option<u64>) -> u64 {
    limit.unwrap_or(0).max(8 << 20).next_multiple_of(PAGE_BYTES)
}

/// Candidates for the stack of the first thread: memory above an isolated guard. QEMU has an inaccessible page there. Where it
/// was configured with larger pages than the processor's, the guard has that size; QEMU 7.2 does not protect it.
pub fn stacks(regions: &[Region], stack_bytes: u64, page_bytes: u64) -> Vec<Range<u64>> {
    let is_memory = |region: &Region| region.is_anonymous() && region.protection & STACK_PROTECTION == STACK_PROTECTION;
    let is_guard = |region: &Region| {
        let bytes = region.range.end - region.range.start;
        region.is_anonymous() && region.protection == 0 && [PAGE_BYTES, page_bytes].contains(&bytes)
    };
    let of = |at: usize| {
        let (memory, before) = (&regions[at], at.checked_sub(1).map(|at| &regions[at]));
        let is_behind = before.is_some_and(|before| before.range.end == memory.range.start);
        let guard_bytes = match before {
            Some(guard) if is_behind && is_guard(guard) => 0,
            _ if !is_behind && page_bytes > PAGE_BYTES => page_bytes,
            _ => return None,
        };
        let begin = memory.range.start + guard_bytes;
        let stack = begin..begin + stack_bytes.next_multiple_of(page_bytes);
        (is_memory(memory) && stack.end <= memory.range.end).then_some(stack)
    };
    (0..regions.len()).filter_map(of).collect()
}

/// Reports the stack as Linux has it: its used part and 128 KiB below it. It grows when it is touched further down. `used` is the
/// lowest address with content.
pub fn show_stack(regions: &mut Vec<Region>, stack: Range<u64>, used: u64) {
    let begin = (used & !(PAGE_BYTES - 1)).saturating_sub(STACK_AHEAD_BYTES).max(stack.start);
    name_part(regions, begin..stack.end, "[stack]");
    // Removes the unused part and the page below it.
    regions.retain(|region| region.range.start >= begin || region.range.end < stack.start);
}

/// Names part of a region of anonymous memory.
pub fn name_part(regions: &mut Vec<Region>, part: Range<u64>, name: &str) {
    let holds = |region: &Region| {
        region.is_anonymous() && region.range.start <= part.start && part.end <= region.range.end && !part.is_empty()
    };
    let Some(index) = regions.iter().position(holds) else { return };
    let whole = regions[index].clone();
    let of = |range: Range<u64>, name: &str| Region { range, name: name.to_owned(), ..whole.clone() };
    let parts = [of(whole.range.start..part.start, ""), of(part.clone(), name), of(part.end..whole.range.end, "")];
    regions.splice(index..=index, parts.into_iter().filter(|region| !region.range.is_empty()));
}

/// How far below its content Linux lets a new stack begin (`stack_expand`, fs/exec.c).
const STACK_AHEAD_BYTES: u64 = 128 << 10;
const STACK_PROTECTION: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

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
    use crate::guest_memory::owned::Owned;

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

    fn before() -> Vec<Region> {
        Owned::below(lowest(BEFORE).unwrap()).among(&all(AFTER, 0))
    }

    #[test]
    fn memory_below_qemu_belongs_to_the_program() {
        let region = |range, protection, name: &str| Region { range, protection, name: name.to_owned() };
        let expected = [
            region(0x40_0000..0x4b_6000, 1, "/a program"),
            region(0x40_0000_0000..0x40_0000_1000, 0, ""),
            region(0x40_0000_1000..0x40_0080_3000, 3, ""),
        ];
        assert_eq!(before(), expected);
        assert_eq!(all(AFTER, 0x40_0000_0000)[0], region(0..0x1000, 0, ""));
        assert_eq!(Owned::below(u64::MAX).among(&all("", 0)), []);
        // Of the memory above, only the part is expected that is known to be the program's.
        let mut owned = Owned::below(0);
        owned.insert(0x7ffe_6c84_8000..0x7ffe_6c84_9000);
        assert_eq!(owned.among(&all(AFTER, 0)), [region(0x7ffe_6c84_8000..0x7ffe_6c84_9000, 3, "[stack]")]);
    }

    #[test]
    fn the_stack_is_shown_as_linux_has_it() {
        let mut shown = before();
        let stack = stacks(&shown, stack_bytes(None), PAGE_BYTES).remove(0);
        assert_eq!(stack, 0x40_0000_1000..0x40_0080_1000);
        show_stack(&mut shown, stack, 0x40_0080_0123);
        let found: Vec<_> = shown.iter().map(|region| (region.range.clone(), region.name.as_str())).collect();
        let expected = [
            (0x40_0000..0x4b_6000, "/a program"),
            (0x40_007e_0000..0x40_0080_1000, "[stack]"),
            (0x40_0080_1000..0x40_0080_3000, ""),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_larger_guard_page_is_unprotected_and_not_part_of_the_stack() {
        let maps = "\
0048c000-00490000 r--p 0008c000 fe:00 10103132                           /a program
00493000-004c0000 rw-p 00000000 00:00 0 
5500000000-5500804000 rw-p 00000000 00:00 0 
5500804000-5500808000 r--p 00000000 00:00 0 
";
        let shown = all(maps, 0);
        assert_eq!(stacks(&shown, stack_bytes(None), 16 << 10).first(), Some(&(0x55_0000_4000..0x55_0080_4000)));
        assert_eq!(stacks(&shown, stack_bytes(None), PAGE_BYTES), []);
    }

    #[test]
    fn finds_no_stack_in_other_memory() {
        let shown = before();
        assert_eq!(stacks(&shown, stack_bytes(Some(1 << 30)), PAGE_BYTES), []);
        assert_eq!(stacks(&shown[1..2], stack_bytes(Some(0)), PAGE_BYTES), []);
        assert_eq!(stack_bytes(Some((16 << 20) - 1)), 16 << 20);
    }

    #[test]
    fn a_part_of_anonymous_memory_gets_a_name() {
        let before = before();
        let mut shown = before.clone();
        name_part(&mut shown, 0x40_0000_1000..0x40_0000_3000, "[heap]");
        assert_eq!((shown.len(), shown[2].name.as_str(), shown[3].range.start), (4, "[heap]", 0x40_0000_3000));
        // Neither part of a file nor unmapped memory is named.
        for part in [0x40_0000..0x40_1000, 0x40_0000_2000..0x40_0000_2000, 0x1000..0x2000] {
            let mut same = before.clone();
            name_part(&mut same, part, "[heap]");
            assert_eq!(same, before);
        }
    }
}
