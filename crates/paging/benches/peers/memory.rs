//! The memory that peers take their tables from: contiguous, with a free list, as pagelab's arena.

use super::TABLES_BYTES;

/// A table's memory.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u64; 512]);

/// Pages, by their addresses, which are their "physical" addresses too.
pub struct Memory {
    pages: Vec<Page>,
    used: usize,
    free: Vec<u64>,
}

impl Memory {
    pub fn new() -> Memory {
        let count = TABLES_BYTES as usize / size_of::<Page>();
        Memory { pages: vec![Page([0; 512]); count], used: 0, free: Vec::new() }
    }

    /// A page with anything in it.
    pub fn take(&mut self) -> Option<u64> {
        if let Some(page) = self.free.pop() {
            return Some(page);
        }
        let first = self.pages.as_mut_ptr() as u64;
        let page = (self.used < self.pages.len()).then(|| first + (self.used * size_of::<Page>()) as u64);
        self.used += 1;
        page
    }

    /// Takes a page back.
    pub fn give(&mut self, page: u64) {
        self.free.push(page);
    }

    /// Takes all pages back.
    pub fn give_all(&mut self) {
        self.used = 0;
        self.free.clear();
    }
}
