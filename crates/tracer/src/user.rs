//! [`User`]: looks up users of the host, so that pagelab can run commands as them.
//!
//! The C library looks up users with modules named in /etc/nsswitch.conf, and loads the host's modules. A static
//! program that does so crashes if a module needs another C library (libnss_systemd does). So pagelab runs the host's
//! `getent` and `id`. If they do not exist, as in a small guest, it reads the files.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use host::if_exists;
use nix::unistd::geteuid;

/// The user as which a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User name, for messages and for the environment.
    pub name: String,
    pub uid: u32,
    /// The primary group id.
    pub gid: u32,
    /// All group ids, including supplementary ones.
    pub groups: Vec<u32>,
    /// The home directory.
    pub home: PathBuf,
    /// Login shell; empty if the user database names none.
    pub shell: PathBuf,
}

impl User {
    /// Whether this is not the user who runs pagelab. Such a user's command gets neither pagelab's terminal nor its
    /// environment.
    pub fn is_another(&self) -> bool {
        self.uid != effective_id()
    }

    /// Switches the calling process to this user. errno is set as well.
    ///
    /// # Safety
    /// Only in a process that fork has just created and that has one thread.
    pub unsafe fn assume(&self) -> io::Result<()> {
        // Raw system calls: those of the C library would signal all threads, of which only this one exists here.
        // SAFETY: plain system calls; the groups are live.
        let refused = unsafe {
            libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) == -1
                || libc::syscall(libc::SYS_setgid, self.gid) == -1
                || libc::syscall(libc::SYS_setuid, self.uid) == -1
        };
        if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The effective user id of pagelab.
pub fn effective_id() -> u32 {
    geteuid().as_raw()
}

/// Whether a command of this user (`None`: the user who runs pagelab) must not gain privileges by exec. This holds for
/// every user except root, who has them already.
pub fn must_not_gain_privileges(user: Option<&User>) -> bool {
    user.map_or_else(effective_id, |user| user.uid) != 0
}

/// Why a user could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("looking up the user {user:?}: {problem}")]
    Unanswered {
        /// Name or id of the user.
        user: String,
        /// The error or the unexpected answer.
        problem: String,
    },
    #[error("there is no user {0:?}; `getent passwd` lists those that there are")]
    Unknown(String),
    #[error("SUDO_UID: expected a user id, found {0:?}")]
    NoId(String),
    #[error("there is no user {0} in the user database; name one with --user")]
    UnknownId(u32),
}

/// Looks up a user by name.
pub fn by_name(name: &str) -> Result<User, UserError> {
    // `getent` takes a number for an id, not for a name.
    let is_name = !name.is_empty() && !name.starts_with('-') && name.parse::<u32>().is_err();
    let found = if is_name { line_of(name)?.filter(|user| user.name == name) } else { None };
    with_groups(found.ok_or_else(|| UserError::Unknown(name.to_owned()))?)
}

/// Looks up the name of a user id.
pub fn name_of(id: u32) -> Result<String, UserError> {
    Ok(by_id(id)?.name)
}

/// Under sudo, the user who called it; `None` otherwise. It is an error if SUDO_UID names a user that does not exist.
pub fn of_sudo() -> Result<Option<User>, UserError> {
    let Ok(id) = std::env::var("SUDO_UID") else { return Ok(None) };
    let id: u32 = id.parse().map_err(|_| UserError::NoId(id))?;
    if id == 0 {
        return Ok(None);
    }
    with_groups(by_id(id)?).map(Some)
}

/// Looks up a user by id, with the primary group only.
fn by_id(id: u32) -> Result<User, UserError> {
    line_of(&id.to_string())?.filter(|user| user.uid == id).ok_or(UserError::UnknownId(id))
}

/// Adds all groups to a user.
fn with_groups(user: User) -> Result<User, UserError> {
    let unanswered = |problem: String| UserError::Unanswered { user: user.name.clone(), problem };
    let all = match output_of(&ID, &["-G", "--", &user.name]).map_err(|error| unanswered(format!("id: {error}")))? {
        Some(Ok(text)) => text.split_whitespace().filter_map(|id| id.parse().ok()).collect(),
        Some(Err(code)) => return Err(unanswered(format!("`id -G` ended with {}", ended(code)))),
        None => {
            let text = if_exists(host::content(GROUPS)).map_err(|error| unanswered(format!("{GROUPS}: {error}")))?;
            text.map(|text| groups_in(&text, &user.name)).unwrap_or_default()
        }
    };
    let others = all.into_iter().filter(|id: &u32| *id != user.gid);
    Ok(User { groups: std::iter::once(user.gid).chain(others).collect(), ..user })
}

fn ended(code: Option<i32>) -> String {
    code.map_or("a signal".to_owned(), |code| format!("{code}"))
}

/// Paths of the tools, in order of preference. PATH is not used, because pagelab may run as root.
const GETENT: [&str; 2] = ["/usr/bin/getent", "/bin/getent"];
const ID: [&str; 2] = ["/usr/bin/id", "/bin/id"];
/// Fallback files (passwd(5), group(5)).
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
/// Exit status of `getent` if a key was not found (getent(1)).
const NOT_FOUND: i32 = 2;

/// The user with this name or decimal id; `None` if there is none.
fn line_of(key: &str) -> Result<Option<User>, UserError> {
    let unanswered = |problem: String| UserError::Unanswered { user: key.to_owned(), problem };
    let text = match output_of(&GETENT, &["passwd", key]).map_err(|error| unanswered(format!("getent: {error}")))? {
        Some(Ok(line)) => line,
        Some(Err(Some(NOT_FOUND))) => return Ok(None),
        Some(Err(code)) => return Err(unanswered(format!("`getent passwd` ended with {}", ended(code)))),
        None => host::content(USERS).map_err(|error| unanswered(format!("{USERS}: {error}")))?,
    };
    Ok(text.lines().filter_map(user_in).find(|user| user.name == key || user.uid.to_string() == key))
}

/// Output of the first of the programs that exists, or its exit status if it failed; `None` if none exists.
fn output_of(programs: &[&str], words: &[&str]) -> io::Result<Option<Result<String, Option<i32>>>> {
    for program in programs {
        let run = Command::new(program).args(words).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let Some(output) = if_exists(run)? else { continue };
        return Ok(Some(if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(output.status.code())
        }));
    }
    Ok(None)
}

/// Parses a line of passwd(5): name, password, id, group, comment, home, shell.
fn user_in(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let mut next = || fields.next();
    let (name, _password, uid, gid, _comment) = (next()?, next()?, next()?, next()?, next()?);
    let (home, shell) = (next()?.into(), next()?.into());
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    Some(User { name: name.to_owned(), uid, gid, groups: vec![gid], home, shell })
}

/// The groups that list a user, in a text in the format of group(5).
fn groups_in(text: &str, name: &str) -> Vec<u32> {
    let group = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let (id, members) = (fields.next()?.parse().ok()?, fields.next()?);
        members.split(',').any(|member| member == name).then_some(id)
    };
    text.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = by_name("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.home.is_absolute() && root.groups.contains(&0));
        assert!(by_name("no-such-user").unwrap_err().to_string().contains("no-such-user"));
        // A number is not a name, and neither is a word that a tool would parse as an option.
        assert!(matches!(by_name("0"), Err(UserError::Unknown(_))));
        assert!(matches!(by_name("--help"), Err(UserError::Unknown(_))));
        assert_eq!(name_of(0).unwrap(), "root");
        assert!(matches!(name_of(3_999_999_999), Err(UserError::UnknownId(3_999_999_999))));
    }

    #[test]
    fn parses_the_user_and_group_files() {
        let user = user_in("ann:x:1000:1001:Ann,,,:/srv/ann:/bin/sh").unwrap();
        assert_eq!((user.name.as_str(), user.uid, user.gid), ("ann", 1000, 1001));
        assert_eq!((user.home.as_path(), user.shell.as_path()), (Path::new("/srv/ann"), Path::new("/bin/sh")));
        assert_eq!(user_in("ann:x:1000"), None);
        assert_eq!(groups_in("a:x:4:ben,ann\nb:x:5:anna\nc:x:6:ann\nbad\n", "ann"), [4, 6]);
    }
}
