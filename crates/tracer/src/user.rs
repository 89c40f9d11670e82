//! Users of the host, as far as pagelab runs commands as them.
//!
//! The C library looks users up by modules that /etc/nsswitch.conf names, and loads those of the host. A static program that
//! does so dies where a module wants another C library than the one that it has (libnss_systemd does). So `getent` and `id` are
//! asked, which are the host's own; where they are not there, as in a small guest, the files say it all.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use host::if_there;
use nix::unistd::geteuid;

/// The user that a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, for messages and for the environment.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The primary group id.
    pub gid: u32,
    /// All group ids.
    pub groups: Vec<u32>,
    /// The home directory.
    pub home: PathBuf,
    /// The login shell; empty: the user database names none.
    pub shell: PathBuf,
}

impl User {
    /// Whether this is somebody else than the one who runs pagelab: nothing of his may be the command's then, neither
    /// terminal nor environment.
    pub fn is_another(&self) -> bool {
        self.uid != effective_id()
    }

    /// Makes the calling process this user's.
    ///
    /// # Errors
    /// Those of setgroups(2), setgid(2), setuid(2), which are errno too.
    ///
    /// # Safety
    /// Only in a process that fork has just made and that has one thread.
    pub unsafe fn assume(&self) -> io::Result<()> {
        // The bare calls: the C library's would signal all threads, of which only this one is left.
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

/// Whether a command of this user (`None`: of the one who runs pagelab) gains no privilege by exec: everybody's but
/// root's, who has it all.
pub fn gains_no_privilege(user: Option<&User>) -> bool {
    user.map_or_else(effective_id, |user| user.uid) != 0
}

/// Why a user is not known.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The user database does not answer.
    #[error("looking up the user {user:?}: {problem}")]
    Unanswered {
        /// Name or id.
        user: String,
        /// What was found instead.
        problem: String,
    },
    /// There is none of that name.
    #[error("there is no user {0:?}; `getent passwd` lists those that there are")]
    Unknown(String),
    /// The variable holds something else than a user's id.
    #[error("SUDO_UID: expected a user id, found {0:?}")]
    NoId(String),
    /// There is none of that id.
    #[error("there is no user {0} in the user database; name one with --user")]
    UnknownId(u32),
}

/// A user by name.
///
/// # Errors
/// [`UserError`]: there is no such user, or the user database does not answer.
pub fn by_name(name: &str) -> Result<User, UserError> {
    // A number is an id to `getent`, and no name.
    let is_name = !name.is_empty() && !name.starts_with('-') && name.parse::<u32>().is_err();
    let found = if is_name { line_of(name)?.filter(|user| user.name == name) } else { None };
    with_groups(found.ok_or_else(|| UserError::Unknown(name.to_owned()))?)
}

/// The name of a user.
///
/// # Errors
/// [`UserError`]: there is no such user, or the user database does not answer.
pub fn name_of(id: u32) -> Result<String, UserError> {
    Ok(by_id(id)?.name)
}

/// Under sudo, the user who called it; `None` otherwise.
///
/// # Errors
/// [`UserError`], where sudo names a user that does not exist.
pub fn of_sudo() -> Result<Option<User>, UserError> {
    let Ok(id) = std::env::var("SUDO_UID") else { return Ok(None) };
    let id: u32 = id.parse().map_err(|_| UserError::NoId(id))?;
    if id == 0 {
        return Ok(None);
    }
    with_groups(by_id(id)?).map(Some)
}

/// A user by id, with the primary group alone.
fn by_id(id: u32) -> Result<User, UserError> {
    line_of(&id.to_string())?.filter(|user| user.uid == id).ok_or(UserError::UnknownId(id))
}

/// The same, with all groups.
fn with_groups(user: User) -> Result<User, UserError> {
    let unanswered = |problem: String| UserError::Unanswered { user: user.name.clone(), problem };
    let all = match said(&ID, &["-G", "--", &user.name]).map_err(|error| unanswered(format!("id: {error}")))? {
        Some(Ok(text)) => text.split_whitespace().filter_map(|id| id.parse().ok()).collect(),
        Some(Err(code)) => return Err(unanswered(format!("`id -G` ended with {}", ended(code)))),
        None => {
            let text = if_there(host::content(GROUPS)).map_err(|error| unanswered(format!("{GROUPS}: {error}")))?;
            text.map(|text| groups_in(&text, &user.name)).unwrap_or_default()
        }
    };
    let others = all.into_iter().filter(|id: &u32| *id != user.gid);
    Ok(User { groups: std::iter::once(user.gid).chain(others).collect(), ..user })
}

fn ended(code: Option<i32>) -> String {
    code.map_or("a signal".to_owned(), |code| format!("{code}"))
}

/// Where the tools are, in the order in which they are looked for; PATH is not asked, for pagelab may be root.
const GETENT: [&str; 2] = ["/usr/bin/getent", "/bin/getent"];
const ID: [&str; 2] = ["/usr/bin/id", "/bin/id"];
/// The files (passwd(5), group(5)).
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
/// What `getent` ends with where a key was not found (getent(1)).
const NOT_FOUND: i32 = 2;

/// The user of a name or an id in digits; `None` where there is none.
fn line_of(key: &str) -> Result<Option<User>, UserError> {
    let unanswered = |problem: String| UserError::Unanswered { user: key.to_owned(), problem };
    let text = match said(&GETENT, &["passwd", key]).map_err(|error| unanswered(format!("getent: {error}")))? {
        Some(Ok(line)) => line,
        Some(Err(Some(NOT_FOUND))) => return Ok(None),
        Some(Err(code)) => return Err(unanswered(format!("`getent passwd` ended with {}", ended(code)))),
        None => host::content(USERS).map_err(|error| unanswered(format!("{USERS}: {error}")))?,
    };
    Ok(text.lines().filter_map(user_in).find(|user| user.name == key || user.uid.to_string() == key))
}

/// What the first of the programs that is there prints, or what it ended with; `None` where none is there.
///
/// # Errors
/// It is there, and could not be run.
fn said(programs: &[&str], words: &[&str]) -> io::Result<Option<Result<String, Option<i32>>>> {
    for program in programs {
        let run = Command::new(program).args(words).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let Some(output) = if_there(run)? else { continue };
        return Ok(Some(if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(output.status.code())
        }));
    }
    Ok(None)
}

/// A line of passwd(5): name, password, id, group, comment, home, shell.
fn user_in(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let mut next = || fields.next();
    let (name, _password, uid, gid, _comment) = (next()?, next()?, next()?, next()?, next()?);
    let (home, shell) = (next()?.into(), next()?.into());
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    Some(User { name: name.to_owned(), uid, gid, groups: vec![gid], home, shell })
}

/// The groups in a text as group(5) has it that a user is named in.
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
        // An id is no name, and neither is what a tool would take for an option.
        assert!(matches!(by_name("0"), Err(UserError::Unknown(_))));
        assert!(matches!(by_name("--help"), Err(UserError::Unknown(_))));
        assert_eq!(name_of(0).unwrap(), "root");
        assert!(matches!(name_of(3_999_999_999), Err(UserError::UnknownId(3_999_999_999))));
    }

    #[test]
    fn files_say_it_where_no_tool_does() {
        let user = user_in("ann:x:1000:1001:Ann,,,:/srv/ann:/bin/sh").unwrap();
        assert_eq!((user.name.as_str(), user.uid, user.gid), ("ann", 1000, 1001));
        assert_eq!((user.home.as_path(), user.shell.as_path()), (Path::new("/srv/ann"), Path::new("/bin/sh")));
        assert_eq!(user_in("ann:x:1000"), None);
        assert_eq!(groups_in("a:x:4:ben,ann\nb:x:5:anna\nc:x:6:ann\nbad\n", "ann"), [4, 6]);
    }
}
