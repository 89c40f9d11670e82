//! Shell completions.

use clap::Command;
use clap_complete::Shell;

/// The script for a shell. Hidden verbs are not completed.
pub fn script(command: &Command, shell: Shell) -> String {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut visible = Command::new("pagelab").version(env!("CARGO_PKG_VERSION")).subcommands(verbs.cloned());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible, "pagelab", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
