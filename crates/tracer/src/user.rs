//! Users of the host, as far as pagelab runs commands as them.

use std::ffi::CString;
use std::io;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, geteuid, getgrouplist};

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
    #[error("looking up the user {user:?}: {source}")]
    Unanswered {
        /// Name or id.
        user: String,
        /// What it says.
        source: nix::Error,
    },
    /// There is none of that name.
    #[error("there is no user {0:?}; `getent passwd` lists those that there are")]
    Unknown(String),
    /// The variable holds something else than a user's id.
    #[error("SUDO_UID: expected a user id, found {0:?}")]
    NoId(String),
    /// sudo names a user that does not exist.
    #[error("SUDO_UID: there is no user {0}; name one with --user")]
    UnknownId(u32),
}

/// A user by name.
///
/// # Errors
/// [`UserError`]: there is no such user, or the user database does not answer.
pub fn by_name(name: &str) -> Result<User, UserError> {
    let found = nix::unistd::User::from_name(name);
    let found = found.map_err(|source| UserError::Unanswered { user: name.to_owned(), source })?;
    let user = found.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    Ok(User {
        groups: groups(&user.name, user.gid),
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        home: user.dir,
        shell: user.shell,
    })
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
    let found = nix::unistd::User::from_uid(Uid::from_raw(id));
    let found = found.map_err(|source| UserError::Unanswered { user: id.to_string(), source })?;
    let user = found.ok_or(UserError::UnknownId(id))?;
    by_name(&user.name).map(Some)
}

fn groups(name: &str, primary: Gid) -> Vec<u32> {
    let Ok(name) = CString::new(name) else { return vec![primary.as_raw()] };
    let all = getgrouplist(&name, primary).unwrap_or_else(|_| vec![primary]);
    all.into_iter().map(Gid::as_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = by_name("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.home.is_absolute());
        assert!(by_name("no-such-user").unwrap_err().to_string().contains("no-such-user"));
    }
}
