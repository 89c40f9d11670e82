//! Documents generated from the program: the book's reference of commands and causes, manual pages, and shell completions.

mod causes;
mod reference;
mod shells;

use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};
use clap_mangen::Man;
use results::files;
use results::output::Error;

use crate::failure::Failure;

/// Arguments of `pagelab generate`, a hidden verb for those who build pagelab.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Pages of the book: the commands (`cli.md`, and a page a verb in `cli/`), and the causes (`causes.md`)
    Reference {
        /// Where the pages go; it must be there
        directory: PathBuf,
    },
    /// Manual pages: `pagelab.1`, and one for each verb and each part of one
    Man {
        /// Where the pages go; it must be there
        directory: PathBuf,
    },
    /// Completions for bash (`pagelab`), zsh (`_pagelab`) and fish (`pagelab.fish`)
    Completions {
        /// Where the files go; it must be there
        directory: PathBuf,
    },
}

/// Writes the requested documents from this command line.
///
/// # Errors
/// A file cannot be written.
pub fn run(arguments: &GenerateArguments, mut command: Command) -> Result<(), Failure> {
    match &arguments.what {
        What::Reference { directory } => {
            command.build();
            let mut pages = reference::pages(&command);
            pages.push(("causes.md".to_owned(), causes::page()));
            files::make_directories(&directory.join("cli")).map_err(Failure::input)?;
            pages.iter().try_for_each(|(name, text)| files::write(&directory.join(name), text.as_bytes()))
        }
        What::Man { directory } => {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            manual(command, directory)
        }
        What::Completions { directory } => shells::write(&command, directory),
    }
    .map_err(Failure::input)
}

/// Writes manual pages of a command and of its subcommands that are not hidden.
fn manual(command: Command, directory: &Path) -> Result<(), Error> {
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()).cloned() {
        manual(part, directory)?;
    }
    let (page, mut text) = (Man::new(command), Vec::new());
    let path = directory.join(page.get_filename());
    page.render(&mut text).map_err(|error| Error { path: path.clone(), why: error.into() })?;
    files::write(&path, &text)
}
