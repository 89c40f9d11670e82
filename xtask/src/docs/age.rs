//! How old an output is: commits since it was made that changed the code which it shows.

use std::fmt;
use std::path::Path;
use std::process::Command;

use super::mark::Mark;

/// How old an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Commits since then that changed its code, tests left out.
    commits: usize,
}

impl Age {
    /// Whether its code changed since.
    pub fn is_older(self) -> bool {
        self.commits > 0
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.commits {
            0 => write!(f, "current            "),
            commits => write!(f, "older by {commits:3} commits"),
        }
    }
}

/// The age of a marked output.
///
/// # Errors
/// The commit is not in the history, a path of its code is not there, or git cannot be run.
pub fn of(root: &Path, mark: &Mark) -> Result<Age, String> {
    if let Some(gone) = mark.code.iter().find(|path| !root.join(path).exists()) {
        return Err(format!("the code {gone} is not there; name what it has become"));
    }
    let mut git = Command::new("git");
    git.current_dir(root).args(["rev-list", "--no-merges", "--count", &format!("{}..HEAD", mark.commit), "--"]);
    git.args(&mark.code).arg(":(exclude)*/tests/*");
    let output = git.output().map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the commit {} is not in the history: {}", mark.commit, said.trim()));
    }
    let count = String::from_utf8_lossy(&output.stdout);
    let commits = count.trim().parse().map_err(|_| format!("git counts no commits: {count}"))?;
    Ok(Age { commits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;
    use crate::docs::mark;

    fn git(root: &Path, words: &[&str]) -> String {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let output = Command::new("git").current_dir(root).args(identity).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn commits_to_the_code_make_an_output_older_and_others_do_not() {
        let scratch = Scratch::new("age");
        let root = &scratch.0;
        git(root, &["init", "--quiet"]);
        let commit = |path: &str, text: &str| {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
            git(root, &["add", "."]);
            git(root, &["commit", "--quiet", "--message", text]);
        };
        commit("crates/a/src/lib.rs", "one");
        commit("xtask/main.rs", "one more");
        let mut mark = mark::read(mark::tests::PAGE).unwrap().remove(0);
        mark.commit = git(root, &["rev-parse", "HEAD"]);
        commit("other", "two");
        commit("crates/a/tests/a.rs", "three");
        assert!(!of(root, &mark).unwrap().is_older());
        commit("crates/a/src/lib.rs", "four");
        assert_eq!(of(root, &mark).unwrap().to_string(), "older by   1 commits");
        mark.commit = "0123456".to_owned();
        assert!(of(root, &mark).unwrap_err().starts_with("the commit 0123456 is not in the history"));
        mark.code = vec!["gone".to_owned()];
        assert!(of(root, &mark).unwrap_err().starts_with("the code gone is not there"));
    }
}
