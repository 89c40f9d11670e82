//! Shell completions.

use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use results::files;
use results::output::Error;

/// Each shell and the file name that it expects.
const FILES: [(Shell, &str); 3] = [(Shell::Bash, "pagelab"), (Shell::Zsh, "_pagelab"), (Shell::Fish, "pagelab.fish")];

/// Writes a file for each shell. Hidden verbs are not completed.
///
/// # Errors
/// A file cannot be written.
pub fn write(command: &Command, directory: &Path) -> Result<(), Error> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut visible = Command::new("pagelab").version(env!("CARGO_PKG_VERSION")).subcommands(verbs.cloned());
    FILES.into_iter().try_for_each(|(shell, name)| {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut visible, "pagelab", &mut script);
        files::write(&directory.join(name), &script)
    })
}
