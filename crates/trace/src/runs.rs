//! Making runs of the accesses of a thread: what every recorder and importer does.
//!
//! An access to the page of the one before adds to the current run of its stream, which is two words; another one ends that
//! run and begins the next. Data accesses and fetches are two streams. Runs stand in the order of their first accesses, so
//! that each has its place from its beginning on.

use crate::run::{Kind, PAGE_SHIFT, Run};

/// What no page has for its address: a current run of nothing. No program has memory there.
const NO_PAGE: u64 = 1 << 63 | 1;
/// Where no run stands.
const NOWHERE: usize = usize::MAX;
/// Accesses of the current run stand below its bits.
const BITS_SHIFT: u32 = u64::BITS - u8::BITS;

/// The current run of a stream.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// The address of its page.
    page: u64,
    /// How many accesses it has, and from [`BITS_SHIFT`] on the bits of what they do.
    done: u64,
    /// Where it stands among the runs.
    place: usize,
}

impl Current {
    const NONE: Current = Current { page: NO_PAGE, done: 0, place: NOWHERE };

    #[inline(always)]
    fn add(&mut self, accesses: u64, bits: u8) {
        self.done = self.done.wrapping_add(accesses) | u64::from(bits) << BITS_SHIFT;
    }

    /// Writes what came of the run, if there is one.
    #[inline(always)]
    fn end(&self, runs: &mut [Run]) {
        if let Some(run) = runs.get_mut(self.place) {
            run.kind = Kind::made((self.done >> BITS_SHIFT) as u8);
            run.accesses = self.done as u32;
        }
    }
}

/// Runs while they are made, in a buffer that does not grow.
#[derive(Clone, Debug)]
pub struct Runs {
    data: Current,
    fetch: Current,
    /// How many there are.
    count: usize,
    /// How many there may be: none while nothing is recorded.
    room: usize,
    /// As many, or none where somebody is asked before a run begins.
    limit: usize,
    is_guarded: bool,
    /// A fetch ends a run of data and the other way round, so that no order is lost.
    in_sequence: bool,
    buffer: Box<[Run]>,
}

impl Runs {
    /// A buffer for so many runs.
    pub fn new(most: usize) -> Runs {
        let buffer = vec![Run::default(); most].into_boxed_slice();
        Runs {
            data: Current::NONE,
            fetch: Current::NONE,
            count: 0,
            room: most,
            limit: most,
            is_guarded: false,
            in_sequence: false,
            buffer,
        }
    }

    /// The same for runs that stand one after the other: data and fetches are one stream. What keeps every address needs
    /// this.
    pub fn in_sequence(most: usize) -> Runs {
        Runs { in_sequence: true, ..Runs::new(most) }
    }

    /// Adds an access of `kind` (one bit, or [`Kind::MODIFY`]) to `address`. `false`: nothing was done, because there is no
    /// room.
    #[inline]
    pub fn access(&mut self, address: u64, kind: Kind) -> bool {
        let (page, is_fetch) = (page_of(address), kind == Kind::FETCH);
        if self.in_sequence {
            let other = if is_fetch { &mut self.data } else { &mut self.fetch };
            std::mem::replace(other, Current::NONE).end(&mut self.buffer);
        }
        if is_fetch { self.fetch(page, 1) } else { self.data(page, kind) }
    }

    /// Whether an address lies in the page of the current run of data, with at least `bytes` bytes of that behind it.
    #[inline(always)]
    pub fn is_in_current_page(&self, address: u64, bytes: u64) -> bool {
        address.wrapping_sub(self.data.page) <= (1 << PAGE_SHIFT) - bytes
    }

    /// Adds an access to the page of the current run of data.
    #[inline(always)]
    pub fn add_to_current(&mut self, kind: Kind) {
        self.data.add(1, kind.added());
    }

    /// Adds an access to data in a page, which is given by its address. `false`: nothing was done, because there is no room.
    #[inline(always)]
    pub fn data(&mut self, page: u64, kind: Kind) -> bool {
        if page == self.data.page {
            self.data.add(1, kind.added());
            return true;
        }
        self.begin_data(page, kind, self.limit)
    }

    /// The same, though runs are guarded.
    #[inline(always)]
    pub fn let_data_in(&mut self, page: u64, kind: Kind) -> bool {
        if page == self.data.page {
            self.data.add(1, kind.added());
            return true;
        }
        self.begin_data(page, kind, self.room)
    }

    #[inline(always)]
    fn begin_data(&mut self, page: u64, kind: Kind, limit: usize) -> bool {
        let is_room = self.begin(page, self.data, limit);
        if is_room {
            self.data = self.begun(page, 1, kind.begun());
        }
        is_room
    }

    /// Adds fetches in a page. `false` as for data.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        if page == self.fetch.page {
            self.fetch.add(fetches, 0);
            return true;
        }
        self.begin_fetch(page, fetches, self.limit)
    }

    /// The same, though runs are guarded.
    #[inline(always)]
    pub fn let_fetch_in(&mut self, page: u64, fetches: u64) -> bool {
        if page == self.fetch.page {
            self.fetch.add(fetches, 0);
            return true;
        }
        self.begin_fetch(page, fetches, self.room)
    }

    #[inline(always)]
    fn begin_fetch(&mut self, page: u64, fetches: u64, limit: usize) -> bool {
        let is_room = self.begin(page, self.fetch, limit);
        if is_room {
            self.fetch = self.begun(page, fetches, Kind::FETCH.bits());
        }
        is_room
    }

    /// Ends the current run of a stream and gives the next its place, if there are fewer than `limit`.
    #[inline(always)]
    fn begin(&mut self, page: u64, ended: Current, limit: usize) -> bool {
        let is_room = self.count < limit;
        if is_room && let Some(run) = self.buffer.get_mut(self.count) {
            run.page = page >> PAGE_SHIFT;
            ended.end(&mut self.buffer);
            self.count += 1;
        }
        is_room
    }

    /// The run that was begun last.
    #[inline(always)]
    fn begun(&self, page: u64, accesses: u64, bits: u8) -> Current {
        Current { page, done: accesses | u64::from(bits) << BITS_SHIFT, place: self.count - 1 }
    }

    /// Adds a whole run, behind which others begin. `false` as for an access.
    pub fn push(&mut self, run: Run) -> bool {
        self.end();
        let is_room = self.count < self.room;
        if is_room && let Some(place) = self.buffer.get_mut(self.count) {
            *place = run;
            self.count += 1;
        }
        is_room
    }

    /// Ends the current runs: what comes next begins others.
    pub fn end(&mut self) {
        for current in [&mut self.data, &mut self.fetch] {
            std::mem::replace(current, Current::NONE).end(&mut self.buffer);
        }
    }

    /// Ends the current runs and gives all.
    pub fn ended(&mut self) -> &[Run] {
        self.end();
        &self.buffer[..self.count]
    }

    /// Forgets all runs.
    pub fn clear(&mut self) {
        (self.data, self.fetch, self.count) = (Current::NONE, Current::NONE, 0);
    }

    /// Lets runs be added from now on, or none. The current ones end.
    pub fn admit(&mut self, runs: bool) {
        self.end();
        self.room = if runs { self.buffer.len() } else { 0 };
        self.guard(self.is_guarded);
    }

    /// Lets accesses begin no runs from now on, as if there were no room, but by [`Runs::let_data_in`] and
    /// [`Runs::let_fetch_in`]; or lets them again.
    pub fn guard(&mut self, guards: bool) {
        self.is_guarded = guards;
        self.limit = if guards { 0 } else { self.room };
    }

    /// How many runs there are, the current ones included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there may be at most.
    pub fn most(&self) -> usize {
        self.buffer.len()
    }

    /// Whether so many more can be begun now.
    pub fn has_room(&self, runs: usize) -> bool {
        self.count + runs <= self.room
    }
}

/// The address of the page that an address is in.
#[inline(always)]
pub const fn page_of(address: u64) -> u64 {
    address >> PAGE_SHIFT << PAGE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(runs: &[Run]) -> Vec<(u64, u8, u32)> {
        runs.iter().map(|run| (run.page, run.kind.bits(), run.accesses)).collect()
    }

    #[test]
    fn data_and_fetches_are_two_streams_in_the_order_of_their_first_accesses() {
        let mut runs = Runs::new(8);
        for (address, kind) in [
            (0x1000, Kind::FETCH),
            (0x8000, Kind::STORE),
            (0x1004, Kind::FETCH),
            (0x8ff8, Kind::LOAD),
            (0x2000, Kind::FETCH),
            (0x9000, Kind::LOAD),
            (0x9008, Kind::STORE),
        ] {
            assert!(runs.access(address, kind));
        }
        assert_eq!(told(runs.ended()), [(1, 1, 2), (8, 2 + 4 + 8, 2), (2, 1, 1), (9, 2 + 4, 2)]);
        runs.clear();
        assert!(runs.is_empty());
    }

    #[test]
    fn in_sequence_every_change_begins_a_run() {
        let mut runs = Runs::in_sequence(8);
        for (address, kind) in
            [(0x1000, Kind::FETCH), (0x8000, Kind::LOAD), (0x1004, Kind::FETCH), (0x1008, Kind::FETCH)]
        {
            assert!(runs.access(address, kind));
        }
        assert_eq!(told(runs.ended()), [(1, 1, 1), (8, 2, 1), (1, 1, 2)]);
    }

    #[test]
    fn what_modifies_asks_to_store_where_it_is_first() {
        let mut runs = Runs::new(8);
        // A fault has prevented the first store.
        for (address, kind) in
            [(0x1000, Kind::MODIFY), (0x2000, Kind::MODIFY), (0x2000, Kind::STORE), (0x3000, Kind::LOAD)]
        {
            assert!(runs.access(address, kind));
        }
        assert!(runs.access(0x3000, Kind::MODIFY) && runs.access(0x4000, Kind::STORE));
        assert_eq!(told(runs.ended()), [(1, 14, 1), (2, 14, 2), (3, 2, 2), (4, 4, 1)]);
    }

    #[test]
    fn without_room_nothing_is_done() {
        let mut runs = Runs::new(2);
        assert!(runs.access(0x1000, Kind::LOAD) && runs.access(0x1000, Kind::FETCH));
        assert!(!runs.access(0x2000, Kind::LOAD) && !runs.push(Run::default()) && !runs.has_room(1));
        assert_eq!(told(runs.ended()), [(1, 2, 1), (1, 1, 1)]);
        runs.clear();
        runs.admit(false);
        assert!(!runs.access(0x2000, Kind::LOAD));
        runs.admit(true);
        assert!(runs.push(Run { page: 7, kind: Kind::KERNEL_LOAD, accesses: 1 }) && runs.access(0x7000, Kind::LOAD));
        assert_eq!(told(runs.ended()), [(7, 18, 1), (7, 2, 1)]);
    }

    #[test]
    fn guarded_runs_go_on_and_begin_where_they_are_let_in() {
        let mut runs = Runs::new(4);
        assert!(runs.access(0x1000, Kind::LOAD));
        runs.guard(true);
        assert!(runs.access(0x1008, Kind::LOAD) && !runs.access(0x2000, Kind::LOAD) && runs.has_room(3));
        assert!(runs.let_data_in(0x2000, Kind::STORE) && !runs.access(0x3000, Kind::LOAD));
        assert!(!runs.access(0x5000, Kind::FETCH) && runs.let_fetch_in(0x5000, 2) && runs.let_fetch_in(0x5000, 1));
        runs.admit(false);
        assert!(!runs.let_data_in(0x3000, Kind::LOAD) && !runs.let_fetch_in(0x6000, 1));
        runs.admit(true);
        assert!(!runs.access(0x3000, Kind::LOAD));
        runs.guard(false);
        assert!(runs.access(0x3000, Kind::LOAD));
        assert_eq!(told(runs.ended()), [(1, 2, 2), (2, 4, 1), (5, 1, 3), (3, 2, 1)]);
    }

    /// The slow way: every access is looked for a run that it belongs to.
    fn oracle(accesses: &[(u64, Kind)], in_sequence: bool) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (page, kind) in accesses {
            let of_stream = |run: &Run| in_sequence || (run.kind == Kind::FETCH) == (*kind == Kind::FETCH);
            let last = runs.iter_mut().rev().find(|run| of_stream(run));
            match last.filter(|run| run.page == *page && (run.kind == Kind::FETCH) == (*kind == Kind::FETCH)) {
                Some(run) => {
                    run.kind = run.kind.then(*kind);
                    run.accesses += 1;
                }
                None => runs.push(Run { page: *page, kind: *kind, accesses: 1 }),
            }
        }
        runs
    }

    proptest! {
        #![proptest_config(testing::properties(256))]

        #[test]
        fn runs_are_what_each_access_makes(accesses in proptest::collection::vec((0u64..4, 0usize..3), 0..400), in_sequence: bool) {
            let kinds = [Kind::FETCH, Kind::LOAD, Kind::STORE];
            let accesses: Vec<(u64, Kind)> = accesses.into_iter().map(|(page, kind)| (page, kinds[kind])).collect();
            let mut runs = if in_sequence { Runs::in_sequence(400) } else { Runs::new(400) };
            for (page, kind) in &accesses {
                prop_assert!(runs.access(page << PAGE_SHIFT | 8, *kind));
            }
            prop_assert_eq!(runs.ended(), &oracle(&accesses, in_sequence)[..]);
        }
    }
}
