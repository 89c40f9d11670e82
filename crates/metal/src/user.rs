//! Users of the host, as far as pagelab runs commands as them.

use nix::unistd::{Gid, Uid, geteuid, getgrouplist};
use std::ffi::CString;

use crate::tracer::User;

/// The effective user id of pagelab.
pub fn effective_id() -> u32 {
    geteuid().as_raw()
}

/// A user by name.
///
/// # Errors
/// What is wrong, as a sentence: there is no such user, or the user database does not answer.
pub fn by_name(name: &str) -> Result<User, String> {
    let found = nix::unistd::User::from_name(name).map_err(|error| format!("looking up the user {name:?}: {error}"))?;
    let user = found.ok_or_else(|| format!("there is no user {name:?}; `getent passwd` lists those that there are"))?;
    Ok(User { groups: groups(&user.name, user.gid), name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() })
}

/// Under sudo, the user who called it; `None` otherwise.
///
/// # Errors
/// A sentence, where sudo names a user that does not exist.
pub fn of_sudo() -> Result<Option<User>, String> {
    let Ok(id) = std::env::var("SUDO_UID") else { return Ok(None) };
    let id: u32 = id.parse().map_err(|_| format!("SUDO_UID: expected a user id, found {id:?}"))?;
    if id == 0 {
        return Ok(None);
    }
    let found = nix::unistd::User::from_uid(Uid::from_raw(id)).map_err(|error| format!("user {id}: {error}"))?;
    let user = found.ok_or_else(|| format!("SUDO_UID: there is no user {id}; name one with --user"))?;
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
        assert!(by_name("no-such-user").unwrap_err().contains("no-such-user"));
    }
}
