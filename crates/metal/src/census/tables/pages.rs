//! The kernel's `struct page`s of many frames, read in few calls.

use std::io;
use std::ops::Range;

use super::PageTables;
use crate::census::folio::{FrameFlags, HEAD, Orders, Run, TAIL};
use crate::kernel_memory::{Copier, MOST_REQUESTS, MOST_WORDS, Request};

/// Frames that follow each other so closely are copied together, with what is between them.
const NEAR_FRAMES: u64 = 4;

/// What is known of the frames of some runs: whether they are heads or tails, as kpageflags shows it.
///
/// Of each run the first frame is read, and every one at which a folio of a possible size can begin or end. What else
/// is asked for, such as the head of a folio whose beginning the run does not have, is read when it is.
pub struct Pages<'a> {
    tables: &'a PageTables,
    /// Where in the copies there is room, in words.
    room: Range<usize>,
    /// No folio of several pages is smaller than so many.
    step: u64,
    /// The flags of what was read, run by run, in the order of frames.
    flags: Vec<u64>,
    /// What is to be read next: the requests, and for each frame its place among the copies and its request.
    requests: Vec<Request>,
    places: Vec<(usize, usize)>,
    last: u64,
}

/// Answers for one run after the other.
pub struct Answers<'a, 'b> {
    pages: &'b Pages<'a>,
    copier: &'b mut Copier,
    /// The run that is asked about, and which of the flags is its first.
    run: Run,
    first: usize,
}

impl<'a> Pages<'a> {
    /// Knows nothing yet.
    pub fn new(tables: &'a PageTables, room: Range<usize>, orders: &Orders) -> Pages<'a> {
        let step = match orders {
            Orders::Any => 1,
            Orders::Only(orders) => 1 << orders.first().copied().unwrap_or(u64::BITS - 1),
        };
        Pages { tables, room, step, flags: Vec::new(), requests: Vec::new(), places: Vec::new(), last: 0 }
    }

    /// Reads what will be asked for of these runs, and is ready to answer for the first of them.
    ///
    /// # Errors
    /// What the kernel said of the reading.
    pub fn read<'b>(
        &'b mut self,
        copier: &'b mut Copier,
        runs: impl Iterator<Item = Run>,
    ) -> io::Result<Answers<'a, 'b>> {
        self.flags.clear();
        let step = self.step;
        for frame in runs.flat_map(|run| frames(run, step)) {
            if !self.request(frame) {
                self.copy(copier)?;
                self.request(frame);
            }
        }
        self.copy(copier)?;
        Ok(Answers { pages: self, copier, run: Run { page: 0, frame: 0, pages: 0 }, first: 0 })
    }

    /// Asks for one more frame, if there is room.
    fn request(&mut self, frame: u64) -> bool {
        let (address, words) = (self.address(frame), self.words());
        let is_near = frame > self.last && frame - self.last <= NEAR_FRAMES;
        let grown = |last: &Request| (address - last.address) as usize / 8 + words;
        let near = self.requests.last_mut().filter(|last| is_near && grown(last) <= MOST_WORDS);
        let place = near.as_ref().map_or(0, |last| last.at + grown(last) - words);
        match near {
            Some(last) if place + words <= self.room.end => last.words = grown(last),
            Some(_) => return false,
            None => return self.request_apart(frame),
        }
        self.last = frame;
        self.places.push((place, self.requests.len() - 1));
        true
    }

    /// The same, by a request of its own.
    fn request_apart(&mut self, frame: u64) -> bool {
        let (address, words) = (self.address(frame), self.words());
        let at = self.requests.last().map_or(self.room.start, |last| last.at + last.words);
        if at + words > self.room.end || self.requests.len() == MOST_REQUESTS {
            return false;
        }
        self.requests.push(Request { address, words, at });
        self.last = frame;
        self.places.push((at, self.requests.len() - 1));
        true
    }

    /// Reads what was asked for.
    fn copy(&mut self, copier: &mut Copier) -> io::Result<()> {
        let readable = copier.copy(&self.requests)?;
        let (tables, copies) = (self.tables, copier.copies());
        let flags = |(at, request): (usize, usize)| if readable[request] { flags(tables, &copies[at..]) } else { 0 };
        self.flags.extend(self.places.drain(..).map(flags));
        self.requests.clear();
        Ok(())
    }

    fn address(&self, frame: u64) -> u64 {
        self.tables.anchors.vmemmap.wrapping_add(frame.wrapping_mul(self.tables.layout.page_bytes))
    }

    /// Words of a `struct page` that are needed, from its first on.
    fn words(&self) -> usize {
        let layout = &self.tables.layout;
        (layout.page_flags.max(layout.page_compound) / 8) as usize + 1
    }
}

/// What the words of a `struct page` say.
fn flags(tables: &PageTables, page: &[u64]) -> u64 {
    let head = page[tables.layout.page_flags as usize / 8] >> tables.layout.head_flag & 1;
    let tail = page[tables.layout.page_compound as usize / 8] & 1;
    (head * HEAD) | (tail * TAIL)
}

/// The frames of a run that are read: the first, and the multiples of `step` to the one behind the last.
fn frames(run: Run, step: u64) -> impl Iterator<Item = u64> {
    let multiples = run.frame / step + 1..=(run.frame + run.pages) / step;
    std::iter::once(run.frame).chain(multiples.map(move |at| at * step))
}

/// How many these are.
fn count(run: Run, step: u64) -> usize {
    1 + ((run.frame + run.pages) / step - run.frame / step) as usize
}

/// Which of them a frame is.
fn place(frame: u64, run: Run, step: u64) -> Option<usize> {
    let is_read =
        frame == run.frame || frame > run.frame && frame <= run.frame + run.pages && frame.is_multiple_of(step);
    is_read.then(|| (frame / step - run.frame / step) as usize)
}

impl Answers<'_, '_> {
    /// Turns to the next run.
    pub fn turn_to(&mut self, run: Run) {
        if self.run.pages > 0 {
            self.first += count(self.run, self.pages.step);
        }
        self.run = run;
    }
}

impl FrameFlags for Answers<'_, '_> {
    fn at(&mut self, frame: u64) -> io::Result<u64> {
        let place = place(frame, self.run, self.pages.step).map(|place| self.first + place);
        if let Some(flags) = place.and_then(|place| self.pages.flags.get(place)) {
            return Ok(*flags);
        }
        let (at, words) = (self.pages.room.start, self.pages.words());
        let readable = self.copier.copy(&[Request { address: self.pages.address(frame), words, at }])?[0];
        Ok(if readable { flags(self.pages.tables, &self.copier.copies()[at..]) } else { 0 })
    }

    fn expect(&mut self, _: Range<u64>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_frame_has_its_place(frame in 0u64..2000, pages in 1u64..600, order in 0u32..12, far in any::<bool>()) {
            let step = if far { 1 << 63 } else { 1 << order };
            let run = Run { page: 7, frame, pages };
            let all: Vec<u64> = frames(run, step).collect();
            prop_assert_eq!(all.len(), count(run, step));
            for asked in frame.saturating_sub(20)..frame + pages + 20 {
                prop_assert_eq!(place(asked, run, step), all.iter().position(|at| *at == asked), "{}", asked);
            }
        }
    }
}
