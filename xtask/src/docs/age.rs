//! The age of an output ([`Age`]): the number of commits that have changed the code that it shows since it was made.

use std::fmt;
use std::path::Path;
use std::process::Command;

use super::mark::Mark;

/// The age of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// The number of commits that have changed the code since then, changes of tests excluded. `None` if the history does not
    /// contain the commit with which the output was made, because the history is shallow or the commit was never part of it.
    commits: Option<usize>,
}

impl Age {
    /// Whether the code has changed since the output was made.
    pub fn is_older(self) -> bool {
        self.commits != Some(0)
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.commits {
            Some(0) => write!(f, "current            "),
            Some(commits) => write!(f, "older by {commits:3} commits"),
            None => write!(f, "of another history "),
        }
    }
}

/// The age of a marked output.
pub fn of(root: &Path, mark: &Mark) -> Result<Age, String> {
    if let Some(gone) = mark.code.iter().find(|path| !root.join(path).exists()) {
        return Err(format!("the code {gone} does not exist; update the path"));
    }
    let commits_since = |commit: &str| {
        let mut git = Command::new("git");
        git.current_dir(root).args(["rev-list", "--no-merges", "--count", &format!("{commit}..HEAD"), "--"]);
        git.args(&mark.code).arg(":(exclude)*/tests/*");
        let output = git.output().map_err(|error| format!("cannot run git: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().parse::<usize>().ok())
        } else {
            Err(format!("git: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    };
    match (commits_since(&mark.commit), commits_since("HEAD")) {
        (Ok(commits), _) => Ok(Age { commits }),
        (Err(_), Ok(_)) => Ok(Age { commits: None }),
        (Err(_), Err(problem)) => Err(problem),
    }
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
        let age = of(root, &mark).unwrap();
        assert_eq!((age.is_older(), age.to_string().trim()), (true, "of another history"));
        assert!(of(&root.join("none"), &mark).unwrap_err().contains("the code"));
        mark.code = vec!["gone".to_owned()];
        assert!(of(root, &mark).unwrap_err().starts_with("the code gone does not exist"));
    }
}
