//! The pages of a process: their numbers and slots, and which of them were touched.

use std::collections::HashMap;

use trace::PAGE_SHIFT;

use super::keys::Hashing;
use super::slot::{LANES, Slots};

/// Touched pages, each with whether it was stored to; a page without stores contains zeros. Stores are tracked only under hugetlb
/// policies and policies with large folios.
pub(super) type TouchedPages = HashMap<u64, bool, Hashing>;

/// The pages of a process.
#[derive(Default)]
pub(super) struct Pages {
    /// The slots, by lane and by the number of the page.
    pub slots: [Slots; LANES],
    /// The page of each number.
    pub pages: Vec<u64>,
    numbers: HashMap<u64, u32, Hashing>,
    /// Touched pages that are mapped. A process that shares its parent's memory also has the pages that its parent touched.
    pub touched: TouchedPages,
    /// Number of executed instructions of each thread.
    instructions: Vec<u64>,
    /// The model's time when the process began, plus the time that it has waited for children.
    pub began_instructions: u64,
    /// Whether the process inherited its memory from its parent.
    pub is_inherited: bool,
}

impl Pages {
    /// The pages of a process that was just forked. `touched` is the memory that its parent has touched.
    pub fn of_forked(began_instructions: u64, touched: TouchedPages) -> Pages {
        Pages { began_instructions, touched, is_inherited: true, ..Pages::default() }
    }

    /// The pages of a program that starts now.
    pub fn of_program(began_instructions: u64) -> Pages {
        Pages { began_instructions, ..Pages::default() }
    }

    /// Assigns the next number to a page. Its slots do not exist yet.
    pub fn add(&mut self, page: u64) {
        self.numbers.insert(page, self.pages.len() as u32);
        self.pages.push(page);
    }

    /// Creates the slots of all new pages.
    pub fn resize_slots(&mut self) {
        let pages = self.pages.len();
        self.slots.iter_mut().for_each(|slots| slots.resize(pages));
    }

    /// Resets the slots of the pages in a range.
    pub fn reset(&mut self, first: u64, end: u64) {
        if end - first < self.pages.len() as u64 {
            self.reset_each(first, end);
        } else {
            for number in 0..self.pages.len() {
                if (first..end).contains(&self.pages[number]) {
                    self.reset_page(number);
                }
            }
        }
    }

    /// As [`Pages::reset`], for a small range.
    pub fn reset_each(&mut self, first: u64, end: u64) {
        for page in first..end {
            if let Some(number) = self.numbers.get(&page).copied() {
                self.reset_page(number as usize);
            }
        }
    }

    fn reset_page(&mut self, number: usize) {
        self.slots.iter_mut().for_each(|slots| slots.reset(number));
    }

    /// Sets how many instructions a thread has executed so far.
    pub fn note_instructions(&mut self, thread: usize, count: u64) {
        if self.instructions.len() <= thread {
            self.instructions.resize(thread + 1, 0);
        }
        self.instructions[thread] = self.instructions[thread].max(count);
    }

    /// The instruction count of the thread that has executed most, plus `began_instructions`.
    pub fn executed(&self) -> u64 {
        let most = self.instructions.iter().max().copied().unwrap_or(0);
        self.began_instructions.saturating_add(most)
    }

    /// The touched pages of a range, as page offsets from its start, and whether each was stored to.
    pub fn touched_in(&self, begin: u64, bytes: u64) -> Vec<(u64, bool)> {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        let touched = self.touched_pages(first, end, |_| true);
        touched.into_iter().map(|page| (page - first, self.has_stored_to(page))).collect()
    }

    /// Whether a page was stored to.
    pub fn has_stored_to(&self, page: u64) -> bool {
        self.touched.get(&page).copied().unwrap_or(false)
    }

    /// Notes that a range contains zeros now: the next store to each page counts as the first.
    pub fn note_zeros(&mut self, begin: u64, bytes: u64) {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes) >> PAGE_SHIFT);
        for page in self.touched_pages(first, end, |_| true) {
            self.touched.insert(page, false);
        }
        self.reset(first, end);
    }

    /// Removes the touched pages of a range for which `is_unmapped` returns `true`. Returns their number.
    pub fn forget_touched(&mut self, first: u64, end: u64, is_unmapped: impl Fn(u64) -> bool) -> u64 {
        let unmapped = self.touched_pages(first, end, is_unmapped);
        unmapped.iter().for_each(|page| {
            self.touched.remove(page);
        });
        unmapped.len() as u64
    }

    /// The touched pages of a range for which `wanted` returns `true`, in any order.
    fn touched_pages(&self, first: u64, end: u64, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let touched = &self.touched;
        if end - first < touched.len() as u64 {
            (first..end).filter(|page| touched.contains_key(page) && wanted(*page)).collect()
        } else {
            touched.keys().copied().filter(|page| (first..end).contains(page) && wanted(*page)).collect()
        }
    }
}
