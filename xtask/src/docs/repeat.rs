//! Makes those outputs of the book again that are the same on every machine, by running their commands ([`all`]).
//!
//! The commands of a page run one after the other, as a reader would type them, in a temporary directory for this page. So a
//! command may read a file that an earlier command wrote. The directory initially contains only links to the repository's files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::age::{self, Age};
use super::mark::{self, Mark};
use super::program::Program;

/// The page, with every repeatable output replaced by the current output of its command. Lines `$ command` above an output stay.
/// The mark of an output changes only if the output or the code that it shows has changed.
pub fn all(root: &Path, program: &Program, page: &str) -> Result<String, String> {
    chosen(root, program, page, Mark::is_repeatable)
}

/// Like [`all`], but replaces only the outputs whose marks satisfy `is_chosen`.
pub fn chosen(root: &Path, program: &Program, page: &str, is_chosen: impl Fn(&Mark) -> bool) -> Result<String, String> {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let mut marks = mark::read(page)?;
    marks.retain(is_chosen);
    // The outputs are replaced from the last to the first, so that a change in length does not move lines that are
    // still to be replaced.
    for (mark, made) in outputs(root, program, marks, &lines)?.iter().rev() {
        let (begin, end) = place(&lines, mark)?;
        let changed = lines[begin..end] != made[..];
        lines.splice(begin..end, made.iter().cloned());
        if changed || age::of(root, mark).is_ok_and(Age::is_older) {
            stamp(root, program, mark, &mut lines);
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The current output of the command of each mark, in the page's order.
fn outputs(
    root: &Path,
    program: &Program,
    marks: Vec<Mark>,
    lines: &[String],
) -> Result<Vec<(Mark, Vec<String>)>, String> {
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    marks.iter().try_for_each(|mark| place(lines, mark).map(drop))?;
    let directory =
        Directory::new(root).map_err(|error| format!("cannot make a directory for the commands: {error}"))?;
    let made = marks.into_iter().map(|mark| {
        let made = run(program, &directory.0, &mark.command).map_err(|problem| format!("{}: {problem}", mark.line))?;
        Ok((mark, made))
    });
    made.collect()
}

/// Whether the output of a mark has no lines other than those of its commands. An output without a fence is a part of the page
/// itself, for example a table.
pub fn is_empty(page: &str, mark: &Mark) -> bool {
    let lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let is_blank = |line: &&String| line.trim().is_empty();
    match fence(&lines, mark) {
        Some((begin, end)) => lines[begin..end].iter().all(|line| is_blank(&line)),
        None => {
            let next = lines.iter().skip(mark.after - 1).find(|line| !is_blank(line));
            next.is_none_or(|line| ["#", "<!--"].iter().any(|begin| line.starts_with(begin)))
        }
    }
}

/// A directory for the commands of a page, removed when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(root: &Path) -> std::io::Result<Directory> {
        let root = root.canonicalize()?;
        let id = format!("{}-{:?}", std::process::id(), std::thread::current().id());
        let directory = Directory(std::env::temp_dir().join(format!("pagelab-xtask-docs-{id}")));
        fs::create_dir(&directory.0)?;
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            symlink(entry.path(), directory.0.join(entry.file_name()))?;
        }
        Ok(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The range of lines of the output that follows the mark.
fn place(lines: &[String], mark: &Mark) -> Result<(usize, usize), String> {
    fence(lines, mark).ok_or_else(|| format!("{}: no fence follows the mark", mark.line))
}

/// The range of lines inside the fence, without the lines of the commands.
fn fence(lines: &[String], mark: &Mark) -> Option<(usize, usize)> {
    let begin = mark.after - 1;
    lines.get(begin).filter(|line| line.starts_with("```"))?;
    let end = begin + 1 + lines[begin + 1..].iter().position(|line| line.starts_with("```"))?;
    let commands = lines[begin + 1..end].iter().take_while(|line| line.starts_with("$ ")).count();
    Some((begin + 1 + commands, end))
}

fn run(program: &Program, directory: &Path, command: &str) -> Result<Vec<String>, String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(directory).env("LC_ALL", "C.UTF-8");
    shell.env("PATH", program.path());
    let output = shell.output().map_err(|error| format!("cannot run sh: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().lines().map(|line| line.trim_end().to_owned()).collect())
}

/// Writes the program's commit and today's date into the mark.
fn stamp(root: &Path, program: &Program, mark: &Mark, lines: &mut [String]) {
    let (date, _) = crate::command::stamp(root);
    for line in &mut lines[mark.line..mark.after] {
        if line.starts_with("commit: ") {
            *line = format!("commit: {}", program.commit);
        } else if line.starts_with("date: ") {
            *line = format!("date: {date}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_of(root: &Path, page: &str) -> Result<String, String> {
        all(root, &Program::of_checkout(root), page)
    }

    #[test]
    fn an_output_is_replaced_and_the_rest_of_the_page_stays() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = mark::tests::PAGE.replace("echo a < b", "printf 'b\\nc  \\n'") + "\nend\n";
        let made = made_of(&root, &page).unwrap();
        assert!(made.starts_with("# A\n\n<!-- output\n") && !made.contains("fd26ecc"), "{made}");
        assert!(made.ends_with("-->\n```\n$ echo old\nb\nc\n```\n\nend\n"), "{made}");
        assert_eq!(made_of(&root, &made).unwrap(), made);
    }

    #[test]
    fn commands_of_a_page_run_in_order_in_one_new_directory() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = |command: &str| mark::tests::PAGE.replace("echo a < b", command);
        let writes = page("test ! -e made.by.page && test -e Cargo.toml && echo one | tee made.by.page");
        let both = writes + &page("cat made.by.page made.by.page");
        let made = made_of(&root, &both).unwrap();
        assert!(made.contains("$ echo old\none\n```") && made.contains("$ echo old\none\none\n```"), "{made}");
        assert_eq!(made_of(&root, &made).unwrap(), made, "the first run left nothing behind");
        assert!(!root.join("made.by.page").exists());
    }

    #[test]
    fn an_output_with_only_commands_is_empty() {
        let is_empty = |page: &str| super::is_empty(page, &mark::read(page).unwrap()[0]);
        let page = mark::tests::PAGE;
        assert!(!is_empty(page));
        assert!(is_empty(&page.replace("old\nold\n", "old\n\n")));
        assert!(is_empty(&page.replace("$ echo old\nold\n", "")));
        let (mark, _) = page.split_once("```").unwrap();
        assert!(!is_empty(&format!("{mark}\n| a |\n|---|\n")));
        assert!(is_empty(mark) && is_empty(&format!("{mark}\n## B\n| a |\n")));
    }

    #[test]
    fn a_command_that_fails_and_an_output_without_a_fence_are_errors() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = mark::tests::PAGE;
        assert!(made_of(root, &page.replace("echo a < b", "exit 3")).unwrap_err().contains("exit 3"));
        assert_eq!(made_of(root, &page.replace("```\n", "")).unwrap_err(), "3: no fence follows the mark");
    }
}
