//! Where results go: the terminal, files, the store.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use results::store::{self, Store};

use crate::failure::{Failure, say};

/// Opens the store that was named, or the default one; makes it where there is none.
pub fn open_store(path: Option<&Path>) -> Result<Store, Failure> {
    Store::open(store_path(path)?).map_err(Failure::input)
}

/// Opens the store that was named, or the default one, to read it; the path where there is none.
pub fn find_store(path: Option<&Path>) -> Result<Result<Store, PathBuf>, Failure> {
    let path = store_path(path)?;
    match path.try_exists() {
        Ok(false) => Ok(Err(path)),
        // What keeps one from looking keeps one from opening it, and is said there.
        Ok(true) | Err(_) => Store::open(path).map(Ok).map_err(Failure::input),
    }
}

fn store_path(path: Option<&Path>) -> Result<PathBuf, Failure> {
    path.map_or_else(|| store::default_path().map_err(Failure::input), |path| Ok(path.to_path_buf()))
}

/// Refuses files that cannot be written, and leaves none where there was none.
pub fn can_be_written<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    for file in files {
        let was_there = file.exists();
        std::fs::OpenOptions::new().append(true).create(true).open(file).map_err(|error| {
            Failure::Input(format!("{} cannot be written: {error}; name another file", file.display()))
        })?;
        if !was_there {
            let _ = std::fs::remove_file(file);
        }
    }
    Ok(())
}

/// Writes a page and says where it is.
pub fn write_page(file: &Path, html: &str) -> Result<(), Failure> {
    write(file, &|to| to.write_all(html.as_bytes()))?;
    say(format_args!("report: {}", file.display()));
    Ok(())
}

/// Writes a file.
pub fn write(file: &Path, content: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Failure> {
    let failed = |error| Failure::Input(format!("{} cannot be written: {error}", file.display()));
    let mut to = std::io::BufWriter::new(std::fs::File::create(file).map_err(failed)?);
    content(&mut to).and_then(|()| to.flush()).map_err(failed)
}

/// `pagelab ... | head` is no error.
pub fn ignore_closed_pipe(printed: std::io::Result<()>) -> Result<(), Failure> {
    match printed {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Input(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// A sentence as it is printed: folded between words on a terminal, one line elsewhere.
pub fn folded(sentence: String) -> String {
    match std::io::stdout().is_terminal() {
        true => results::fold(&sentence, terminal_width().min(100), 0),
        false => sentence,
    }
}

/// Columns of the terminal; 100 elsewhere.
pub fn terminal_width() -> usize {
    if !std::io::stdout().is_terminal() {
        return 100;
    }
    usize::from(console::Term::stdout().size().1)
}
