//! Gives two readers, in two threads, the bytes of one pass over a file ([`tee`]).

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How many chunks the second reader may lag behind the first. A reader of traces reads one block at a time.
const MAX_BEHIND: usize = 16;

/// The first reader, which reads the file.
pub struct Original<R> {
    from: R,
    copies: SyncSender<Vec<u8>>,
}

/// The second reader. It ends where the first reader has ended.
pub struct Copy {
    copies: Receiver<Vec<u8>>,
    chunk: io::Cursor<Vec<u8>>,
}

/// Two readers of the same bytes, for two threads. The first reader waits for the second, unless the second was
/// dropped.
pub fn tee<R: Read>(from: R) -> (Original<R>, Copy) {
    let (sender, copies) = sync_channel(MAX_BEHIND);
    (Original { from, copies: sender }, Copy { copies, chunk: io::Cursor::default() })
}

impl<R: Read> Read for Original<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        if read > 0 {
            // The second reader may have ended with an error, which it reports itself, so an error here is ignored.
            let _ = self.copies.send(buffer[..read].to_vec());
        }
        Ok(read)
    }
}

impl Read for Copy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.position() == self.chunk.get_ref().len() as u64 {
            let Ok(next) = self.copies.recv() else { return Ok(0) };
            self.chunk = io::Cursor::new(next);
        }
        self.chunk.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_read_the_same() {
        let content: Vec<u8> = (0..1_000_000u32).map(|number| (number % 253) as u8).collect();
        let (mut original, mut copy) = tee(&content[..]);
        let copied = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            copy.read_to_end(&mut bytes).map(|_| bytes)
        });
        let mut bytes = Vec::new();
        original.read_to_end(&mut bytes).unwrap();
        drop(original);
        assert_eq!((&bytes, &copied.join().unwrap().unwrap()), (&content, &content));
    }

    #[test]
    fn the_original_can_be_read_without_the_copy() {
        let content = [1; 100_000];
        let (mut original, copy) = tee(&content[..]);
        drop(copy);
        let mut bytes = Vec::new();
        assert_eq!(original.read_to_end(&mut bytes).unwrap(), content.len());
    }
}
