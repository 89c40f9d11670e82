//! A client of QEMU's monitor protocol QMP: one line of JSON per message (`docs/interop/qmp-spec` of QEMU).

use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::leftovers;

/// The time limit for QEMU to connect and to answer.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The interval between checks for a connection.
const INTERVAL: Duration = Duration::from_millis(5);

/// A listening socket for QEMU's monitor, in a private directory, which is removed on drop.
#[derive(Debug)]
pub struct QmpListener {
    listener: UnixListener,
    directory: TempDir,
}

impl QmpListener {
    /// Creates the directory and the socket.
    pub fn open() -> io::Result<QmpListener> {
        let directory = leftovers::directory_in(&std::env::temp_dir())?;
        let listener = UnixListener::bind(directory.path().join("monitor"))?;
        listener.set_nonblocking(true)?;
        Ok(QmpListener { listener, directory })
    }

    /// The path of a file next to the socket.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.file("monitor")
    }

    /// Waits for QEMU to connect; `None` if QEMU ends first.
    pub fn accept(&self, has_ended: impl Fn() -> bool) -> io::Result<Option<Monitor>> {
        let begin = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Monitor::new(stream).map(Some),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if has_ended() => return Ok(None),
                Err(_) if begin.elapsed() > TIME_LIMIT => {
                    return Err(io::Error::other(format!("QEMU did not connect within {} s", TIME_LIMIT.as_secs())));
                }
                Err(_) => std::thread::sleep(INTERVAL),
            }
        }
    }
}

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn new(stream: UnixStream) -> io::Result<Monitor> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        let mut monitor = Monitor(BufReader::new(stream));
        monitor.line()?;
        monitor.execute(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    /// Starts the machine. QEMU may end before it can answer.
    pub fn resume(&mut self) -> io::Result<()> {
        self.execute_last(&json!({ "execute": "cont" }))
    }

    /// Quits QEMU, which may end before it can answer.
    pub fn quit(&mut self) -> io::Result<()> {
        self.execute_last(&json!({ "execute": "quit" }))
    }

    /// Sends a command after which QEMU may end without an answer.
    fn execute_last(&mut self, command: &Value) -> io::Result<()> {
        match self.execute(command) {
            Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Whether KVM executes the machine.
    pub fn has_kvm(&mut self) -> io::Result<bool> {
        let answer = self.execute(&json!({ "execute": "query-kvm" }))?;
        answer["enabled"].as_bool().ok_or_else(|| io::Error::other(format!("query-kvm: QEMU answers {answer}")))
    }

    /// The output of a human monitor command.
    pub fn ask(&mut self, command: &str) -> io::Result<String> {
        let request = json!({ "execute": "human-monitor-command", "arguments": { "command-line": command } });
        let answer = self.execute(&request)?;
        answer.as_str().map(str::to_owned).ok_or_else(|| io::Error::other(format!("{command}: QEMU answers {answer}")))
    }

    fn execute(&mut self, command: &Value) -> io::Result<Value> {
        writeln!(self.0.get_mut(), "{command}")?;
        loop {
            // Messages with neither `error` nor `return` are events, which are skipped.
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

/// A path as part of a QEMU argument: QEMU splits arguments at commas, and a doubled comma is a literal one.
pub fn escape_commas(path: &Path) -> Vec<u8> {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    bytes.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_waiting_when_qemu_ends() {
        let listener = QmpListener::open().unwrap();
        assert!(listener.accept(|| true).unwrap().is_none());
        let directory = listener.file("");
        let mode = std::os::unix::fs::PermissionsExt::mode(&directory.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        // Each recording has a directory of its own, even if processes in different namespaces have equal PIDs.
        assert_ne!(QmpListener::open().unwrap().file(""), directory);
        drop(listener);
        assert!(!directory.exists());
    }

    #[test]
    fn skips_events_and_reports_refusals() {
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
        assert!(monitor.resume().unwrap_err().to_string().contains("no such thing"));
        other.join().unwrap();
        assert!(monitor.resume().is_ok() && monitor.ask("info mtree").is_err());
    }

    #[test]
    fn commas_are_doubled() {
        assert_eq!(escape_commas(Path::new("/a,b")), b"/a,,b");
    }
}
