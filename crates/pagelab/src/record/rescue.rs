//! What a program that is killed had not written yet: its recorder keeps that in files that survive it, from which the
//! traces are finished.
//!
//! Files are called `PID.THREAD` (runs) and `PID.events`; [`trace::log`] says what is in them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trace::log::{LoggedEvent, RunLog};
use trace::{Rescue, Rescued};

use crate::failure::say;

/// Memory as a file system, where files cost no disk.
const MEMORY: &str = "/dev/shm";

/// The directory of the logs, which is removed at the end.
pub struct Logs(TempDir);

/// The logs of a process.
#[derive(Default)]
struct OfProcess {
    /// None where the recorder had no room for some log: what there is does not make the trace whole.
    events: Option<Vec<LoggedEvent>>,
    runs: Vec<RunLog>,
}

impl Logs {
    /// Makes the directory.
    ///
    /// # Errors
    /// Those of the directory for temporary files.
    pub fn open() -> io::Result<Logs> {
        let mut named = tempfile::Builder::new();
        named.prefix("pagelab-record-");
        named.tempdir_in(MEMORY).or_else(|_| named.tempdir()).map(Logs)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Finishes the traces of all processes that have ended; `output` is that of the process `first`.
    pub fn finish(self, output: &Path, first: u32) {
        for (process, logs) in self.read().into_iter().filter(|(process, _)| !is_running(*process)) {
            let path = if process == first { output.to_owned() } else { of_child(output, process) };
            match finish(&path, logs) {
                Ok(Rescued { torn: 0, missing: 0, .. }) => {}
                Ok(Rescued { torn, missing, .. }) => say(format_args!(
                    "pagelab: {}: the process was killed; {missing} runs of accesses are missing, and {torn} that it was in are left out",
                    path.display()
                )),
                Err(error) => say(format_args!("pagelab: {}: the trace of a killed process: {error}", path.display())),
            }
        }
    }

    fn read(&self) -> BTreeMap<u32, OfProcess> {
        let mut found: BTreeMap<u32, OfProcess> = BTreeMap::new();
        for entry in std::fs::read_dir(self.path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('.'));
            let Some((Ok(process), of)) = parts.map(|(process, of)| (process.parse(), of)) else { continue };
            let Ok(bytes) = std::fs::read(entry.path()) else { continue };
            let logs = found.entry(process).or_default();
            match of {
                "events" => logs.events = Some(LoggedEvent::read(&bytes)),
                _ => logs.runs.extend(RunLog::read(&bytes)),
            }
        }
        found
    }
}

/// The trace of a forked process.
fn of_child(output: &Path, process: u32) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(format!(".{process}"));
    path.into()
}

/// Whether a process may still write its trace itself.
fn is_running(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

fn finish(path: &Path, logs: OfProcess) -> Result<Rescued, Box<dyn std::error::Error>> {
    let Some(events) = logs.events else { return Ok(Rescued::default()) };
    let rescue = Rescue::of(BufReader::new(File::open(path)?))?;
    if !rescue.is_needed(&events, &logs.runs) {
        return Ok(Rescued::default());
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(rescue.end())?;
    file.seek(SeekFrom::Start(rescue.end()))?;
    Ok(rescue.write(io::BufWriter::new(file), events, &logs.runs)?)
}
