//! Fetches Debian's packages for any release and architecture, without root ([`Archive`]). apt gets a separate state directory in
//! the cache, so that the packages installed on this machine do not change, and apt checks every signature.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::cache::Work;

/// Debian's archive keys (package debian-archive-keyring).
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The packages of one release for one architecture.
#[derive(Debug)]
pub struct Archive {
    /// The name of the release, such as trixie or sid.
    pub release: String,
    /// Debian's name of the architecture.
    pub architecture: &'static str,
    state: PathBuf,
}

impl Archive {
    /// Opens the archive, whose package lists are in a directory of the cache. Fetches the lists if they are missing, or if
    /// `again` is true. If that fails, prints a message and uses the existing lists.
    pub fn open(cache: &Path, release: &str, architecture: &'static str, again: bool) -> Result<Archive, String> {
        let state = cache.join(format!("apt/{release}-{architecture}"));
        let archive = Archive { release: release.to_owned(), architecture, state };
        if !again && archive.state.join("fetched").is_file() {
            return Ok(archive);
        }
        match archive.update() {
            Err(problem) if archive.state.join("fetched").is_file() => {
                println!("{problem}; using the lists that were fetched before");
                Ok(archive)
            }
            outcome => outcome.map(|()| archive),
        }
    }

    /// Fetches the package lists.
    fn update(&self) -> Result<(), String> {
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", self.state.display());
        for directory in ["lists/partial", "archives/partial", "parts"] {
            fs::create_dir_all(self.state.join(directory)).map_err(cannot)?;
        }
        fs::write(self.state.join("status"), "").map_err(cannot)?;
        let sources = Mirrors::of_apt()?.sources(&self.release, self.architecture);
        fs::write(self.state.join("sources.list"), sources).map_err(cannot)?;
        println!("==> apt-get update for {} on {}", self.release, self.architecture);
        succeeded(self.apt("apt-get").args(["update", "-q"]))?;
        fs::write(self.state.join("fetched"), "").map_err(cannot)
    }

    /// A command of apt that uses only the state directory of this archive.
    fn apt(&self, program: &str) -> Command {
        let state = self.state.display();
        let mut command = Command::new(program);
        let mut option = |name: &str, value: String| {
            command.args(["-o".to_owned(), format!("{name}={value}")]);
        };
        option("Dir::State", state.to_string());
        option("Dir::State::status", format!("{state}/status"));
        option("Dir::Cache", state.to_string());
        option("Dir::Etc::sourcelist", format!("{state}/sources.list"));
        option("Dir::Etc::sourceparts", format!("{state}/parts"));
        option("Dir::Etc::preferencesparts", format!("{state}/parts"));
        option("APT::Architecture", self.architecture.to_owned());
        option("APT::Architectures", self.architecture.to_owned());
        option("APT::Sandbox::User", "root".to_owned());
        option("APT::Update::Error-Mode", "any".to_owned());
        option("Acquire::Languages", "none".to_owned());
        for target in ["DEP-11", "DEP-11-icons-small", "DEP-11-icons", "DEP-11-icons-hidpi"] {
            option(&format!("Acquire::IndexTargets::deb::{target}::DefaultEnabled"), "false".to_owned());
        }
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// The newest version of a package; `None` if there is no such package.
    pub fn newest(&self, package: &str) -> Result<Option<String>, String> {
        let policy = succeeded(self.apt("apt-cache").args(["policy", package]))?;
        Ok(candidate(&policy))
    }

    /// The names of the packages that the newest version of a package depends on.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>, String> {
        let shown = succeeded(self.apt("apt-cache").args(["show", "--no-all-versions", package]))
            .map_err(|problem| format!("{} has no {package}: {problem}", self.name()))?;
        let line = shown.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or_default();
        let names = line.split(',').filter_map(|one| one.split_whitespace().next());
        Ok(names.map(str::to_owned).collect())
    }

    /// Fetches the newest version of a package into the temporary directory of this run, and returns its file.
    pub fn fetch(&self, package: &str, work: &Work) -> Result<PathBuf, String> {
        let into = work.path.join(format!("{}-{}-{package}", self.release, self.architecture));
        fs::create_dir_all(&into).map_err(|error| format!("cannot make {}: {error}", into.display()))?;
        println!("==> apt-get download {package} of {}", self.name());
        succeeded(self.apt("apt-get").args(["download", "-q", package]).current_dir(&into))?;
        let mut files = fs::read_dir(&into).into_iter().flatten().flatten().map(|entry| entry.path());
        let file = files.find(|path| path.extension().is_some_and(|end| end == "deb"));
        file.ok_or_else(|| format!("apt-get download {package} left no file in {}", into.display()))
    }

    /// Fetches packages with all their dependencies into the temporary directory of this run, as apt would install them on an
    /// empty machine. Returns their files, sorted by name. apt's patterns (`?essential`) are allowed in place of package names.
    pub fn fetch_all(&self, packages: &[&str], work: &Work) -> Result<Vec<PathBuf>, String> {
        let into = work.path.join(format!("{}-{}", self.release, self.architecture));
        let cannot = |error: std::io::Error| format!("cannot make {}: {error}", into.display());
        fs::create_dir_all(into.join("partial")).map_err(cannot)?;
        println!("==> apt-get install --download-only {} of {}", packages.join(" "), self.name());
        let mut apt = self.apt("apt-get");
        apt.args(["-o", &format!("Dir::Cache::archives={}", into.display())]);
        apt.args(["install", "-q", "--yes", "--no-install-recommends", "--download-only"]).args(packages);
        succeeded(&mut apt)?;
        let files = fs::read_dir(&into).map_err(cannot)?.flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
        files.sort();
        Ok(files)
    }

    /// The archive as text for a message.
    pub fn name(&self) -> String {
        format!("Debian {} for {}", self.release, self.architecture)
    }
}

/// The Debian mirrors in the apt configuration of this machine.
#[derive(Debug, PartialEq)]
pub struct Mirrors {
    /// The mirror of the releases, in contrast to that of the security updates.
    pub main: String,
    security: Option<String>,
}

impl Mirrors {
    /// Reads the mirrors from this machine's apt sources.
    pub fn of_apt() -> Result<Mirrors, String> {
        let format = "$(ORIGIN)/$(LABEL) $(REPO_URI)";
        let targets = succeeded(Command::new("apt-get").args(["indextargets", "--format", format]))?;
        read_mirrors(&targets)
            .ok_or_else(|| "apt has no Debian source here; add one to its sources, and run apt-get update".to_owned())
    }

    /// The lines of sources.list(5) for a release, with its security updates.
    pub fn sources(&self, release: &str, architecture: &str) -> String {
        let line = |uri: &str, suite: &str| format!("deb [arch={architecture} signed-by={KEYS}] {uri} {suite} main\n");
        let security = self.security.as_ref().filter(|_| release != "sid");
        let security = security.map(|uri| line(uri, &format!("{release}-security"))).unwrap_or_default();
        line(&self.main, release) + &security
    }
}

fn read_mirrors(targets: &str) -> Option<Mirrors> {
    let of = |origin: &str| {
        let uri = targets.lines().find_map(|line| line.strip_prefix(origin)?.strip_prefix(' '))?;
        Some(uri.trim_end_matches('/').to_owned())
    };
    Some(Mirrors { main: of("Debian/Debian")?, security: of("Debian/Debian-Security") })
}

/// The version that apt would install, from the output of `apt-cache policy`.
fn candidate(policy: &str) -> Option<String> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

/// Unpacks a package without installing it.
pub fn unpack(archive: &Path, into: &Path) -> Result<(), String> {
    succeeded(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(into)).map(drop)
}

/// Unpacks a package into a directory that already has other packages, and in which directories may be symbolic links
/// (a merged /usr).
pub fn unpack_among(archive: &Path, into: &Path) -> Result<(), String> {
    let words = ["-x", "--keep-directory-symlink", "-f", "-", "-C"];
    if piped(archive, |from| Command::new("tar").args(words).arg(into).stdin(from).status())? {
        Ok(())
    } else {
        Err(format!("{} cannot be unpacked", archive.display()))
    }
}

/// Pipes the files of a package, as a tar archive, into the command that `to` starts. Returns whether both commands
/// succeeded.
fn piped(archive: &Path, to: impl FnOnce(Stdio) -> std::io::Result<ExitStatus>) -> Result<bool, String> {
    let cannot = |error: std::io::Error| format!("cannot unpack {}: {error}", archive.display());
    let mut unpacking = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(archive).stdout(Stdio::piped()).spawn();
    let unpacking = unpacking.as_mut().map_err(|error| format!("cannot run dpkg-deb: {error}"))?;
    let tar = unpacking.stdout.take().ok_or("dpkg-deb has no output")?;
    let extracted = to(tar.into());
    let unpacked = unpacking.wait().map_err(cannot)?;
    Ok(extracted.map_err(cannot)?.success() && unpacked.success())
}

/// Extracts one file from a package.
pub fn unpack_file(archive: &Path, path: &str, to: &Path) -> Result<(), String> {
    let file = fs::File::create(to).map_err(|error| format!("cannot unpack {}: {error}", archive.display()))?;
    let extract =
        |from: Stdio| Command::new("tar").args(["-x", "-O", "-f", "-", path]).stdin(from).stdout(file).status();
    if piped(archive, extract)? {
        return Ok(());
    }
    Err(format!("{} has no {path}: the package has changed; adapt xtask", archive.display()))
}

/// Extracts the files of a package that match any of these patterns. A pattern without a match is no error, because the files
/// differ between versions of a package.
pub fn unpack_matching(archive: &Path, patterns: &[&str], into: &Path) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot unpack {}: {error}", archive.display());
    fs::create_dir_all(into).map_err(cannot)?;
    let mut unpacking = Command::new("dpkg-deb");
    let mut unpacking = unpacking.arg("--fsys-tarfile").arg(archive).stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let tar = unpacking.stdout.take().ok_or("dpkg-deb has no output")?;
    let mut extracting = Command::new("tar");
    extracting.args(["-x", "-f", "-", "--wildcards"]).arg("-C").arg(into).args(patterns);
    extracting.stdin(tar).stderr(Stdio::null()).status().map_err(cannot)?;
    if unpacking.wait().map_err(cannot)?.success() {
        Ok(())
    } else {
        Err(format!("dpkg-deb cannot unpack {}", archive.display()))
    }
}

/// The standard output of a command that succeeds.
fn succeeded(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run {program}: {error}; this needs Debian's apt"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed: {}", errors.trim()))
}

/// Makes the top-level directories, and the symbolic links to them, that packages for a merged /usr expect.
pub fn merged(root: &Path) -> std::io::Result<()> {
    for name in ["bin", "sbin", "lib"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(release: &str) -> Archive {
        Archive { release: release.to_owned(), architecture: "riscv64", state: PathBuf::from("/nowhere") }
    }

    #[test]
    fn mirrors_are_those_of_debian_alone() {
        let targets = "other/other http://x/\nDebian/Debian http://m/debian/\nDebian/Debian-Security http://m/s/\n";
        let found = read_mirrors(targets).unwrap();
        assert_eq!(found, Mirrors { main: "http://m/debian".into(), security: Some("http://m/s".into()) });
        assert_eq!(read_mirrors("Ubuntu/Ubuntu http://u/\n"), None);
        let lines = found.sources("trixie", "riscv64");
        assert_eq!(lines.matches("signed-by=/usr/share/keyrings/").count(), 2, "{lines}");
        assert!(lines.contains("] http://m/s trixie-security main\n"), "{lines}");
        assert_eq!(found.sources("sid", "riscv64").lines().count(), 1);
    }

    #[test]
    fn a_package_that_is_gone_has_no_version() {
        assert_eq!(candidate("x:\n  Installed: (none)\n  Candidate: 1:2.3-4\n").unwrap(), "1:2.3-4");
        assert_eq!((candidate("x:\n  Candidate: (none)\n"), candidate("")), (None, None));
    }

    #[test]
    fn apt_reads_no_state_of_the_machine() {
        let command = archive("sid").apt("apt-get");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        for name in
            ["Dir::State=", "Dir::State::status=", "Dir::Cache=", "Dir::Etc::sourcelist=", "Dir::Etc::sourceparts="]
        {
            assert!(words.iter().any(|word| word.starts_with(&format!("{name}/nowhere"))), "{name}: {words:?}");
        }
    }
}
