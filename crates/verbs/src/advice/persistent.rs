//! `advise --write`: writes files that apply a setting at each start of the program, or at each boot. Nothing outside the
//! given directory changes.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use results::files;

use super::attempt::{SettingChanges, separator};
use crate::failure::Failure;

/// A file that applies a setting.
#[derive(Debug, PartialEq)]
struct PersistentFile {
    /// The path of the file, relative to the given directory.
    path: String,
    text: String,
    is_program: bool,
    kind: FileKind,
}

/// How a file takes effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FileKind {
    Wrapper,
    DropIn,
    Tmpfiles,
    Sysctl,
}

/// Writes the files that apply a setting, and returns a line of instructions for each. `command` is the program's command line.
///
/// # Errors
/// A file exists, or cannot be written.
pub fn write(directory: &Path, changes: &SettingChanges, command: &[String]) -> Result<Vec<String>, Failure> {
    let directory = std::path::absolute(directory).map_err(|error| Failure::about(directory, error))?;
    let mut lines = Vec::new();
    for file in persistent_files(changes, command) {
        let path = directory.join(&file.path);
        write_new(&path, &file).map_err(|error| Failure::about(&path, error))?;
        lines.push(results::printable(&file.kind.instruction(&path)));
    }
    Ok(lines)
}

impl FileKind {
    /// The instruction for a file, with commands to copy.
    fn instruction(self, path: &Path) -> String {
        let quoted = |path: &Path| results::command_line(&[path.to_string_lossy().into_owned()]);
        let (file, directory) = (quoted(path), quoted(path.parent().unwrap_or(path)));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match self {
            FileKind::Wrapper => format!("{file}: run this in place of the program"),
            FileKind::DropIn => format!(
                "{file}: for a systemd service UNIT, as root: cp -r {directory} /etc/systemd/system/UNIT.service.d && systemctl \
                 daemon-reload"
            ),
            FileKind::Tmpfiles => {
                format!(
                    "{file}: now and at each boot, as root: cp {file} /etc/tmpfiles.d/ && systemd-tmpfiles --create {name}"
                )
            }
            FileKind::Sysctl => {
                format!("{file}: now and at each boot, as root: cp {file} /etc/sysctl.d/ && sysctl --system")
            }
        }
    }
}

fn write_new(path: &Path, file: &PersistentFile) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        files::make_directories(parent).map_err(std::io::Error::other)?;
    }
    let mut created = files::create_new(path)?;
    created.write_all(file.text.as_bytes())?;
    let mode = if file.is_program { 0o755 } else { 0o644 };
    created.set_permissions(std::fs::Permissions::from_mode(mode))
}

fn persistent_files(changes: &SettingChanges, command: &[String]) -> Vec<PersistentFile> {
    let name = program_name(command);
    let mut files = Vec::new();
    let mut add = |path, text, kind: FileKind| {
        files.push(PersistentFile { path, text, is_program: kind == FileKind::Wrapper, kind })
    };
    if !changes.variables.is_empty() || !changes.arguments.is_empty() {
        add(format!("bin/{name}"), wrapper(command, changes), FileKind::Wrapper);
        add(format!("{name}.service.d/pages.conf"), drop_in(command, changes), FileKind::DropIn);
    }
    let (sysctl, tmpfiles): (Vec<_>, Vec<_>) =
        changes.settings.iter().partition(|(path, _)| path.starts_with("/proc/sys/"));
    if !tmpfiles.is_empty() {
        let lines = tmpfiles.into_iter().map(|(path, value)| format!("w {path} - - - - {value}\n"));
        add(format!("tmpfiles.d/{name}-pages.conf"), lines.collect(), FileKind::Tmpfiles);
    }
    if !sysctl.is_empty() {
        let line = |(path, value): &(String, String)| {
            format!("{} = {value}\n", path.trim_start_matches("/proc/sys/").replace('/', "."))
        };
        add(format!("sysctl.d/{name}-pages.conf"), sysctl.into_iter().map(line).collect(), FileKind::Sysctl);
    }
    files
}

/// The name of the program's file, as part of a file name.
fn program_name(command: &[String]) -> String {
    let name = command.first().map_or("", |word| word.rsplit('/').next().unwrap_or_default());
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    if plain.trim_matches('.').is_empty() { "program".into() } else { plain }
}

/// A shell script that starts the program with the setting.
fn wrapper(command: &[String], changes: &SettingChanges) -> String {
    let quoted = |word: &str| shlex::try_quote(word).map_or_else(|_| String::new(), Into::into);
    let variable = |(name, value): &(String, String)| match separator(name) {
        Some(between) => format!("{name}=\"${{{name}:+${name}{between}}}\"{}\nexport {name}\n", quoted(value)),
        None => format!("{name}={}\nexport {name}\n", quoted(value)),
    };
    let variables: String = changes.variables.iter().map(variable).collect();
    let arguments: String = changes.arguments.iter().map(|word| format!(" {}", quoted(word))).collect();
    let program = command.first().map_or("", String::as_str);
    format!("#!/bin/sh\n{variables}exec {} \"$@\"{arguments}\n", quoted(program))
}

/// A drop-in for a unit (systemd.exec(5), systemd.service(5)). A drop-in cannot append arguments, so it repeats the whole
/// command line.
fn drop_in(command: &[String], changes: &SettingChanges) -> String {
    let quoted = |word: &str| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"));
    let variable = |(name, value): &(String, String)| format!("Environment={}\n", quoted(&format!("{name}={value}")));
    let variables: String = changes.variables.iter().map(variable).collect();
    let start = if changes.arguments.is_empty() {
        String::new()
    } else {
        let words = command.iter().chain(&changes.arguments);
        let words = words.map(|word| quoted(&word.replace('$', "$$"))).collect::<Vec<_>>().join(" ");
        format!("ExecStart=\nExecStart={words}\n")
    };
    format!("[Service]\n{variables}{start}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(changes: &SettingChanges) -> Vec<(String, String)> {
        let command = ["/usr/sbin/mariadbd".to_owned(), "--datadir=/a b".to_owned()];
        persistent_files(changes, &command).into_iter().map(|file| (file.path, file.text)).collect()
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    #[test]
    fn writes_variables_and_arguments_as_a_wrapper_and_a_drop_in() {
        let variables = pairs([("GLIBC_TUNABLES", "a=1"), ("X", "$y \"z\" %h")]);
        let found =
            texts(&SettingChanges { variables, arguments: vec!["--large-pages".into()], ..SettingChanges::default() });
        let wrapper = "#!/bin/sh\nGLIBC_TUNABLES=\"${GLIBC_TUNABLES:+$GLIBC_TUNABLES:}\"'a=1'\nexport GLIBC_TUNABLES\n\
                       X='$y \"z\" %h'\nexport X\nexec /usr/sbin/mariadbd \"$@\" --large-pages\n";
        let drop_in = "[Service]\nEnvironment=\"GLIBC_TUNABLES=a=1\"\nEnvironment=\"X=$y \\\"z\\\" %%h\"\nExecStart=\n\
                       ExecStart=\"/usr/sbin/mariadbd\" \"--datadir=/a b\" \"--large-pages\"\n";
        assert_eq!(found, pairs([("bin/mariadbd", wrapper), ("mariadbd.service.d/pages.conf", drop_in)]));
    }

    #[test]
    fn writes_settings_for_tmpfiles_and_sysctl() {
        let settings = pairs([("/sys/a", "always"), ("/proc/sys/vm/b", "1"), ("/sys/c/nr_hugepages", "107")]);
        let tmpfiles = "w /sys/a - - - - always\nw /sys/c/nr_hugepages - - - - 107\n";
        let expected = [("tmpfiles.d/mariadbd-pages.conf", tmpfiles), ("sysctl.d/mariadbd-pages.conf", "vm.b = 1\n")];
        assert_eq!(texts(&SettingChanges { settings, ..SettingChanges::default() }), pairs(expected));
    }

    #[test]
    fn instructions_are_commands_to_copy() {
        let text = |kind: FileKind, path: &str| kind.instruction(Path::new(path));
        assert_eq!(
            text(FileKind::Tmpfiles, "/a b/x-pages.conf"),
            "'/a b/x-pages.conf': now and at each boot, as root: cp '/a b/x-pages.conf' /etc/tmpfiles.d/ && systemd-tmpfiles \
             --create x-pages.conf"
        );
        assert!(
            text(FileKind::DropIn, "/a/x.service.d/pages.conf")
                .contains("cp -r /a/x.service.d /etc/systemd/system/UNIT")
        );
    }

    #[test]
    fn program_name_has_no_directory_and_no_control_characters() {
        let name = |word: &str| program_name(&[word.to_owned()]);
        assert_eq!([name("/a/b"), name(".."), name("a\nb"), name("")], ["b", "program", "ab", "program"]);
        assert_eq!(program_name(&[]), "program");
    }
}
