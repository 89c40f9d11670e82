//! The environment of the commands that pagelab runs.
//!
//! A command of the user who runs pagelab gets pagelab's own environment. A command of another user gets the environment of a
//! login of that user, plus what sudo(8) passes on for the terminal, the language and the time zone.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::user::User;

/// PATH of another user's command: the value that systemd gives its services, and that of sudo's `secure_path`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The shell of a user without one in the user database (passwd(5)).
const SHELL: &str = "/bin/sh";
/// In addition to `LC_*` and TZ, the variables that are passed on if their value is harmless (sudo's `env_check`, sudoers(5)).
const CHECKED: [&str; 4] = ["COLORTERM", "LANG", "LANGUAGE", "TERM"];
/// The directory of the time zones that TZ may give as a path.
const ZONES: &str = "/usr/share/zoneinfo/";
/// The directory in which systemd creates a user's XDG_RUNTIME_DIR.
const RUNTIME_DIRECTORIES: &str = "/run/user";

/// Names and values of variables.
pub type Variables = Vec<(OsString, OsString)>;

/// The environment of a command of this user (`None`: the user who runs pagelab). The variables of `added` override inherited ones.
pub fn of(user: Option<&User>, added: &[(OsString, OsString)]) -> Variables {
    let mut variables = match user.filter(|user| user.is_another()) {
        Some(user) => login_environment(user, std::env::vars_os()),
        None => std::env::vars_os().collect(),
    };
    for (name, value) in added {
        variables.retain(|(other, _)| other != name);
        variables.push((name.clone(), value.clone()));
    }
    variables
}

fn login_environment(user: &User, own: impl Iterator<Item = (OsString, OsString)>) -> Variables {
    let shell = if user.shell.as_os_str().is_empty() { Path::new(SHELL) } else { &user.shell };
    let mut variables: Variables = vec![
        ("HOME".into(), user.home.clone().into()),
        ("USER".into(), user.name.clone().into()),
        ("LOGNAME".into(), user.name.clone().into()),
        ("SHELL".into(), shell.into()),
        ("PATH".into(), PATH.into()),
    ];
    variables.extend(runtime_directory(user).map(|path| ("XDG_RUNTIME_DIR".into(), path.into())));
    variables.extend(own.filter(|(name, value)| may_pass(name.as_bytes(), value)));
    variables
}

/// The user's runtime directory, if it exists and belongs to the user.
fn runtime_directory(user: &User) -> Option<PathBuf> {
    let path = Path::new(RUNTIME_DIRECTORIES).join(user.uid.to_string());
    let found = std::fs::symlink_metadata(&path).ok()?;
    (found.is_dir() && found.uid() == user.uid).then_some(path)
}

fn may_pass(name: &[u8], value: &OsStr) -> bool {
    match name {
        b"TZ" => is_time_zone(value.as_bytes()),
        name if name.starts_with(b"LC_") || CHECKED.iter().any(|checked| checked.as_bytes() == name) => {
            !value.as_bytes().iter().any(|byte| matches!(byte, b'/' | b'%'))
        }
        _ => false,
    }
}

/// The rule of sudo: a path must be below the time zone directory, must not lead out of it, and must be printable.
fn is_time_zone(value: &[u8]) -> bool {
    let name = value.strip_prefix(b":").unwrap_or(value);
    let leads_out = name.split(|byte| *byte == b'/').any(|part| part == b"..");
    (!name.starts_with(b"/") || name.starts_with(ZONES.as_bytes()))
        && !leads_out
        && name.len() < libc::PATH_MAX as usize
        && name.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> User {
        User {
            name: "ann".into(),
            uid: 4_000_000_000,
            gid: 1,
            groups: vec![1],
            home: "/people/ann".into(),
            shell: PathBuf::new(),
        }
    }

    fn pairs(texts: &[(&str, &str)]) -> Variables {
        texts.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn another_user_gets_only_a_login_environment() {
        let own = pairs(&[
            ("HOME", "/superuser"),
            ("USER", "root"),
            ("PATH", "/superuser/bin"),
            ("XDG_RUNTIME_DIR", "/run/user/0"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("LD_PRELOAD", "/superuser/a.so"),
            ("TERM", "xterm"),
            ("LC_TIME", "C"),
            ("LANG", "../x/%n"),
            ("TZ", "Europe/Berlin"),
        ]);
        let expected = pairs(&[
            ("HOME", "/people/ann"),
            ("USER", "ann"),
            ("LOGNAME", "ann"),
            ("SHELL", SHELL),
            ("PATH", PATH),
            ("TERM", "xterm"),
            ("LC_TIME", "C"),
            ("TZ", "Europe/Berlin"),
        ]);
        assert_eq!(login_environment(&ann(), own.into_iter()), expected);
    }

    #[test]
    fn rejects_time_zones_that_name_other_files() {
        for good in ["UTC", "CET-1CEST", ":Europe/Rome", ":/usr/share/zoneinfo/UTC", "<-03>3"] {
            assert!(is_time_zone(good.as_bytes()), "{good}");
        }
        for bad in ["/etc/passwd", ":/etc/passwd", "/usr/share/zoneinfo/../x", "../x", "a b", "a\n"] {
            assert!(!is_time_zone(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn named_variables_override_inherited_ones() {
        let path = std::env::var_os("PATH").unwrap();
        let same = of(None, &pairs(&[("PAGELAB_X", "1"), ("PAGELAB_X", "2")]));
        assert!(same.contains(&("PATH".into(), path)) && same.ends_with(&pairs(&[("PAGELAB_X", "2")])), "{same:?}");
        assert_eq!(same.iter().filter(|(name, _)| name == "PAGELAB_X").count(), 1);
        let another = of(Some(&ann()), &pairs(&[("PATH", "/opt/bin")]));
        assert_eq!(another.iter().filter(|(name, _)| name == "PATH").count(), 1);
        assert!(another.contains(&("PATH".into(), "/opt/bin".into())), "{another:?}");
    }
}
