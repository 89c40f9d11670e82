//! Places the memory with which a program starts: the program, its interpreter, its stack and its heap.

use super::Layout;
use super::linux::{HUGE, INTERPRETER_BYTES, PAGE, QEMU_BASE, STACK_BYTES, pages};
use super::random::Places;

impl Layout {
    /// Places memory that existed at the start of the recording.
    pub(super) fn place_region(&mut self, address: u64, bytes: u64, name: &str) -> u64 {
        let has_name = !name.starts_with('[') && !name.is_empty();
        if address < QEMU_BASE {
            // This is a program at its link address. The next file is its interpreter.
            if has_name {
                self.file = Some((name.to_owned(), 0));
            }
            self.add(address, bytes, address);
            return address;
        }
        let before = self.pieces.range(..address).next_back().filter(|(_, piece)| piece.end == address);
        let (is_next, is_behind_stack) = match before {
            Some((_, piece)) => (true, piece.end.wrapping_add(piece.distance) == self.places.stack_end),
            None => (false, false),
        };
        let to = match (name, &self.file) {
            ("[stack]", _) => {
                // The stack's range includes the addresses into which it may grow.
                let all = bytes.max(STACK_BYTES);
                let end = self.places.stack_end;
                self.add((address + bytes).saturating_sub(all), all, end - all);
                return end - bytes;
            }
            ("[heap]", _) => {
                self.heap = Some(address);
                self.move_heap_end(address);
                return self.move_heap_end(address + bytes).wrapping_sub(bytes);
            }
            // QEMU places this mapping behind the stack of a program without an interpreter. It represents the vDSO. It has the
            // name of the vDSO if the program reads it.
            ("" | "[vdso]", _) if is_behind_stack && bytes <= self.places.vdso_bytes => {
                let end = self.places.mmap_base;
                self.used_ranges.take(end - self.places.vdso_bytes, end);
                end - bytes.next_multiple_of(self.places.base_bytes)
            }
            // All parts of a file move by the same distance, and so does a mapping without a name directly behind them.
            (_, Some((file, distance))) if file == name || name.is_empty() && is_next => {
                address.wrapping_add(*distance)
            }
            (_, None) if has_name => self.places.program,
            _ if has_name => {
                // The interpreter, with the vDSO below it.
                let end = self.places.mmap_base;
                let to = end - INTERPRETER_BYTES.next_multiple_of(self.places.base_bytes);
                self.used_ranges.take(to - self.places.vdso_bytes, end);
                to
            }
            _ => self.used_ranges.place(bytes, None),
        };
        if has_name {
            self.file = Some((name.to_owned(), to.wrapping_sub(address)));
        }
        self.add(address, bytes, to);
        to
    }

    /// Moves the end of the heap, given as recorded, and returns it in Linux's layout.
    pub(super) fn move_heap_end(&mut self, end: u64) -> u64 {
        let begin = *self.heap.get_or_insert(end);
        let distance = match self.pieces.get(&begin) {
            Some(piece) => piece.distance,
            None => self.heap_start(begin).wrapping_sub(begin),
        };
        self.aligns_heap |= end > self.heap_end && end > begin && end.is_multiple_of(HUGE);
        self.heap_end = end;
        self.release(begin, end.max(self.pieces.get(&begin).map_or(begin, |piece| piece.end)));
        self.add(begin, pages(end) - (begin & !(PAGE - 1)), begin.wrapping_add(distance));
        end.wrapping_add(distance).wrapping_add(self.heap_padding())
    }

    /// Bytes from the translated end of the heap to the next large page, if an allocator has aligned the recorded end: it then aligns
    /// the end in Linux's layout too, and what it has allocated stays where it is. glibc does so with `glibc.malloc.hugetlb=1`
    /// (`sysmalloc`, malloc/malloc.c).
    pub(super) fn heap_padding(&self) -> u64 {
        let is_empty = self.heap.is_none_or(|begin| self.heap_end <= begin);
        if !self.aligns_heap || is_empty || !self.heap_end.is_multiple_of(HUGE) {
            return 0;
        }
        let to = self.address(self.heap_end - 1).wrapping_add(1);
        to.wrapping_neg() & (HUGE - 1)
    }

    /// The start of the heap in Linux's layout; `begin` is its recorded start.
    pub(super) fn heap_start(&self, begin: u64) -> u64 {
        let Places { program, heap_gap_bytes, .. } = self.places;
        let program_end = self.used_ranges.last_end_below(program + (1 << 40)).unwrap_or(program);
        pages(program_end) + heap_gap_bytes + (begin & (PAGE - 1))
    }
}
