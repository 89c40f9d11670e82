//! Lets the beginning of a trace be read several times, although the file is read once ([`ReadAhead`]).
//!
//! Before the first access is simulated it must be known which machine simulates the trace, and which memory its program
//! has. Recordings describe that memory in their first blocks. Imported traces may not describe it; then it follows only
//! from all accesses.

use std::io::{self, Read, Seek};

/// How much of a file is kept. Recordings need a few KiB. A larger trace that does not describe its memory is read twice,
/// because keeping its compressed bytes would take more memory than most simulations.
const MAX_KEPT_BYTES: usize = 256 << 20;

/// A file whose first bytes are kept, to be read again after a rewind.
#[derive(Debug)]
pub struct ReadAhead<R> {
    from: R,
    kept: Vec<u8>,
    /// How many of the kept bytes have been read since the last rewind.
    used: usize,
    max_kept_bytes: usize,
    keeping: Keeping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// Everything read so far is kept.
    All,
    /// More was read than may be kept, so nothing is kept.
    TooMuch,
    /// This is the last pass: nothing will be read again.
    Nothing,
}

impl<R: Read + Seek> ReadAhead<R> {
    /// Begins at the current position of `from`, which must be the beginning of the file.
    pub fn new(from: R) -> ReadAhead<R> {
        ReadAhead { from, kept: Vec::new(), used: 0, max_kept_bytes: MAX_KEPT_BYTES, keeping: Keeping::All }
    }

    /// Returns to the beginning. Fails if more was read than could be kept and the file cannot seek.
    pub fn rewind(&mut self) -> io::Result<()> {
        if self.keeping == Keeping::TooMuch {
            self.from.rewind()?;
            self.keeping = Keeping::All;
        }
        self.used = 0;
        Ok(())
    }

    /// Returns to the beginning for the last pass.
    pub fn last_pass(mut self) -> io::Result<ReadAhead<R>> {
        self.rewind()?;
        self.keeping = Keeping::Nothing;
        Ok(self)
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.kept.len() + bytes.len() <= self.max_kept_bytes {
            self.kept.extend(bytes);
            self.used = self.kept.len();
        } else {
            (self.kept, self.used, self.keeping) = (Vec::new(), 0, Keeping::TooMuch);
        }
    }
}

impl<R: Read + Seek> Read for ReadAhead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut left = &self.kept[self.used..];
        if !left.is_empty() {
            let read = left.read(buffer)?;
            self.used += read;
            return Ok(read);
        }
        if self.keeping == Keeping::Nothing {
            (self.kept, self.used) = (Vec::new(), 0);
        }
        let read = self.from.read(buffer)?;
        if self.keeping == Keeping::All {
            self.keep(&buffer[..read]);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, SeekFrom};

    use super::*;

    /// A reader that counts the bytes that are read from it.
    struct Counted<'a>(Cursor<&'a [u8]>, &'a mut usize);

    impl Read for Counted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            *self.1 += read;
            Ok(read)
        }
    }

    impl Seek for Counted<'_> {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    /// The bytes that two partial reads and the last pass return, and how many bytes were read from the file.
    fn read(content: &[u8], peeks: [usize; 2], max_kept_bytes: usize) -> (Vec<Vec<u8>>, usize) {
        let (mut all, mut count) = (Vec::new(), 0);
        let mut ahead = ReadAhead { max_kept_bytes, ..ReadAhead::new(Counted(Cursor::new(content), &mut count)) };
        for peek in peeks {
            let mut bytes = Vec::new();
            ahead.by_ref().take(peek as u64).read_to_end(&mut bytes).unwrap();
            ahead.rewind().unwrap();
            all.push(bytes);
        }
        let mut whole = Vec::new();
        ahead.last_pass().unwrap().read_to_end(&mut whole).unwrap();
        all.push(whole);
        (all, count)
    }

    #[test]
    fn every_byte_is_read_from_the_file_once() {
        let content: Vec<u8> = (0..100_000u32).map(|number| (number % 251) as u8).collect();
        for peeks in [[0, 0], [10, 5000], [5000, 10], [100_000, 0], [200_000, 200_000]] {
            let (all, count) = read(&content, peeks, MAX_KEPT_BYTES);
            let expected = peeks.map(|peek| content[..peek.min(content.len())].to_vec());
            assert_eq!((&all[..2], &all[2], count), (&expected[..], &content, content.len()), "{peeks:?}");
        }
    }

    #[test]
    fn reads_content_twice_that_is_too_large_to_keep() {
        let content = [7; 1000];
        let (all, count) = read(&content, [10, 1000], 100);
        assert_eq!((all[1].len(), all[2].len()), (1000, 1000));
        assert_eq!(count, 2000);
    }
}
