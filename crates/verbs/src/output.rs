//! Writes the results of verbs: to the terminal, to files, and to the store.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use results::emphasis::{Emphasis, Line, Span};
use results::output::{self, Output};
use results::store::{self, Store};

use crate::failure::{Failure, report};
use crate::locale::fit_to_locale;

/// Opens the named store, or the default one. Creates it if it does not exist.
pub fn open_store(path: Option<&Path>) -> Result<Store, Failure> {
    open(&store_path(path)?)
}

/// Opens the named store, or the default one, for reading. If the store does not exist, the inner error is its path.
pub fn find_store(path: Option<&Path>) -> Result<Result<Store, PathBuf>, Failure> {
    let path = store_path(path)?;
    Ok(read_store(&path)?.ok_or(path))
}

/// Opens a store for reading; `None` if it does not exist or has never been written. No file is created or changed.
pub fn read_store(path: &Path) -> Result<Option<Store>, Failure> {
    Store::find(path, must_stop).map_err(Failure::input)
}

/// Opens a store. Its operations are cancelled once pagelab is asked to stop.
pub fn open(path: &Path) -> Result<Store, Failure> {
    Store::open_until(path, must_stop).map_err(Failure::input)
}

fn must_stop() -> bool {
    tracer::signals::arrived().is_some()
}

/// The path of the named store, or of the default one.
pub fn store_path(path: Option<&Path>) -> Result<PathBuf, Failure> {
    path.map_or_else(|| store::default_path().map_err(Failure::input), |path| Ok(path.to_path_buf()))
}

/// Fails if one of the files cannot be written; changes nothing.
pub fn can_be_written<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    files.into_iter().try_for_each(|file| output::check(file).map_err(Failure::input))
}

/// Writes a page and reports its path.
pub fn write_page(file: &Path, html: &str) -> Result<(), Failure> {
    write(file, &|to| to.write_all(html.as_bytes()))?;
    report(format_args!("report: {}", file.display()));
    Ok(())
}

/// Writes a file atomically, or writes to a pipe, whose reader may stop at any time.
pub fn write(file: &Path, content: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Failure> {
    write_update(file, content).map(drop)
}

/// Like [`write()`], but for a file that is written repeatedly: returns whether the file still has a reader.
pub fn write_update(file: &Path, content: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) -> Result<Reader, Failure> {
    let failed = |error: std::io::Error| {
        Failure::input(output::Error { path: file.to_path_buf(), why: output::Why::from(error) })
    };
    let mut to = std::io::BufWriter::new(Output::create(file).map_err(Failure::input)?);
    match content(&mut to).and_then(|()| to.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe && to.get_ref().is_stream() => {
            // The rest of the buffer has no reader. It must be dropped unwritten, because writing it would fail again.
            drop(to.into_parts());
            Ok(Reader::Gone)
        }
        Err(error) => Err(failed(error)),
        Ok(()) => {
            let written = to.into_inner().map_err(|error| failed(error.into_error()))?;
            written.finish().map_err(Failure::input).map(|()| Reader::Present)
        }
    }
}

/// Whether output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// There is a reader, as far as the kernel can tell.
    Present,
    /// The other end of the pipe (`| head`) or the terminal is closed, so periodic output ends.
    Gone,
}

impl Reader {
    /// Whether standard output has a reader, determined by poll(2) without writing.
    pub fn of_stdout() -> Reader {
        let stdout = std::io::stdout();
        let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
        let is_ready = poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        if is_ready && polled[0].revents().is_some_and(|events| events.intersects(gone)) {
            Reader::Gone
        } else {
            Reader::Present
        }
    }

    fn of(printed: std::io::Result<()>) -> Result<Reader, Failure> {
        match printed {
            Ok(()) => Ok(Reader::Present),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
            // A write to a closed terminal gives EIO, and so may a write to a disk; `of_stdout` distinguishes the two.
            Err(_) if Reader::of_stdout() == Reader::Gone => Ok(Reader::Gone),
            Err(error) => Err(Failure::Input(format!("standard output cannot be written: {error}"))),
        }
    }
}

/// Treats a closed pipe (`pagelab ... | head`) as success.
pub fn ignore_closed_pipe(printed: std::io::Result<()>) -> Result<(), Failure> {
    Reader::of(printed).map(drop)
}

/// Prints text, or a document (`json`). A document is UTF-8 whatever the locale. Control characters are escaped.
pub fn print(text: &str, json: bool) -> Result<(), Failure> {
    print_update(text, json).map(drop)
}

/// Like [`print()`], but for periodic output: returns whether standard output still has a reader.
pub fn print_update(text: &str, json: bool) -> Result<Reader, Failure> {
    let mut out = std::io::stdout().lock();
    Reader::of(if json {
        writeln!(out, "{}", results::printable_json(text))
    } else {
        writeln!(out, "{}", fit_to_locale(&wrapped_lines(&results::printable_lines(text))))
    })
}

/// Prints lines, with their emphasis if standard output is a terminal with colours. Control characters are escaped.
pub fn print_lines(lines: &[Line]) -> Result<(), Failure> {
    let has_colours = std::io::stdout().is_terminal() && !is_dumb() && !is_set("NO_COLOR");
    let span = |span: &Span| {
        let text = results::printable_lines(&span.text);
        let text = fit_to_locale(&text);
        match sgr(span.emphasis).filter(|_| has_colours) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.into_owned(),
        }
    };
    let line = |line: &Line| line.iter().map(span).collect::<String>();
    let text = lines.iter().map(line).collect::<Vec<_>>().join("\n");
    ignore_closed_pipe(writeln!(std::io::stdout().lock(), "{text}"))
}

/// The terminal's code of an emphasis (ECMA-48, Select Graphic Rendition).
fn sgr(emphasis: Emphasis) -> Option<u8> {
    match emphasis {
        Emphasis::None => None,
        Emphasis::Strong => Some(1),
        Emphasis::Faint => Some(2),
        Emphasis::Good => Some(32),
        Emphasis::Bad => Some(31),
        Emphasis::Doubtful => Some(33),
    }
}

/// Whether the terminal cannot move its cursor.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Whether an environment variable is set, and not empty.
pub fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Wraps lines that are longer than the terminal is wide. Lines indented by four spaces are kept as they are, because
/// they are commands to be copied, or have been wrapped already.
fn wrapped_lines(text: &str) -> Cow<'_, str> {
    let width = terminal_width();
    let is_long = |line: &str| line.chars().count() > width && !line.starts_with("    ");
    if !std::io::stdout().is_terminal() || !text.lines().any(is_long) {
        return text.into();
    }
    let lines =
        text.lines().map(|line| if is_long(line) { results::fold(line, width, 4).into() } else { Cow::from(line) });
    lines.collect::<Vec<_>>().join("\n").into()
}

/// Wraps a sentence between words if standard output is a terminal; otherwise the sentence stays on one line.
pub fn folded(sentence: String) -> String {
    if std::io::stdout().is_terminal() { results::fold(&sentence, terminal_width().min(100), 0) } else { sentence }
}

/// The width of the terminal in columns. If standard output is not a terminal: the value of COLUMNS, or 100.
pub fn terminal_width() -> usize {
    /// A smaller value of COLUMNS is taken as a mistake.
    const MIN_WIDTH: usize = 20;
    if !std::io::stdout().is_terminal() {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        return columns.filter(|columns| *columns >= MIN_WIDTH).unwrap_or(100);
    }
    usize::from(console::Term::stdout().size().1)
}

/// The lines of the terminal. If standard output is not a terminal: the value of LINES; `None` without one.
pub fn terminal_height() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return std::env::var("LINES").ok().and_then(|lines| lines.parse().ok()).filter(|lines| *lines > 0);
    }
    Some(usize::from(console::Term::stdout().size().0))
}
