//! The pages of a process: their numbers, their slots, and which of them were touched.

use std::collections::HashMap;

use trace::PAGE_SHIFT;

use super::keys::Hashing;
use super::slot::{LANES, Slots};

/// Touched pages, each with whether it was stored to: what was not holds zeros. That is known of policies of a pool alone.
pub(super) type TouchedPages = HashMap<u64, bool, Hashing>;

/// The pages of a process.
#[derive(Default)]
pub(super) struct Pages {
    /// By kind of access, then by the number of the page.
    pub slots: [Slots; LANES],
    /// The pages by their numbers.
    pub pages: Vec<u64>,
    numbers: HashMap<u64, u32, Hashing>,
    /// Pages of the address space that were touched and are mapped; one that shares its parent's has them for it.
    pub touched: TouchedPages,
    /// By thread.
    instructions: Vec<u64>,
    /// What the model's time was when the process began, and what its children have taken since.
    pub began_instructions: u64,
    /// The process has its memory from its parent.
    pub is_inherited: bool,
}

impl Pages {
    /// Those of a process that begins now, with memory that its parent has touched.
    pub fn of_forked(began_instructions: u64, touched: TouchedPages) -> Pages {
        Pages { began_instructions, touched, is_inherited: true, ..Pages::default() }
    }

    /// Those of a program that begins now, which has touched nothing.
    pub fn of_program(began_instructions: u64) -> Pages {
        Pages { began_instructions, ..Pages::default() }
    }

    /// Gives the next number to a page, which has no slots yet.
    pub fn add(&mut self, page: u64) {
        self.numbers.insert(page, self.pages.len() as u32);
        self.pages.push(page);
    }

    /// Makes room for the slots of all pages.
    pub fn resize_slots(&mut self) {
        let pages = self.pages.len();
        self.slots.iter_mut().for_each(|slots| slots.resize(pages));
    }

    /// Forgets the slots of pages of a range.
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

    /// How many instructions a thread has executed so far.
    pub fn note_instructions(&mut self, thread: usize, count: u64) {
        if self.instructions.len() <= thread {
            self.instructions.resize(thread + 1, 0);
        }
        self.instructions[thread] = self.instructions[thread].max(count);
    }

    /// Instructions that the thread which has executed most has executed, those before the process included.
    pub fn executed(&self) -> u64 {
        let most = self.instructions.iter().max().copied().unwrap_or(0);
        self.began_instructions.saturating_add(most)
    }

    /// Touched pages of a range of as many bytes, by how far behind its beginning they are, and whether they were stored to.
    pub fn touched_in(&self, begin: u64, bytes: u64) -> Vec<(u64, bool)> {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        let touched = self.touched_pages(first, end, |_| true);
        touched.into_iter().map(|page| (page - first, self.has_stored_to(page))).collect()
    }

    /// Whether a page was stored to.
    pub fn has_stored_to(&self, page: u64) -> bool {
        self.touched.get(&page).copied().unwrap_or(false)
    }

    /// Zeros stand in a range of as many bytes now: the next stores there are first ones again.
    pub fn note_zeros(&mut self, begin: u64, bytes: u64) {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes) >> PAGE_SHIFT);
        for page in self.touched_pages(first, end, |_| true) {
            self.touched.insert(page, false);
        }
        self.forget(first, end);
    }

    /// Forgets touched pages of a range that `is_gone` says; how many they were.
    pub fn forget_touched(&mut self, first: u64, end: u64, is_gone: impl Fn(u64) -> bool) -> u64 {
        let gone = self.touched_pages(first, end, is_gone);
        gone.iter().for_each(|page| {
            self.touched.remove(page);
        });
        gone.len() as u64
    }

    /// Touched pages of a range that `wanted` says; they are asked for one by one where they are few, and in no order otherwise.
    fn touched_pages(&self, first: u64, end: u64, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let touched = &self.touched;
        if end - first < touched.len() as u64 {
            (first..end).filter(|page| touched.contains_key(page) && wanted(*page)).collect()
        } else {
            touched.keys().copied().filter(|page| (first..end).contains(page) && wanted(*page)).collect()
        }
    }
}
