//! A conversation with QEMU's monitor: QMP, a line of JSON each way (`docs/interop/qmp-spec` of QEMU).

use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::leftovers;

/// How long QEMU may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const INTERVAL: Duration = Duration::from_millis(5);

/// Where QEMU will be answered: a socket in a directory of its own, which goes with this value.
#[derive(Debug)]
pub struct Switchboard {
    listener: UnixListener,
    directory: TempDir,
}

impl Switchboard {
    /// Opens one.
    ///
    /// # Errors
    /// Those of the directory for temporary files.
    pub fn open() -> io::Result<Switchboard> {
        let directory = leftovers::directory_in(&std::env::temp_dir())?;
        let listener = UnixListener::bind(directory.path().join("monitor"))?;
        listener.set_nonblocking(true)?;
        Ok(Switchboard { listener, directory })
    }

    /// A file beside the socket.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.file("monitor")
    }

    /// Waits for QEMU to call; `None` if it ends before.
    ///
    /// # Errors
    /// Those of the socket, and a QEMU that does nothing.
    pub fn answer(&self, has_ended: impl Fn() -> bool) -> io::Result<Option<Monitor>> {
        let begin = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Monitor::new(stream).map(Some),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if has_ended() => return Ok(None),
                Err(_) if begin.elapsed() > PATIENCE => {
                    return Err(io::Error::other(format!("QEMU did not call within {} s", PATIENCE.as_secs())));
                }
                Err(_) => std::thread::sleep(INTERVAL),
            }
        }
    }
}

/// An open line to QEMU.
#[derive(Debug)]
pub struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn new(stream: UnixStream) -> io::Result<Monitor> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Monitor(BufReader::new(stream));
        monitor.line()?;
        monitor.execute(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    /// Lets the machine run. It may have come to its end before QEMU could answer.
    ///
    /// # Errors
    /// Those of the socket, and QEMU's.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.last(&json!({ "execute": "cont" }))
    }

    /// Ends QEMU, whatever the machine does. It may have ended before it could answer.
    ///
    /// # Errors
    /// Those of the socket, and QEMU's.
    pub fn quit(&mut self) -> io::Result<()> {
        self.last(&json!({ "execute": "quit" }))
    }

    /// Says something that QEMU may end with.
    fn last(&mut self, command: &Value) -> io::Result<()> {
        match self.execute(command) {
            Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Whether KVM executes the machine.
    ///
    /// # Errors
    /// Those of the socket, and QEMU's.
    pub fn has_kvm(&mut self) -> io::Result<bool> {
        let said = self.execute(&json!({ "execute": "query-kvm" }))?;
        said["enabled"].as_bool().ok_or_else(|| io::Error::other(format!("query-kvm: QEMU answers {said}")))
    }

    /// What a command of the monitor for people prints.
    ///
    /// # Errors
    /// Those of the socket, and QEMU's.
    pub fn ask(&mut self, command: &str) -> io::Result<String> {
        let asked = json!({ "execute": "human-monitor-command", "arguments": { "command-line": command } });
        let said = self.execute(&asked)?;
        said.as_str().map(str::to_owned).ok_or_else(|| io::Error::other(format!("{command}: QEMU answers {said}")))
    }

    fn execute(&mut self, command: &Value) -> io::Result<Value> {
        writeln!(self.0.get_mut(), "{command}")?;
        loop {
            // What is neither is an event.
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("QEMU refuses {command}: {error}")));
            }
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::Error::new(UnexpectedEof, "QEMU has closed its monitor"));
        }
        serde_json::from_str(&line).map_err(|error| io::Error::other(format!("QEMU says {line:?}: {error}")))
    }
}

/// A path as part of an argument of QEMU's, which splits at commas; two stand for one.
pub fn doubled(path: &Path) -> Vec<u8> {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    bytes.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_ends_is_not_waited_for() {
        let board = Switchboard::open().unwrap();
        assert!(board.answer(|| true).unwrap().is_none());
        let directory = board.file("");
        let mode = std::os::unix::fs::PermissionsExt::mode(&directory.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        // Two recordings, even of processes with the same number in other namespaces, have two.
        assert_ne!(Switchboard::open().unwrap().file(""), directory);
        drop(board);
        assert!(!directory.exists());
    }

    #[test]
    fn events_are_passed_over_and_refusals_told() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut theirs_read = BufReader::new(theirs.try_clone().unwrap());
        let mut theirs = theirs;
        let other = std::thread::spawn(move || {
            let mut line = String::new();
            writeln!(theirs, r#"{{"QMP":{{}}}}"#).unwrap();
            for answer in [
                r#"{"return":{}}"#,
                "{\"event\":\"RESUME\"}\n{\"return\":\"text\"}",
                r#"{"error":{"desc":"no such thing"}}"#,
            ] {
                line.clear();
                theirs_read.read_line(&mut line).unwrap();
                writeln!(theirs, "{answer}").unwrap();
            }
        });
        let mut monitor = Monitor::new(ours).unwrap();
        assert_eq!(monitor.ask("info mtree").unwrap(), "text");
        assert!(monitor.go_on().unwrap_err().to_string().contains("no such thing"));
        other.join().unwrap();
        assert!(monitor.go_on().is_ok() && monitor.ask("info mtree").is_err());
    }

    #[test]
    fn commas_are_doubled() {
        assert_eq!(doubled(Path::new("/a,b")), b"/a,,b");
    }
}
