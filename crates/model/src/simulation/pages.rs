//! The pages of a process: their numbers, their slots, and which of them were touched.

use std::collections::HashMap;

use trace::PAGE_SHIFT;

use super::keys::Hashing;
use super::slot::{LANES, Slots};

/// Touched pages, each with whether it was stored to; a page without stores holds zeros. Stores are tracked only under
/// pool policies.
pub(super) type TouchedPages = HashMap<u64, bool, Hashing>;

/// The pages of a process.
#[derive(Default)]
pub(super) struct Pages {
    /// The slots by kind of access, and by page number.
    pub slots: [Slots; LANES],
    /// The pages, indexed by their numbers.
    pub pages: Vec<u64>,
    numbers: HashMap<u64, u32, Hashing>,
    /// Touched pages of the address space that are mapped. A process that shares its parent's memory holds them for the parent.
    pub touched: TouchedPages,
    /// Instructions executed, by thread.
    instructions: Vec<u64>,
    /// The model's time when the process began, plus the time that its children have taken since.
    pub began_instructions: u64,
    /// Whether the process inherited its memory from its parent.
    pub is_inherited: bool,
}

impl Pages {
    /// The pages of a process that begins now, with memory that its parent has touched.
    pub fn of_forked(began_instructions: u64, touched: TouchedPages) -> Pages {
        Pages { began_instructions, touched, is_inherited: true, ..Pages::default() }
    }

    /// The pages of a program that begins now and has touched nothing.
    pub fn of_program(began_instructions: u64) -> Pages {
        Pages { began_instructions, ..Pages::default() }
    }

    /// Assigns the next number to a page, which has no slots yet.
    pub fn add(&mut self, page: u64) {
        self.numbers.insert(page, self.pages.len() as u32);
        self.pages.push(page);
    }

    /// Makes room for the slots of all pages.
    pub fn resize_slots(&mut self) {
        let pages = self.pages.len();
        self.slots.iter_mut().for_each(|slots| slots.resize(pages));
    }

    /// Resets the slots of the pages in a range.
    pub fn forget(&mut self, first: u64, end: u64) {
        if end - first < self.pages.len() as u64 {
            self.forget_numbered(first, end);
        } else {
            for number in 0..self.pages.len() {
                if (first..end).contains(&self.pages[number]) {
                    self.forget_page(number);
                }
            }
        }
    }

    /// As [`Pages::forget`], for few pages.
    pub fn forget_numbered(&mut self, first: u64, end: u64) {
        for page in first..end {
            if let Some(number) = self.numbers.get(&page).copied() {
                self.forget_page(number as usize);
            }
        }
    }

    fn forget_page(&mut self, number: usize) {
        self.slots.iter_mut().for_each(|slots| slots.forget(number));
    }

    /// Sets how many instructions a thread has executed so far.
    pub fn note_instructions(&mut self, thread: usize, count: u64) {
        if self.instructions.len() <= thread {
            self.instructions.resize(thread + 1, 0);
        }
        self.instructions[thread] = self.instructions[thread].max(count);
    }

    /// The instruction count of the thread that has executed most, including the time before the process began.
    pub fn executed(&self) -> u64 {
        let most = self.instructions.iter().max().copied().unwrap_or(0);
        self.began_instructions.saturating_add(most)
    }

    /// Touched pages of a range, as page offsets from its beginning, and whether each was stored to.
    pub fn touched_in(&self, begin: u64, bytes: u64) -> Vec<(u64, bool)> {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        let touched = self.touched_pages(first, end, |_| true);
        touched.into_iter().map(|page| (page - first, self.has_stored_to(page))).collect()
    }

    /// Whether a page was stored to.
    pub fn has_stored_to(&self, page: u64) -> bool {
        self.touched.get(&page).copied().unwrap_or(false)
    }

    /// Notes that a range now holds zeros: the next store to each page counts as its first.
    pub fn note_zeros(&mut self, begin: u64, bytes: u64) {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes) >> PAGE_SHIFT);
        for page in self.touched_pages(first, end, |_| true) {
            self.touched.insert(page, false);
        }
        self.forget(first, end);
    }

    /// Removes the touched pages of a range for which `is_gone` returns `true`; returns their number.
    pub fn forget_touched(&mut self, first: u64, end: u64, is_gone: impl Fn(u64) -> bool) -> u64 {
        let gone = self.touched_pages(first, end, is_gone);
        gone.iter().for_each(|page| {
            self.touched.remove(page);
        });
        gone.len() as u64
    }

    /// Touched pages of a range that `wanted` accepts. A small range is searched page by page; otherwise the result is
    /// unordered.
    fn touched_pages(&self, first: u64, end: u64, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let touched = &self.touched;
        if end - first < touched.len() as u64 {
            (first..end).filter(|page| touched.contains_key(page) && wanted(*page)).collect()
        } else {
            touched.keys().copied().filter(|page| (first..end).contains(page) && wanted(*page)).collect()
        }
    }
}
