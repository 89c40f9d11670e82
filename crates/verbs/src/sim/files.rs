//! Opens trace files with a progress bar, and reports damage in them.

use std::io::{BufReader, ErrorKind, IsTerminal, Read, Seek};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use results::input;
use trace::{Header, Reader};

use crate::failure::{Failure, report};

/// Opens a trace; reading it advances the bar.
pub fn opened(file: &Path, bar: &ProgressBar) -> Result<impl Read + Seek + use<>, Failure> {
    let opened = input::open(file).map_err(|error| match error {
        input::Error::System(error) if error.kind() == ErrorKind::NotFound => Failure::Input(format!(
            "{}: {error}; pagelab record -o FILE -- COMMAND makes a trace, and pagelab trace import converts those of other tools",
            file.display()
        )),
        error => Failure::about(file, error),
    })?;
    Ok(bar.wrap_read(BufReader::with_capacity(1 << 20, opened)))
}

/// Reads the header of a trace.
pub fn header(file: &Path) -> Result<Header, Failure> {
    let reader = Reader::new(opened(file, &ProgressBar::hidden())?).map_err(|error| Failure::about(file, error))?;
    Ok(reader.header().clone())
}

/// A progress bar over the bytes of a file; hidden if standard error is not a terminal.
pub fn bar(file: &Path, what: &str) -> ProgressBar {
    let bytes = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{elapsed:>5} {bar:24} {percent:>3} % {wide_msg} {eta} left");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_message(results::printable(&format!("{} {what}", file.display())));
    bar
}

/// Reports which parts of a trace could not be used.
pub fn report_damage(file: &Path, damage: &[String]) {
    let file = results::printable(&file.display().to_string());
    for damage in damage {
        report(format_args!("pagelab: {file}: {}; it was skipped", results::printable(damage)));
    }
}
