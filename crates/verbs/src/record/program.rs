//! Resolves the recorded command: its [`Program`], the [`Emulator`] that it needs, and the plugin.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use trace::executable::{Architecture, ExecutableKind, FIRST_BYTES, MAX_SCRIPTS, executable_kind};
use tracer::LaunchError;

use super::PLUGIN_VARIABLE;
use super::error::RecordError;

/// The environment variable that tells the plugin which version of QEMU's plugin API to use, if it cannot detect that.
pub const VERSION_VARIABLE: &str = "PAGELAB_QEMU_PLUGIN_VERSION";
/// The QEMU versions that recording was tested with.
pub const TESTED_VERSIONS: &str = "7.2 to 11.1";
/// The first version that counts as newer than tested: development after 11.1 is numbered from 11.1.50.
const FIRST_UNTESTED: [u32; 3] = [11, 1, 50];
/// The first version of QEMU that refuses plugins for an older API than 7: 11.1, whose development is numbered from 11.0.50.
const FIRST_REQUIRING_API_7: [u32; 3] = [11, 0, 50];
/// The mode bit that lets all users write.
const WORLD_WRITABLE: u32 = 0o002;
/// The file name that cargo gives the plugin.
const PLUGIN_FILE: &str = "libpagelab_qemu_plugin.so";

/// A program and its arguments, after resolving scripts to their interpreters.
#[derive(Debug)]
pub struct Program {
    /// The program's instruction set.
    pub architecture: Architecture,
    /// The path of the ELF file.
    pub path: PathBuf,
    /// The program's argument 0.
    pub name: OsString,
    /// The arguments after argument 0.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Finds the ELF program that a command runs.
    pub fn of(command: &[OsString]) -> Result<Program, RecordError> {
        let mut name = command.first().cloned().unwrap_or_default();
        let mut path = tracer::resolve(&name)?;
        let mut arguments = command.get(1..).unwrap_or_default().to_vec();
        // Each script, then the program.
        for _ in 0..=MAX_SCRIPTS {
            match executable_kind(&first_bytes(&path)?) {
                ExecutableKind::Program(architecture) => {
                    return Ok(Program { architecture, path, name, arguments });
                }
                ExecutableKind::Foreign(what) => return Err(RecordError::Foreign { path, what }),
                ExecutableKind::Unknown => return Err(RecordError::NotAProgram(path)),
                ExecutableKind::Script(interpreter, argument) => {
                    arguments.insert(0, path.into_os_string());
                    if let Some(argument) = argument {
                        arguments.insert(0, OsString::from_vec(argument));
                    }
                    name = OsString::from_vec(interpreter);
                    path = tracer::resolve(&name)?;
                }
            }
        }
        Err(RecordError::NestedScripts(path))
    }
}

fn first_bytes(path: &Path) -> Result<Vec<u8>, RecordError> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FIRST_BYTES as u64).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(RecordError::Unreadable { path: path.to_owned(), error }),
    }
}

/// QEMU user emulation for one instruction set.
#[derive(Debug)]
pub struct Emulator {
    /// The path of QEMU's binary.
    pub path: PathBuf,
    /// The name and version that QEMU reports.
    pub reported: trace::Emulator,
}

impl Emulator {
    /// Finds the emulator that a program needs.
    pub fn for_program(program: &Program) -> Result<Emulator, RecordError> {
        let name = format!("qemu-{}", program.architecture);
        match tracer::resolve(OsStr::new(&name)) {
            Ok(path) => Emulator::at(path),
            Err(LaunchError::NotFound(_)) => Err(RecordError::NoEmulator { program: name, path: program.path.clone() }),
            Err(error) => Err(error.into()),
        }
    }

    pub fn at(path: PathBuf) -> Result<Emulator, RecordError> {
        let output = output_of(&path, "--version")?;
        let line = output.lines().next().unwrap_or_default();
        let Some(version) = version(line) else {
            return Err(RecordError::UnexpectedOutput {
                program: path,
                option: "--version",
                problem: format!("printed {line:?}"),
            });
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Emulator { reported: trace::Emulator { name, version: version.to_owned() }, path })
    }

    /// The error if the emulator ended before anything was recorded. `hint`: as in [`RecordError::NothingRecorded`].
    pub fn nothing_recorded(&self, ended: ExitStatus, hint: String) -> RecordError {
        let (path, version) = (self.path.clone(), self.reported.version.clone());
        // Checked only after a failure: running `--help` takes about as long as running a short program.
        if self.lacks_plugins() {
            RecordError::NoPlugins { path, version }
        } else {
            RecordError::NothingRecorded { emulator: path, ended: ended.to_string(), hint }
        }
    }

    /// Whether QEMU was built without plugins: then `--help` does not list -plugin.
    fn lacks_plugins(&self) -> bool {
        output_of(&self.path, "--help").is_ok_and(|help| !help.lines().any(|line| line.starts_with("-plugin ")))
    }

    /// The version of the plugin API to pass in [`VERSION_VARIABLE`]; `None` if the plugin detects it itself.
    pub fn plugin_api_version(&self) -> Option<&'static str> {
        (numbers(&self.reported.version) >= FIRST_REQUIRING_API_7).then_some("7")
    }

    /// Whether this version is newer than those that recording was tested with.
    pub fn is_newer_than_tested(&self) -> bool {
        numbers(&self.reported.version) >= FIRST_UNTESTED
    }
}

/// The numbers at the beginning of a version; 0 for each that is missing.
fn numbers(version: &str) -> [u32; 3] {
    let prefix = version.split(|character: char| !character.is_ascii_digit() && character != '.').next();
    let mut numbers = prefix.unwrap_or_default().split('.').map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

/// Runs QEMU with an option and returns its output.
fn output_of(path: &Path, option: &'static str) -> Result<String, RecordError> {
    let strange = |problem| RecordError::UnexpectedOutput { program: path.to_owned(), option, problem };
    let output = Command::new(path).arg(option).output().map_err(|error| strange(error.to_string()))?;
    if !output.status.success() {
        return Err(strange(format!("ended with {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The version and the text after it, from a line such as `qemu-x86_64 version 7.2.22 (Debian ...)`, `QEMU emulator version 7.2.22 (...)`.
fn version(line: &str) -> Option<&str> {
    let (_, version) = line.split_once(" version ")?;
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

/// Finds the plugin: the path given by --plugin or else by [`PLUGIN_VARIABLE`], or else the file that was installed with pagelab, next to
/// it or in `../lib/pagelab`. Without a given path, a plugin that another user could have written is refused, because its code would run as this user.
pub fn plugin(named: Option<&Path>) -> Result<PathBuf, RecordError> {
    let variable = std::env::var_os(PLUGIN_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = named.map(Path::to_owned).or(variable);
    let pagelab = std::env::current_exe().unwrap_or_default();
    let searched = match &named {
        Some(path) => vec![path.clone()],
        None => places(&pagelab),
    };
    let found = searched.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok());
    let found = found.ok_or(RecordError::NoPlugin { searched })?;
    if named.is_some() || is_trusted(&found, &pagelab) {
        Ok(found)
    } else {
        Err(RecordError::ForeignPlugin { path: found })
    }
}

fn places(pagelab: &Path) -> Vec<PathBuf> {
    let folder = pagelab.parent().unwrap_or(Path::new("."));
    vec![folder.join(PLUGIN_FILE), folder.join("../lib/pagelab").join(PLUGIN_FILE)]
}

/// Whether the file and its directory belong to root or to the owner of pagelab, who controls pagelab's code anyway, and not every user
/// may write them. Members of a group that may write them are trusted, as distributions with a group for each user do by default.
fn is_trusted(file: &Path, pagelab: &Path) -> bool {
    let Ok(owner) = std::fs::metadata(pagelab).map(|of| of.uid()) else { return false };
    let is_safe = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|of| [0, owner].contains(&of.uid()) && of.mode() & WORLD_WRITABLE == 0)
    };
    is_safe(file) && file.parent().is_some_and(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &[&str]) -> Result<Program, RecordError> {
        Program::of(&command.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_script_is_run_by_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a script");
        std::fs::write(&path, "#!/bin/sh -e\nexit\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let program = of(&[path.to_str().unwrap(), "x"]).unwrap();
        assert_eq!(program.path, Path::new("/bin/sh"));
        assert_eq!(program.arguments, ["-e", path.to_str().unwrap(), "x"]);
    }

    #[test]
    fn a_script_that_interprets_itself_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loop");
        std::fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(of(&[path.to_str().unwrap()]), Err(RecordError::NestedScripts(_))));
    }

    #[test]
    fn the_emulators_version_is_read() {
        assert_eq!(version("qemu-x86_64 version 7.2.22 (Debian 1:7.2)"), Some("7.2.22 (Debian 1:7.2)"));
        assert_eq!(version("QEMU emulator version 10.0.2"), Some("10.0.2"));
        assert_eq!((version("true (GNU coreutils) 9.1"), version("a version of it"), version("")), (None, None, None));
    }

    #[test]
    fn passes_the_version_that_the_plugin_cannot_detect() {
        let of = |version: &str| Emulator {
            path: PathBuf::new(),
            reported: trace::Emulator { name: "qemu-x86_64".to_owned(), version: version.to_owned() },
        };
        for (version, passed, newer) in [
            ("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", None, false),
            ("10.2", None, false),
            ("11.0.2", None, false),
            ("11.0.92 (v11.1.0-rc2)", Some("7"), false),
            ("11.1.3 (Debian 1:11.1.3+ds-1)", Some("7"), false),
            ("11.1.50", Some("7"), true),
            ("12.0.0-rc1", Some("7"), true),
        ] {
            assert_eq!(
                (of(version).plugin_api_version(), of(version).is_newer_than_tested()),
                (passed, newer),
                "{version}"
            );
        }
    }

    #[test]
    fn a_named_plugin_is_the_only_candidate() {
        let RecordError::NoPlugin { searched } = plugin(Some(Path::new("/nowhere/plugin.so"))).unwrap_err() else {
            panic!()
        };
        assert_eq!(searched, [Path::new("/nowhere/plugin.so")]);
    }

    #[test]
    fn a_plugin_that_anybody_could_write_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (program, plugin) = (folder.path().join("pagelab"), folder.path().join(PLUGIN_FILE));
        std::fs::write(&program, "").unwrap();
        std::fs::write(&plugin, "").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        set(&plugin, 0o664);
        assert!(is_trusted(&plugin, &program), "one's own");
        set(&plugin, 0o666);
        assert!(!is_trusted(&plugin, &program), "a file that everybody writes");
        set(&plugin, 0o644);
        set(folder.path(), 0o777);
        assert!(!is_trusted(&plugin, &program), "a directory that everybody writes");
    }

    #[test]
    fn a_plugin_of_another_user_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (program, plugin) = (folder.path().join("pagelab"), folder.path().join(PLUGIN_FILE));
        std::fs::write(&program, "").unwrap();
        std::fs::write(&plugin, "").unwrap();
        match std::os::unix::fs::chown(&plugin, Some(65_534), None) {
            Err(_) => testing::skip("root, to give a file to somebody else"),
            Ok(()) => assert!(!is_trusted(&plugin, &program)),
        }
    }
}
