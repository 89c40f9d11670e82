//! The kernel's `struct page`s of many frames, read in few calls.

use std::io;
use std::ops::Range;

use super::PageTables;
use crate::census::folio::{FrameFlags, HEAD, Orders, Run, TAIL};
use crate::kernel_memory::{Copier, MOST_REQUESTS, MOST_WORDS, Request};

/// What is known of blocks of two to this many frames and more is remembered: there are few of them.
const REMEMBERED_SHIFT: u32 = 8;
/// The shift where no folio is looked for: all memory is one block, of which nothing can be known.
const NO_FOLIOS: u32 = u64::BITS - 1;
/// Blocks that are remembered at most, from the first frame on: 16 TiB of blocks of 1 MiB.
const MOST_BLOCKS: usize = 16 << 20;

/// Frames that follow each other so closely are copied together, with what is between them.
const NEAR_FRAMES: u64 = 4;

/// What is known of the frames of some runs: whether they are heads or tails, as kpageflags shows it.
///
/// Of each run the first frame is read, and every one at which a folio of a possible size can begin or end. What else
/// is asked for, such as the head of a folio whose beginning the run does not have, is read when it is.
///
/// Where folios are large or not at all, the first page of a block as large as the smallest of them tells for all of
/// its frames: it belongs to the same folio, so where it is neither head nor tail, none of them is one of a folio that
/// is looked for. Frames that are scattered over memory are then told by a few thousand blocks.
pub struct Pages<'a> {
    tables: &'a PageTables,
    /// Where in the copies there is room, in words.
    room: Range<usize>,
    /// No folio of several pages is smaller than two to this: the step, by which blocks are counted too.
    shift: u32,
    /// The flags of what was read, run by run, in the order of frames.
    flags: Vec<u64>,
    /// What is to be read next: the requests, and for each frame its place among the copies and its request.
    requests: Vec<Request>,
    places: Vec<(usize, usize)>,
    last: u64,
    /// What is known of blocks.
    blocks: Vec<Block>,
}

/// What the first page of a block says of all its frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// It was not looked at, or is to be.
    Unknown,
    /// None of them belongs to a folio that is looked for.
    Single,
    /// Each must be looked at.
    Folios,
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
        let shift = match orders {
            Orders::Any => 0,
            Orders::Only(orders) => orders.first().copied().unwrap_or(NO_FOLIOS),
        };
        Pages {
            tables,
            room,
            shift,
            flags: Vec::new(),
            requests: Vec::new(),
            places: Vec::new(),
            last: 0,
            blocks: Vec::new(),
        }
    }

    /// Reads what will be asked for of these runs, and is ready to answer for the first of them.
    ///
    /// # Errors
    /// What the kernel said of the reading.
    pub fn read<'b>(
        &'b mut self,
        copier: &'b mut Copier,
        runs: impl Iterator<Item = Run> + Clone,
    ) -> io::Result<Answers<'a, 'b>> {
        if self.remembers() {
            self.read_blocks(copier, runs.clone())?;
        }
        self.flags.clear();
        for run in runs {
            if !self.are_single(run) {
                frames(run, self.shift).try_for_each(|frame| self.request_surely(copier, frame))?;
            }
        }
        self.copy(copier)?;
        Ok(Answers { pages: self, copier, run: Run { page: 0, frame: 0, pages: 0 }, first: 0 })
    }

    fn remembers(&self) -> bool {
        (REMEMBERED_SHIFT..NO_FOLIOS).contains(&self.shift)
    }

    /// Whether the frames of a run are known to belong to no folio that is looked for, because their block says so.
    fn are_single(&self, run: Run) -> bool {
        let block = run.frame >> self.shift;
        let is_inside = (run.frame + run.pages - 1) >> self.shift == block;
        is_inside && self.blocks.get(block as usize) == Some(&Block::Single)
    }

    /// Reads the first pages of the blocks in which these runs begin.
    fn read_blocks(&mut self, copier: &mut Copier, runs: impl Iterator<Item = Run>) -> io::Result<()> {
        let mut asked = Vec::new();
        self.flags.clear();
        let shift = self.shift;
        for block in runs.map(|run| (run.frame >> shift) as usize).filter(|block| *block < MOST_BLOCKS) {
            if block >= self.blocks.len() {
                self.blocks.resize(block + 1, Block::Unknown);
            }
            if self.blocks[block] == Block::Unknown {
                self.blocks[block] = Block::Folios;
                asked.push(block);
                self.request_surely(copier, (block as u64) << shift)?;
            }
        }
        self.copy(copier)?;
        for (block, flags) in asked.into_iter().zip(&self.flags) {
            self.blocks[block] = if *flags == 0 { Block::Single } else { Block::Folios };
        }
        Ok(())
    }

    /// Asks for one more frame, and makes room for it where there is none.
    fn request_surely(&mut self, copier: &mut Copier, frame: u64) -> io::Result<()> {
        if !self.request(frame) {
            self.copy(copier)?;
            self.request(frame);
        }
        Ok(())
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

/// The frames of a run that are read: the first, and the multiples of the step to the one behind the last.
fn frames(run: Run, shift: u32) -> impl Iterator<Item = u64> {
    let multiples = (run.frame >> shift) + 1..=(run.frame + run.pages) >> shift;
    std::iter::once(run.frame).chain(multiples.map(move |at| at << shift))
}

/// How many these are.
fn count(run: Run, shift: u32) -> usize {
    1 + (((run.frame + run.pages) >> shift) - (run.frame >> shift)) as usize
}

/// Which of them a frame is.
fn place(frame: u64, run: Run, shift: u32) -> Option<usize> {
    let is_inside = frame > run.frame && frame <= run.frame + run.pages;
    let is_read = frame == run.frame || is_inside && (frame >> shift) << shift == frame;
    is_read.then(|| ((frame >> shift) - (run.frame >> shift)) as usize)
}

impl Answers<'_, '_> {
    /// Whether the frames of a run are known to be single pages; there is no need to turn to it then.
    pub fn are_single(&self, run: Run) -> bool {
        self.pages.are_single(run)
    }

    /// Turns to the next run, of those that are not [`Answers::are_single`].
    pub fn turn_to(&mut self, run: Run) {
        if self.run.pages > 0 {
            self.first += count(self.run, self.pages.shift);
        }
        self.run = run;
    }
}

impl FrameFlags for Answers<'_, '_> {
    fn at(&mut self, frame: u64) -> io::Result<u64> {
        let place = place(frame, self.run, self.pages.shift).map(|place| self.first + place);
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
        #![proptest_config(testing::properties(256))]
        #[test]
        fn each_frame_has_its_place(frame in 0u64..2000, pages in 1u64..600, order in 0u32..12, far in any::<bool>()) {
            let shift = if far { NO_FOLIOS } else { order };
            let run = Run { page: 7, frame, pages };
            let all: Vec<u64> = frames(run, shift).collect();
            prop_assert_eq!(all.len(), count(run, shift));
            for asked in frame.saturating_sub(20)..frame + pages + 20 {
                prop_assert_eq!(place(asked, run, shift), all.iter().position(|at| *at == asked), "{}", asked);
            }
        }
    }
}
