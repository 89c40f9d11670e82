//! The memory of the peers' tables: contiguous, with a free list, as pagelab's arena.

use super::TABLES_BYTES;

/// The memory of one table.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u64; 512]);

/// Pages by address; their addresses also serve as "physical" addresses.
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

    /// Takes a page with arbitrary content.
    pub fn take(&mut self) -> Option<u64> {
        if let Some(page) = self.free.pop() {
            return Some(page);
        }
        let first = self.pages.as_mut_ptr() as u64;
        let page = (self.used < self.pages.len()).then(|| first + (self.used * size_of::<Page>()) as u64);
        self.used += 1;
        page
    }

    /// Returns a page to the free list.
    pub fn give(&mut self, page: u64) {
        self.free.push(page);
    }

    /// Returns all pages.
    pub fn give_all(&mut self) {
        self.used = 0;
        self.free.clear();
    }
}
