//! [`Fragmented`]: keeps free memory fragmented while something is measured.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use tracer::child::die_with_parent;

use super::error::{PlatformError, last_words};

/// A process that keeps free memory fragmented. It gives everything back when it ends: when this value is dropped, or pagelab
/// ends.
#[derive(Debug)]
pub struct Fragmented {
    child: Child,
}

impl Fragmented {
    /// Runs a command that fragments memory, prints a line when that is done, and holds the memory until its standard input is
    /// closed.
    pub fn hold(mut command: Command) -> Result<Fragmented, PlatformError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_owned();
        let child = die_with_parent(&mut command).spawn().map_err(|error| PlatformError::Helper { program, error })?;
        let mut fragmented = Fragmented { child };
        let mut output_text = String::new();
        if let Some(output) = fragmented.child.stdout.as_mut() {
            BufReader::new(output).read_line(&mut output_text)?;
        }
        if output_text.ends_with('\n') {
            Ok(fragmented)
        } else {
            Err(PlatformError::NotFragmented { last_words: fragmented.last_words() })
        }
    }

    /// Checks that memory is still fragmented. An error means that the process has ended, so memory is no longer fragmented.
    pub fn check(&mut self) -> Result<(), PlatformError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => Err(PlatformError::NotFragmented { last_words: self.last_words() }),
        }
    }

    fn last_words(&mut self) -> String {
        let mut output_text = Vec::new();
        // The child has closed its output, so it is about to end.
        let _ = self.child.stderr.take().map(|mut errors| errors.read_to_end(&mut output_text));
        last_words(String::from_utf8_lossy(&output_text).trim())
    }
}

impl Drop for Fragmented {
    fn drop(&mut self) {
        // Closing the child's input ends it. An error of waiting cannot be reported here.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
