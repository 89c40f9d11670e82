//! [`Runs`] builds runs from the accesses of a thread. Every recorder and importer uses it.
//!
//! An access to the same page as the previous access of its stream adds to the current run, and changes a single word. An
//! access to another page ends that run and begins the next. Data accesses and fetches are two streams. Runs are ordered by
//! their first accesses, so the position of a run is known from its first access on.

use crate::run::{Kind, PAGE_SHIFT, Run};

/// The page address of an empty current run. No page has it, and no program has memory there.
const NO_PAGE: u64 = 1 << 63 | 1;
/// The position of an empty current run.
const NO_PLACE: usize = usize::MAX;
/// In [`Current::done`], the bits of the kinds start here; the lower bits count the accesses.
const BITS_SHIFT: u32 = u64::BITS - u8::BITS;

/// The current run of a stream.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// The address of its page.
    page: u64,
    /// The number of accesses, and the bits of their kinds above [`BITS_SHIFT`].
    done: u64,
    /// Its position among the runs.
    place: usize,
}

impl Current {
    const NONE: Current = Current { page: NO_PAGE, done: 0, place: NO_PLACE };

    #[inline(always)]
    fn add(&mut self, accesses: u64, bits: u8) {
        self.done = self.done.wrapping_add(accesses) | u64::from(bits) << BITS_SHIFT;
    }

    /// Writes the finished run to the buffer, if there is one.
    #[inline(always)]
    fn end(&self, runs: &mut [Run]) {
        if let Some(run) = runs.get_mut(self.place) {
            run.kind = Kind::finished((self.done >> BITS_SHIFT) as u8);
            run.accesses = self.done as u32;
        }
    }
}

/// Runs while they are built, in a buffer of fixed size.
#[derive(Clone, Debug)]
pub struct Runs {
    data: Current,
    fetch: Current,
    /// Number of runs.
    count: usize,
    /// The maximum number of runs; 0 while nothing is recorded.
    room: usize,
    /// Equal to `room`, or 0 while runs are guarded ([`Runs::guard`]).
    limit: usize,
    is_guarded: bool,
    /// Whether a fetch ends a run of data, and a data access a run of fetches, so that the order of all accesses is kept.
    in_sequence: bool,
    buffer: Box<[Run]>,
}

impl Runs {
    /// A buffer for at most `max_runs` runs.
    pub fn new(max_runs: usize) -> Runs {
        let buffer = vec![Run::default(); max_runs].into_boxed_slice();
        Runs {
            data: Current::NONE,
            fetch: Current::NONE,
            count: 0,
            room: max_runs,
            limit: max_runs,
            is_guarded: false,
            in_sequence: false,
            buffer,
        }
    }

    /// As [`Runs::new`], with data and fetches as one stream, so that runs do not overlap. Traces that keep every
    /// address need this.
    pub fn in_sequence(max_runs: usize) -> Runs {
        Runs { in_sequence: true, ..Runs::new(max_runs) }
    }

    /// Adds an access of `kind` (one bit, or [`Kind::MODIFY`]) to `address`. Returns `false`, without adding it, if
    /// there is no room.
    #[inline]
    pub fn access(&mut self, address: u64, kind: Kind) -> bool {
        let (page, is_fetch) = (page_of(address), kind == Kind::FETCH);
        if self.in_sequence {
            let other = if is_fetch { &mut self.data } else { &mut self.fetch };
            std::mem::replace(other, Current::NONE).end(&mut self.buffer);
        }
        if is_fetch { self.fetch(page, 1) } else { self.data(page, kind) }
    }

    /// Whether the `bytes` bytes at an address are all in the page of the current run of data.
    #[inline(always)]
    pub fn is_in_current_page(&self, address: u64, bytes: u64) -> bool {
        address.wrapping_sub(self.data.page) <= (1 << PAGE_SHIFT) - bytes
    }

    /// Adds an access to the page of the current run of data.
    #[inline(always)]
    pub fn add_to_current(&mut self, kind: Kind) {
        self.data.add(1, kind.added_bits());
    }

    /// Adds a data access to the page at the address `page`. Returns `false`, without adding it, if there is no room.
    #[inline(always)]
    pub fn data(&mut self, page: u64, kind: Kind) -> bool {
        if page == self.data.page {
            self.data.add(1, kind.added_bits());
            return true;
        }
        self.begin_data(page, kind, self.limit)
    }

    /// As [`Runs::data`], even while runs are guarded.
    #[inline(always)]
    pub fn add_data_anyway(&mut self, page: u64, kind: Kind) -> bool {
        if page == self.data.page {
            self.data.add(1, kind.added_bits());
            return true;
        }
        self.begin_data(page, kind, self.room)
    }

    #[inline(always)]
    fn begin_data(&mut self, page: u64, kind: Kind, limit: usize) -> bool {
        let is_room = self.begin(page, self.data, limit);
        if is_room {
            self.data = self.current(page, 1, kind.initial_bits());
        }
        is_room
    }

    /// Adds fetches in a page. Returns `false` as [`Runs::data`].
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        if page == self.fetch.page {
            self.fetch.add(fetches, 0);
            return true;
        }
        self.begin_fetch(page, fetches, self.limit)
    }

    /// As [`Runs::fetch`], even while runs are guarded.
    #[inline(always)]
    pub fn add_fetch_anyway(&mut self, page: u64, fetches: u64) -> bool {
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
            self.fetch = self.current(page, fetches, Kind::FETCH.bits());
        }
        is_room
    }

    /// Ends the current run of a stream and assigns the next its position, if there are fewer than `limit` runs.
    #[inline(always)]
    fn begin(&mut self, page: u64, finished: Current, limit: usize) -> bool {
        let is_room = self.count < limit;
        if is_room && let Some(run) = self.buffer.get_mut(self.count) {
            run.page = page >> PAGE_SHIFT;
            finished.end(&mut self.buffer);
            self.count += 1;
        }
        is_room
    }

    /// The current run for the last run in the buffer.
    #[inline(always)]
    fn current(&self, page: u64, accesses: u64, bits: u8) -> Current {
        Current { page, done: accesses | u64::from(bits) << BITS_SHIFT, place: self.count - 1 }
    }

    /// Adds a complete run, after which new runs begin. Returns `false` if there is no room.
    pub fn push(&mut self, run: Run) -> bool {
        self.end();
        let is_room = self.count < self.room;
        if is_room && let Some(place) = self.buffer.get_mut(self.count) {
            *place = run;
            self.count += 1;
        }
        is_room
    }

    /// Ends the current runs. The next accesses begin new ones.
    pub fn end(&mut self) {
        for current in [&mut self.data, &mut self.fetch] {
            std::mem::replace(current, Current::NONE).end(&mut self.buffer);
        }
    }

    /// Ends the current runs and returns all runs.
    pub fn finished(&mut self) -> &[Run] {
        self.end();
        &self.buffer[..self.count]
    }

    /// Removes all runs.
    pub fn clear(&mut self) {
        (self.data, self.fetch, self.count) = (Current::NONE, Current::NONE, 0);
    }

    /// Enables or disables recording from now on, and ends the current runs.
    pub fn admit(&mut self, runs: bool) {
        self.end();
        self.room = if runs { self.buffer.len() } else { 0 };
        self.guard(self.is_guarded);
    }

    /// While guarded, [`Runs::access`], [`Runs::data`] and [`Runs::fetch`] can begin no run, and act as if there were no room.
    /// [`Runs::add_data_anyway`], [`Runs::add_fetch_anyway`] and [`Runs::push`] still can.
    pub fn guard(&mut self, guards: bool) {
        self.is_guarded = guards;
        self.limit = if guards { 0 } else { self.room };
    }

    /// The number of runs, including the current ones.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The maximum number of runs.
    pub fn max_runs(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there is room for `runs` more runs. Ignores [`Runs::guard`].
    pub fn has_room(&self, runs: usize) -> bool {
        self.count + runs <= self.room
    }
}

/// The address of the page that contains `address`.
#[inline(always)]
pub const fn page_of(address: u64) -> u64 {
    address >> PAGE_SHIFT << PAGE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuples(runs: &[Run]) -> Vec<(u64, u8, u32)> {
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
        assert_eq!(tuples(runs.finished()), [(1, 1, 2), (8, 2 + 4 + 8, 2), (2, 1, 1), (9, 2 + 4, 2)]);
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
        assert_eq!(tuples(runs.finished()), [(1, 1, 1), (8, 2, 1), (1, 1, 2)]);
    }

    #[test]
    fn a_modifying_first_access_is_a_store() {
        let mut runs = Runs::new(8);
        // A fault prevented the store of the first instruction.
        for (address, kind) in
            [(0x1000, Kind::MODIFY), (0x2000, Kind::MODIFY), (0x2000, Kind::STORE), (0x3000, Kind::LOAD)]
        {
            assert!(runs.access(address, kind));
        }
        assert!(runs.access(0x3000, Kind::MODIFY) && runs.access(0x4000, Kind::STORE));
        assert_eq!(tuples(runs.finished()), [(1, 14, 1), (2, 14, 2), (3, 2, 2), (4, 4, 1)]);
    }

    #[test]
    fn a_full_buffer_refuses_runs() {
        let mut runs = Runs::new(2);
        assert!(runs.access(0x1000, Kind::LOAD) && runs.access(0x1000, Kind::FETCH));
        assert!(!runs.access(0x2000, Kind::LOAD) && !runs.push(Run::default()) && !runs.has_room(1));
        assert_eq!(tuples(runs.finished()), [(1, 2, 1), (1, 1, 1)]);
        runs.clear();
        runs.admit(false);
        assert!(!runs.access(0x2000, Kind::LOAD));
        runs.admit(true);
        assert!(runs.push(Run { page: 7, kind: Kind::KERNEL_LOAD, accesses: 1 }) && runs.access(0x7000, Kind::LOAD));
        assert_eq!(tuples(runs.finished()), [(7, 18, 1), (7, 2, 1)]);
    }

    #[test]
    fn guarded_runs_continue_and_begin_only_on_request() {
        let mut runs = Runs::new(4);
        assert!(runs.access(0x1000, Kind::LOAD));
        runs.guard(true);
        assert!(runs.access(0x1008, Kind::LOAD) && !runs.access(0x2000, Kind::LOAD) && runs.has_room(3));
        assert!(runs.add_data_anyway(0x2000, Kind::STORE) && !runs.access(0x3000, Kind::LOAD));
        assert!(
            !runs.access(0x5000, Kind::FETCH) && runs.add_fetch_anyway(0x5000, 2) && runs.add_fetch_anyway(0x5000, 1)
        );
        runs.admit(false);
        assert!(!runs.add_data_anyway(0x3000, Kind::LOAD) && !runs.add_fetch_anyway(0x6000, 1));
        runs.admit(true);
        assert!(!runs.access(0x3000, Kind::LOAD));
        runs.guard(false);
        assert!(runs.access(0x3000, Kind::LOAD));
        assert_eq!(tuples(runs.finished()), [(1, 2, 2), (2, 4, 1), (5, 1, 3), (3, 2, 1)]);
    }

    /// The naive implementation: for each access, searches for the run that it belongs to.
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
        fn agrees_with_the_oracle(accesses in proptest::collection::vec((0u64..4, 0usize..3), 0..400), in_sequence: bool) {
            let kinds = [Kind::FETCH, Kind::LOAD, Kind::STORE];
            let accesses: Vec<(u64, Kind)> = accesses.into_iter().map(|(page, kind)| (page, kinds[kind])).collect();
            let mut runs = if in_sequence { Runs::in_sequence(400) } else { Runs::new(400) };
            for (page, kind) in &accesses {
                prop_assert!(runs.access(page << PAGE_SHIFT | 8, *kind));
            }
            prop_assert_eq!(runs.finished(), &oracle(&accesses, in_sequence)[..]);
        }
    }
}
