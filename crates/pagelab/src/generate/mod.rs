//! Documents made from the program itself: the book's reference of commands and causes, manual pages, completions of shells.

mod causes;
mod reference;
mod shells;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};

use crate::failure::Failure;

/// What `pagelab generate` is told; the verb is for those who build pagelab, and hidden.
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

/// Writes what was asked for, from this command line.
///
/// # Errors
/// A file that cannot be written.
pub fn run(arguments: &GenerateArguments, mut command: Command) -> Result<(), Failure> {
    let (directory, written) = match &arguments.what {
        What::Reference { directory } => {
            command.build();
            let mut pages = reference::pages(&command);
            pages.push(("causes.md".to_owned(), causes::page()));
            (directory, write_pages(directory, &pages))
        }
        What::Man { directory } => (directory, clap_mangen::generate_to(command, directory)),
        What::Completions { directory } => (directory, shells::write(&command, directory)),
    };
    written.map_err(|error| Failure::about(directory, error))
}

fn write_pages(directory: &Path, pages: &[(String, String)]) -> io::Result<()> {
    fs::create_dir_all(directory.join("cli"))?;
    pages.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text))
}
