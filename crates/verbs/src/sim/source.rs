//! Reads a trace file once ([`Source`]): its header, the memory of its program, then all accesses.

use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use indicatif::ProgressBar;
use model::replay::{Child, Replayed, infer, replay_accesses, replay_processes, touched};
use model::simulation::Simulation;
use model::tlb_geometry::{DEFAULT_WAYS, SweepError};
use results::input;
use trace::{Header, Image, Reader};

use super::ahead::ReadAhead;
use super::copied::tee;
use super::files::{bar, opened};
use super::request::Request;
use super::swept::{self, Swept};
use crate::failure::Failure;

/// A trace file that has been opened.
pub struct Source<'f, R> {
    file: &'f Path,
    bar: ProgressBar,
    from: ReadAhead<R>,
    /// The header of the trace.
    pub header: Header,
}

/// Opens a trace file.
pub fn open(file: &Path) -> Result<Source<'_, impl Read + Seek + use<>>, Failure> {
    let bar = bar(file, "");
    let mut from = ReadAhead::new(opened(file, &bar)?);
    let header = Reader::new(&mut from).map_err(|error| Failure::about(file, error))?.header().clone();
    Ok(Source { file, bar, from, header })
}

impl<R: Read + Seek> Source<'_, R> {
    /// Replays the trace into simulations.
    pub fn replayed(mut self, simulations: &mut [Simulation], request: &Request) -> Result<Replayed, Failure> {
        let memory = self.memory(request)?;
        let last_pass = self.from.last_pass().map_err(|error| Failure::about(self.file, error))?;
        let replayed = replay(self.file, last_pass, memory, simulations, request);
        self.bar.finish_and_clear();
        replayed
    }

    /// Like [`Source::replayed`], but also returns the misses of every TLB geometry, from the same pass over the file.
    pub fn replayed_and_swept(
        mut self,
        simulations: &mut [Simulation],
        request: &Request,
    ) -> Result<(Replayed, Swept), Failure> {
        let memory = self.memory(request)?;
        let file = self.file;
        let last_pass = self.from.last_pass().map_err(|error| Failure::about(file, error))?;
        let (original, copy) = tee(last_pass);
        let sweep = move || swept::sweep_file(file, copy, &swept::PAGE_SHIFTS, DEFAULT_WAYS, request.threads);
        let both = std::thread::scope(|scope| {
            let sweeping = std::thread::Builder::new()
                .spawn_scoped(scope, sweep)
                .map_err(|error| Failure::about(file, SweepError::NoThread(error)))?;
            let replayed = replay(file, original, memory, simulations, request)?;
            let swept = sweeping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((replayed, swept))
        });
        self.bar.finish_and_clear();
        both
    }

    /// The memory of the program, if it must be inferred from all touched pages: if calls are ignored, or if the trace does
    /// not record mappings. `None` if the trace records them.
    fn memory(&mut self, request: &Request) -> Result<Option<Vec<(u64, u64)>>, Failure> {
        let wrong = |error: io::Error| Failure::about(self.file, error);
        self.from.rewind().map_err(wrong)?;
        let memory = if request.accesses_only { touched(&mut self.from).map(Some) } else { infer(&mut self.from) };
        memory.map_err(|error| Failure::about(self.file, error))
    }
}

/// Replays the content of a trace file. `memory`: the result of [`Source::memory`].
fn replay(
    file: &Path,
    from: impl Read,
    memory: Option<Vec<(u64, u64)>>,
    simulations: &mut [Simulation],
    request: &Request,
) -> Result<Replayed, Failure> {
    let replayed = if request.accesses_only {
        replay_accesses(from, &memory.unwrap_or_default(), simulations, request.threads)
    } else {
        let child = &mut |image| child(file, image);
        replay_processes(from, child, memory.as_deref(), simulations, request.threads)
    };
    replayed.map_err(|error| Failure::about(file, error))
}

/// Opens the trace of a forked process, or of a program that a process executed, by the name that `record` gave it. A missing
/// file is not an error; a file that cannot be opened is.
fn child(file: &Path, image: Image) -> io::Result<Option<Child>> {
    let mut path = file.as_os_str().to_owned();
    path.push(image.suffix());
    let name = Path::new(&path).display().to_string();
    match input::open(Path::new(&path)).map_err(io::Error::from) {
        Ok(file) => Ok(Some(Child { name, from: Box::new(BufReader::with_capacity(1 << 20, file)) })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
    }
}
