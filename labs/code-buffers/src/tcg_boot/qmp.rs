//! A client of QMP, QEMU's machine protocol: one JSON document per line (docs/interop/qmp-spec.txt of QEMU).

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use serde_json::{Value, json};

/// The monitor of a running QEMU, over its standard input and output.
pub struct Qmp {
    to: ChildStdin,
    from: Receiver<Value>,
    events: VecDeque<Value>,
}

/// Why no message arrived.
#[derive(Debug)]
pub enum NoReply {
    /// QEMU closed its end of the pipe.
    Ended,
    /// The time limit was reached.
    Late,
}

impl Qmp {
    /// Starts to read messages in a separate thread.
    pub fn new(to: ChildStdin, from: ChildStdout) -> io::Result<Qmp> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("monitor".into()).spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                // Lines that are not JSON are ignored, because libraries that QEMU uses may print, too.
                if let Ok(document) = serde_json::from_str(&line)
                    && sender.send(document).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Qmp { to, from: receiver, events: VecDeque::new() })
    }

    /// Sends a command; its answer arrives later.
    pub fn send(&mut self, command: &str, arguments: Value) -> io::Result<()> {
        let mut document = json!({ "execute": command });
        if !arguments.is_null() {
            document["arguments"] = arguments;
        }
        // The document is written with one call, because QEMU acts as soon as it is complete, and after `quit` it
        // closes the pipe.
        self.to.write_all(format!("{document}\n").as_bytes())
    }

    /// QEMU's greeting, which contains its version.
    pub fn greeting(&mut self, until: Instant) -> Result<Value, NoReply> {
        loop {
            let mut document = self.next(until)?;
            if document.get("QMP").is_some() {
                return Ok(document["QMP"].take());
            }
        }
    }

    /// The answer to the last command, success or error; events that arrive before it are queued.
    pub fn answer(&mut self, until: Instant) -> Result<Value, NoReply> {
        loop {
            let document = self.next(until)?;
            if document.get("event").is_some() {
                self.events.push_back(document);
            } else if document.get("return").is_some() || document.get("error").is_some() {
                return Ok(document);
            }
        }
    }

    /// Waits for the next event.
    pub fn event(&mut self, until: Instant) -> Result<Value, NoReply> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        loop {
            let document = self.next(until)?;
            if document.get("event").is_some() {
                return Ok(document);
            }
        }
    }

    fn next(&self, until: Instant) -> Result<Value, NoReply> {
        self.from.recv_timeout(until.saturating_duration_since(Instant::now())).map_err(|error| match error {
            RecvTimeoutError::Disconnected => NoReply::Ended,
            RecvTimeoutError::Timeout => NoReply::Late,
        })
    }
}
