//! Parses the console output of a guest: the checks, and in each check the output of its commands ([`CheckOutput`]).

/// The prefix of lines that `init.sh` prints, by which they differ from the output of commands.
const MARK: &str = "@@ ";
/// How many characters of a failed command's output a message repeats at most.
const MAX_PRINTED: usize = 400;

/// A command that ran in a guest, and its output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandOutput {
    /// The name of the command in its check.
    pub name: String,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub error: String,
    /// The exit code; `None` if the guest ended first.
    pub code: Option<i32>,
}

/// The part of the output of one check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckOutput {
    /// The name of the check.
    pub check: String,
    /// What the check needed and was not available.
    pub needs: Vec<String>,
    /// The commands of the check, in order.
    pub ran: Vec<CommandOutput>,
    /// Whether the guest continued after the check.
    pub is_complete: bool,
}

impl CheckOutput {
    /// The command with this name.
    pub fn of(&self, name: &str) -> Result<&CommandOutput, String> {
        let ran = self.ran.iter().find(|ran| ran.name == name).ok_or_else(|| format!("{name} did not run"))?;
        if ran.code.is_none() { Err(format!("{name} did not end")) } else { Ok(ran) }
    }

    /// The standard output of a command that succeeded. If the command failed, the error contains its output.
    pub fn output(&self, name: &str) -> Result<&str, String> {
        let ran = self.of(name)?;
        if ran.code == Some(0) {
            return Ok(&ran.output);
        }
        let printed = format!("{}{}", ran.error, ran.output);
        let code = ran.code.unwrap_or(-1);
        let printed: String = printed.trim().replace('\n', " / ").chars().take(MAX_PRINTED).collect();
        Err(format!("{name} ended with {code}: {printed}"))
    }
}

/// Parses the console output.
pub fn read(console: &str) -> Vec<CheckOutput> {
    let mut parts: Vec<CheckOutput> = Vec::new();
    let mut is_error = false;
    for line in console.lines().map(|line| line.trim_end_matches('\r')) {
        let marked = line.strip_prefix(MARK).map(|words| words.split_once(' ').unwrap_or((words, "")));
        match (marked, parts.last_mut()) {
            (Some(("check", name)), last) => {
                last.into_iter().for_each(|part| part.is_complete = true);
                parts.push(CheckOutput { check: name.to_owned(), ..CheckOutput::default() });
            }
            (Some(("done", _)), Some(part)) => part.is_complete = true,
            (Some(("needs", what)), Some(part)) => part.needs.push(what.to_owned()),
            (Some(("run", name)), Some(part)) => {
                is_error = false;
                part.ran.push(CommandOutput { name: name.to_owned(), ..CommandOutput::default() });
            }
            (Some(("said", _)), _) => is_error = true,
            (Some(("ran", code)), Some(part)) => {
                if let Some(ran) = part.ran.last_mut() {
                    ran.code = code.parse().ok();
                }
            }
            (_, Some(part)) => {
                if let Some(ran) = part.ran.last_mut().filter(|ran| ran.code.is_none()) {
                    let text = if is_error { &mut ran.error } else { &mut ran.output };
                    text.push_str(line);
                    text.push('\n');
                }
            }
            (_, None) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_parsed() {
        let console = "[ 0.1] boots\n@@ check one\r\n@@ needs x of y\r\n@@ run a\r\n{\r\n}\r\n\r\n@@ said\r\nwarning\r\n@@ ran 0\r\n\
                       noise\n@@ check two\n@@ run b\nhalf";
        let parts = read(console);
        let names: Vec<(&str, bool)> = parts.iter().map(|part| (part.check.as_str(), part.is_complete)).collect();
        assert_eq!(names, [("one", true), ("two", false)]);
        let ran = parts[0].of("a").unwrap();
        assert_eq!((ran.output.as_str(), ran.error.as_str(), ran.code), ("{\n}\n\n", "warning\n", Some(0)));
        assert_eq!(parts[0].needs, ["x of y"]);
        assert!(parts[1].of("b").unwrap_err().contains("did not end"));
        assert!(parts[1].output("c").unwrap_err().contains("did not run"));
        assert!(read("nothing\nof ours\n").is_empty());
    }
}
