//! The commit that is built ([`Commit`]), its time, and whether files differ from it.

use std::path::Path;
use std::process::Command;

/// The variable that passes the commit to a build of the program (`crates/verbs/build.rs`).
pub const VARIABLE: &str = "PAGELAB_COMMIT";
/// The length of an abbreviated commit hash, in digits.
const DIGITS: usize = 12;

#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The full hash of the commit.
    pub name: String,
    /// The time of the commit, in seconds since 1970.
    pub time_s: u64,
    /// Whether tracked files differ from the commit.
    pub changed: bool,
}

impl Commit {
    /// The commit that is checked out.
    pub fn of(root: &Path) -> Result<Commit, String> {
        let line = git(root, &["log", "-1", "--format=%H %ct"])?;
        let (name, time) = line.trim().split_once(' ').ok_or("git log prints no commit")?;
        let time_s =
            time.parse().map_err(|_| format!("expected the time of the commit from git log, found {time:?}"))?;
        let changed = !git(root, &["status", "--porcelain", "-uno"])?.is_empty();
        Ok(Commit { name: name.to_owned(), time_s, changed })
    }

    /// The commit as `pagelab --version` prints it.
    pub fn text(&self) -> String {
        let short = self.short();
        if self.changed { format!("{short}, with changes") } else { short.to_owned() }
    }

    /// The version of the packages. It consists of the version of the workspace, the time of the commit, by which packages are
    /// ordered, and the commit's hash.
    pub fn version(&self, of_workspace: &str) -> String {
        let changed = if self.changed { ".changed" } else { "" };
        format!("{of_workspace}+{}.{}{changed}", day_and_minute(self.time_s), self.short())
    }

    fn short(&self) -> &str {
        &self.name[..self.name.len().min(DIGITS)]
    }
}

/// Year, month, day, hour and minute in UTC as one number of twelve digits (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", civil_from_days).
fn day_and_minute(time_s: u64) -> String {
    let (days, minutes) = (time_s / 86_400 + 719_468, time_s % 86_400 / 60);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}{:02}", minutes / 60, minutes % 60)
}

/// The standard output of git.
pub fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_ordered_by_the_time_of_their_commits() {
        let commit = Commit { name: "0123456789abcdef".to_owned(), time_s: 1_709_210_096, changed: false };
        assert_eq!(commit.version("0.1.0"), "0.1.0+202402291234.0123456789ab");
        let changed = Commit { changed: true, ..commit };
        assert_eq!(changed.version("0.1.0"), "0.1.0+202402291234.0123456789ab.changed");
        assert_eq!(changed.text(), "0123456789ab, with changes");
        assert_eq!((day_and_minute(0), day_and_minute(951_782_400)), ("197001010000".into(), "200002290000".into()));
    }
}
