//! Keeps the end of a program's output, which a thread reads ([`Tail`]).

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The last bytes of a pipe, collected by a thread.
pub struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Tail {
    /// Reads until end of file in a thread, and keeps at least the last `kept_bytes` bytes and at most twice as many.
    pub fn of(mut from: impl Read + Send + 'static, kept_bytes: usize) -> io::Result<Tail> {
        let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = Arc::clone(&kept);
        let reader = std::thread::Builder::new().name("tail".into()).spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                let read = match from.read(&mut bytes) {
                    Ok(read @ 1..) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => return,
                };
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&bytes[..read]);
                if kept.len() > 2 * kept_bytes {
                    let surplus_bytes = kept.len() - kept_bytes;
                    kept.drain(..surplus_bytes);
                }
            }
        })?;
        Ok(Tail { kept, reader })
    }

    /// The text that is kept so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Whether the output has been read completely.
    pub fn is_complete(&self) -> bool {
        self.reader.is_finished()
    }

    /// Waits for end of file, and returns the kept text.
    pub fn wait(self) -> String {
        let Tail { kept, reader } = self;
        let _ = reader.join();
        String::from_utf8_lossy(&kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_of_the_output() {
        const KEPT_BYTES: usize = 1 << 20;
        let much = vec![b'.'; 5 * KEPT_BYTES];
        let text = Tail::of(io::Cursor::new([&much, &b"the end"[..]].concat()), KEPT_BYTES).unwrap().wait();
        assert!(text.ends_with("the end"));
        assert!((KEPT_BYTES..=2 * KEPT_BYTES).contains(&text.len()), "{}", text.len());
    }
}
