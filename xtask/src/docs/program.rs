//! The pagelab program that makes the outputs in pages ([`Program`]).

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, and the commit from which it was built.
pub struct Program {
    /// The directory of `pagelab`, for `PATH`.
    pub directory: PathBuf,
    /// The commit that is written into the marks of its outputs.
    pub commit: String,
}

impl Program {
    /// The debug build of this checkout that already exists.
    pub fn of_checkout(root: &Path) -> Program {
        let (_, commit) = crate::command::stamp(root);
        let commit = commit.split(' ').next().unwrap_or_default().to_owned();
        Program { directory: root.join("target/debug"), commit }
    }

    /// Makes a debug build of this checkout.
    pub fn build(root: &Path) -> Result<Program, String> {
        crate::command::succeed(crate::cargo(root).args(["build", "--quiet", "--package", "pagelab"]))?;
        Ok(Program::of_checkout(root))
    }

    /// The program with this path. Refused if its file name differs from `pagelab`, by which pages call it.
    pub fn named(file: &str) -> Result<Program, String> {
        let path = std::fs::canonicalize(file).map_err(|error| format!("{file}: {error}"))?;
        if path.file_name().is_none_or(|name| name != "pagelab") {
            return Err(format!("{file}: expected a program named pagelab, as in the commands of pages"));
        }
        let output = Command::new(&path).arg("--version").output().map_err(|error| format!("{file}: {error}"))?;
        let commit = crate::command::commit_in(&String::from_utf8_lossy(&output.stdout));
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Program { directory, commit: commit.chars().take(8).collect() })
    }

    /// `PATH` with the directory of this program in front.
    pub fn path(&self) -> String {
        format!("{}:{}", self.directory.display(), std::env::var("PATH").unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_exists_and_is_named_pagelab() {
        assert!(Program::named("/nowhere/pagelab").is_err_and(|why| why.starts_with("/nowhere/pagelab: ")));
        assert!(Program::named("/bin/sh").is_err_and(|why| why.contains("a program named pagelab")));
        let directory = std::env::temp_dir().join(format!("pagelab-xtask-program-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("pagelab");
        std::fs::write(&file, "#!/bin/sh\necho 'pagelab 0.1.0 (0123456789ab)'\n").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let program = Program::named(file.to_str().unwrap()).unwrap();
        assert_eq!(program.commit, "01234567");
        assert!(program.path().starts_with(&format!("{}:", program.directory.display())));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
