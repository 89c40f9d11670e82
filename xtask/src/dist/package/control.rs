//! The control files of Debian's packages (deb-control(5)).

use std::fmt::Write;

use super::archive::File;

/// From this version on, Debian links qemu-user statically, and a static program cannot load plugins.
const STATIC_QEMU: &str = "1:9.1~";

/// The script that runs before the program is removed. It restores settings, because only the program can do so.
const PRERM: &str = "#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -e /var/lib/pagelab/lease.jsonl ]; then
    /usr/bin/pagelab restore >&2 || echo 'pagelab: system settings could not be put back; a reboot resets them' >&2
fi
";
/// The script that runs after the removal. It removes the lock only if no run holds it, and the journal's directory
/// only if nothing is left to restore.
const POSTRM: &str = "#!/bin/sh
set -e
if [ \"$1\" = purge ]; then
    rm -f /var/lib/pagelab/lease.jsonl
    rmdir --ignore-fail-on-non-empty /var/lib/pagelab 2>/dev/null || true
    if [ -e /run/pagelab/lease.lock ]; then
        flock --nonblock /run/pagelab/lease.lock rm -r /run/pagelab || true
    fi
fi
";

/// The maintainer of the packages: a name and an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Maintainer(String);

impl Maintainer {
    /// Parses `NAME <ADDRESS>`.
    pub fn parse(text: &str) -> Result<Maintainer, String> {
        let parts = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
        let fits = parts.is_some_and(|(name, address)| {
            let plain =
                |part: &str| !part.trim().is_empty() && !part.contains(['<', '>']) && !part.contains(char::is_control);
            plain(name) && plain(address) && address.contains('@') && !address.contains(char::is_whitespace)
        });
        if fits {
            Ok(Maintainer(text.to_owned()))
        } else {
            Err(format!("--maintainer expects 'NAME <ADDRESS>', found {text:?}"))
        }
    }
}

/// A package.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Name {
    /// The program with its documents and data.
    Program,
    /// The plugin that `pagelab record` loads into QEMU.
    Recorder,
}

impl Name {
    pub const ALL: [Name; 2] = [Name::Program, Name::Recorder];

    /// The name of the Debian package.
    pub fn text(self) -> &'static str {
        match self {
            Name::Program => "pagelab",
            Name::Recorder => "pagelab-recorder",
        }
    }

    /// The workspace's package from which the Debian package is built.
    pub fn of_workspace(self) -> &'static str {
        match self {
            Name::Program => "pagelab",
            Name::Recorder => "qemu-plugin",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Name::Program => {
                "which page size should this memory be mapped with, and why\n \
                 pagelab measures a command under several page-size policies (base pages,\n \
                 mTHP, THP, hugetlb), proves what mapped its memory, says why a policy did\n \
                 not take effect, and simulates recorded programs on other machines."
            }
            Name::Recorder => {
                "records the memory that programs touch, for pagelab\n \
                 The plugin that \"pagelab record\" loads into QEMU. It needs a QEMU that has\n \
                 plugins: qemu-user of Debian 12 has. Debian 13's is linked statically\n \
                 and has none: there, put your own build first in PATH."
            }
        }
    }

    /// The control fields that relate the package to other packages.
    fn relations(self, version: &str, plugin: &[u8]) -> String {
        match self {
            Name::Program => "Suggests: pagelab-recorder\n".to_owned(),
            Name::Recorder => format!(
                "Depends: pagelab (= {version}), {}\nRecommends: qemu-user (<< {STATIC_QEMU})\n",
                libraries(plugin).join(", ")
            ),
        }
    }
}

/// The control files of a package: its description, and the scripts that run when the package is removed. `plugin` is the
/// content of the recorder's file. If there is no maintainer, the field Maintainer says so, because without the field dpkg
/// would warn at every use of the package.
pub fn files(
    name: Name,
    (version, architecture, maintainer): (&str, &str, Option<&Maintainer>),
    files: &[File],
    plugin: &[u8],
) -> Vec<File> {
    let size_kib: usize = files.iter().map(|file| file.content.len().div_ceil(1024)).sum();
    let maintainer = maintainer.map_or("not named", |Maintainer(text)| text);
    let mut control = format!(
        "Package: {}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
         Installed-Size: {size_kib}\nSection: utils\nPriority: optional\n",
        name.text()
    );
    control.push_str(&name.relations(version, plugin));
    let _ = writeln!(control, "Description: {}", name.description());
    let mut files = vec![File::new("control", control)];
    if name == Name::Program {
        files.extend([File::program("prerm", PRERM), File::program("postrm", POSTRM)]);
    }
    files
}

/// The packages on which a Rust shared library depends: the C library, in the newest version that any symbol of the library
/// requires, and the unwinder.
fn libraries(library: &[u8]) -> Vec<String> {
    let mut newest = (0, 0);
    for at in find(library, b"GLIBC_2.") {
        let digits = library[at + b"GLIBC_2.".len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let minor = digits.fold(0_u32, |minor, digit| minor.saturating_mul(10) + u32::from(digit - b'0'));
        newest = newest.max((2, minor));
    }
    let mut packages = vec![format!("libc6 (>= {}.{})", newest.0, newest.1)];
    if find(library, b"libgcc_s.so.1\0").next().is_some() {
        packages.push("libgcc-s1".to_owned());
    }
    packages
}

fn find<'a>(bytes: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(part.len()).enumerate().filter(move |(_, window)| *window == part).map(|(at, _)| at)
}

/// The copyright file (Debian's machine-readable format 1.0).
pub fn copyright(name: Name, mit: &str) -> String {
    let head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: pagelab\n\
                Comment: third-party.gz lists the external packages that are built in, and their licences.\n";
    let indented: Vec<String> =
        mit.lines().map(|line| if line.trim().is_empty() { " .".to_owned() } else { format!(" {line}") }).collect();
    let texts = format!(
        "\nLicense: MIT\n{}\n\nLicense: Apache-2.0\n On Debian its text is in /usr/share/common-licenses/Apache-2.0.\n",
        indented.join("\n")
    );
    match name {
        Name::Program => format!(
            "{head} The program is linked statically with the GNU C library (LGPL-2.1-or-later).\n\n\
             Files: *\nCopyright: the authors of pagelab\nLicense: MIT or Apache-2.0\n{texts}"
        ),
        Name::Recorder => format!(
            "{head}\nFiles: *\nCopyright: the authors of pagelab\nLicense: GPL-2.0-or-later\n\n\
             License: GPL-2.0-or-later\n On Debian its text is in /usr/share/common-licenses/GPL-2.\n\n\
             Files: usr/share/doc/*\nCopyright: the authors of pagelab\nLicense: MIT or Apache-2.0\n{texts}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_asks_for_the_c_library_that_its_symbols_name() {
        let library = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0libgcc_s.so.1\0";
        assert_eq!(libraries(library), ["libc6 (>= 2.34)", "libgcc-s1"]);
    }

    #[test]
    fn a_package_names_only_its_maintainer() {
        let maintainer = Maintainer::parse("A Team <team@example.org>").unwrap();
        let control = |maintainer| {
            let files = files(Name::Program, ("1", "amd64", maintainer), &[], b"");
            String::from_utf8(files[0].content.clone()).unwrap()
        };
        assert!(control(Some(&maintainer)).contains("\nMaintainer: A Team <team@example.org>\n"));
        assert!(control(None).contains("\nMaintainer: not named\n"));
        for text in ["", "A Team", "<a@b>", "A <b>", "A <a@b> c", "A\nB <a@b>", "A <a @b>"] {
            assert!(Maintainer::parse(text).unwrap_err().contains("'NAME <ADDRESS>'"), "{text:?}");
        }
    }

    #[test]
    fn the_recorder_depends_on_its_program_and_on_no_emulator_without_plugins() {
        let of = |name| {
            let files = files(name, ("1.2", "arm64", None), &[File::new("a", vec![0; 1025])], b"GLIBC_2.17\0");
            (String::from_utf8(files[0].content.clone()).unwrap(), files.len())
        };
        let (recorder, scripts) = of(Name::Recorder);
        assert!(
            recorder.contains("Depends: pagelab (= 1.2), libc6 (>= 2.17)\nRecommends: qemu-user (<< "),
            "{recorder}"
        );
        assert_eq!(scripts, 1);
        let (program, scripts) = of(Name::Program);
        assert!(program.contains("Installed-Size: 2\n") && !program.contains("Depends"), "{program}");
        assert_eq!(scripts, 3);
        for line in program.lines().chain(recorder.lines()) {
            assert!(line.starts_with(' ') || line.contains(": "), "{line:?}");
        }
    }
}
