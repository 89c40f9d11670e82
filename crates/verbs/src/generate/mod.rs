//! Documents generated from the program: the book's reference of commands and causes, manual pages, and shell completions.

mod causes;
mod reference;
mod shells;

use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use results::files;
use results::output::Error;

use crate::failure::Failure;
use crate::output::print;

/// Arguments of `pagelab generate`, a hidden verb for those who build pagelab.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    #[command(subcommand)]
    document: Document,
}

#[derive(Debug, Subcommand)]
enum Document {
    /// Pages of the book: the commands (`cli.md`, and a page per verb in `cli/`), and the causes (`causes.md`)
    Reference {
        /// The directory to write the pages to
        directory: PathBuf,
    },
}

/// Arguments of `pagelab man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// The directory to write the pages to, such as ~/.local/share/man/man1; it must exist
    directory: PathBuf,
}

/// Arguments of `pagelab completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell that reads the script
    shell: Shell,
}

/// Runs `pagelab man`: writes `pagelab.1`, and a page for each verb and subcommand.
///
/// # Errors
/// A file cannot be written.
pub fn man(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    manual(command, &arguments.directory).map_err(Failure::input)
}

/// Runs `pagelab completions`: prints a script for a shell.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(arguments: &CompletionsArguments, command: &Command) -> Result<(), Failure> {
    print(shells::script(command, arguments.shell).trim_end(), true)
}

/// Writes the requested documents from this command line.
pub fn run(arguments: &GenerateArguments, mut command: Command) -> Result<(), Failure> {
    match &arguments.document {
        Document::Reference { directory } => {
            command.build();
            let mut pages = reference::pages(&command);
            pages.push(("causes.md".to_owned(), causes::page()));
            files::make_directories(&directory.join("cli")).map_err(Failure::input)?;
            pages.iter().try_for_each(|(name, text)| files::write(&directory.join(name), text.as_bytes()))
        }
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
