//! Outputs that are the same everywhere are made anew by their commands.

use std::path::Path;
use std::process::Command;

use super::age::{self, Age};
use super::mark::{self, Mark};

/// The page with every repeatable output as its command prints it now. The line `$ command` above an output stays. So does a
/// mark whose output has not changed, unless its code has.
///
/// # Errors
/// A mark that is wrong, a command that fails, an output without a fence.
pub fn all(root: &Path, page: &str) -> Result<String, String> {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    // From the end on: what changes in length does not move what is still to come.
    for mark in mark::read(page)?.iter().rev().filter(|mark| mark.is_repeatable()) {
        let place = format!("{}: ", mark.line);
        let (begin, end) = fence(&lines, mark).ok_or_else(|| format!("{place}no fence follows the mark"))?;
        let made = run(root, &mark.command).map_err(|problem| place + &problem)?;
        let changed = lines[begin..end] != made[..];
        lines.splice(begin..end, made);
        if changed || age::of(root, mark).is_ok_and(Age::is_older) {
            stamp(root, mark, &mut lines);
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The lines of the output, without its fences and the line of its command.
fn fence(lines: &[String], mark: &Mark) -> Option<(usize, usize)> {
    let begin = mark.after - 1;
    lines.get(begin).filter(|line| line.starts_with("```"))?;
    let end = begin + 1 + lines[begin + 1..].iter().position(|line| line.starts_with("```"))?;
    let command = usize::from(lines[begin + 1].starts_with("$ "));
    Some((begin + 1 + command, end))
}

fn run(root: &Path, command: &str) -> Result<Vec<String>, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(root).env("LC_ALL", "C.UTF-8");
    shell.env("PATH", format!("{}:{path}", root.join("target/debug").display()));
    let output = shell.output().map_err(|error| format!("cannot run sh: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().lines().map(|line| line.trim_end().to_owned()).collect())
}

/// Writes this commit and day into the mark.
fn stamp(root: &Path, mark: &Mark, lines: &mut [String]) {
    let (date, commit) = crate::command::stamp(root);
    for line in &mut lines[mark.line..mark.after] {
        if line.starts_with("commit: ") {
            *line = format!("commit: {}", commit.split(' ').next().unwrap_or_default());
        } else if line.starts_with("date: ") {
            *line = format!("date: {date}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_made_anew_and_the_rest_of_the_page_stays() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = mark::tests::PAGE.replace("echo a < b", "printf 'b\\nc  \\n'") + "\nend\n";
        let made = all(&root, &page).unwrap();
        assert!(made.starts_with("# A\n\n<!-- output\n") && !made.contains("fd26ecc"), "{made}");
        assert!(made.ends_with("-->\n```\n$ echo old\nb\nc\n```\n\nend\n"), "{made}");
        assert_eq!(all(&root, &made).unwrap(), made);
    }

    #[test]
    fn a_command_that_fails_and_an_output_without_a_fence_are_errors() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = mark::tests::PAGE;
        assert!(all(root, &page.replace("echo a < b", "exit 3")).unwrap_err().contains("exit 3"));
        assert_eq!(all(root, &page.replace("```\n", "")).unwrap_err(), "3: no fence follows the mark");
    }
}
