//! The user for whom files are created ([`Caller`]), and which directories are safe for that.

use std::fs;

use nix::sys::stat::FileStat;
use nix::unistd::Uid;

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// The user for whom this process creates files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user ID of this process.
    pub user: u32,
    /// The user who called sudo, if the process runs under sudo.
    pub invoker: Option<Owner>,
}

impl Caller {
    /// Reads the effective user ID and, if it is root's, the user who called sudo (SUDO_UID, sudo(8)).
    pub fn of_process() -> Caller {
        let user = Uid::effective().as_raw();
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let invoker = number("SUDO_UID").zip(number("SUDO_GID")).map(|(user, group)| Owner { user, group });
        Caller { user, invoker: invoker.filter(|invoker| user == 0 && invoker.user != 0) }
    }

    /// Whether files of this user are trusted like the caller's own. True for the caller, for root, and for the user
    /// who called sudo.
    pub fn is_own(&self, user: u32) -> bool {
        user == self.user || user == 0 || self.invoker.is_some_and(|invoker| invoker.user == user)
    }

    /// The owner to give to something created in a directory; `None` leaves it to its creator. What root creates
    /// belongs to the directory's owner, so that a store in a user's home stays that user's. Under sudo it belongs to
    /// the user who called sudo, if that user could have created it too.
    pub fn owner_in(&self, directory: &FileStat) -> Option<Owner> {
        let invoker = self.invoker.filter(|one| one.user == directory.st_uid || directory.st_mode & 0o002 != 0);
        // A file cannot be given to a user ID that the user namespace does not map.
        let is_mapped = !is_unmapped(directory.st_uid);
        let inherited = is_mapped.then_some(Owner { user: directory.st_uid, group: directory.st_gid });
        invoker.or(inherited).filter(|_| self.user == 0)
    }

    /// Whether the caller may follow links in a directory.
    pub(super) fn trusts(&self, directory: &FileStat) -> bool {
        self.user != 0 || is_of_root(directory)
    }

    /// Whether no other user can rename or replace what the caller creates in a directory. This is checked for root
    /// only.
    pub(super) fn is_sheltered_in(&self, directory: &FileStat) -> bool {
        self.user != 0 || (is_of_root(directory) && (!is_shared(directory) || is_sticky(directory)))
    }
}

fn is_of_root(directory: &FileStat) -> bool {
    directory.st_uid == 0 || is_unmapped(directory.st_uid)
}

/// Whether this is the overflow id, which represents all users that the user namespace does not map (user_namespaces(7)). Root of such
/// a namespace cannot tell the host's root from other users. So all of these users count as root; otherwise no directory could be
/// trusted.
fn is_unmapped(user: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok());
    let maps = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (first, _outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first..first + count).contains(&u64::from(user)))
    };
    // If the map cannot be read, no user is trusted.
    let is_mapped = |text: String| text.lines().any(|line| maps(line) != Some(false));
    overflow == Some(user) && fs::read_to_string("/proc/self/uid_map").is_ok_and(|text| !is_mapped(text))
}

/// Whether users other than its owner may write a directory. Root's own group does not count as another user.
pub fn is_shared(directory: &FileStat) -> bool {
    directory.st_mode & 0o002 != 0 || (directory.st_mode & 0o020 != 0 && directory.st_gid != 0)
}

/// Whether the sticky bit is set: only the owner of an entry (or of the directory) can rename or remove it, as in /tmp.
pub fn is_sticky(directory: &FileStat) -> bool {
    directory.st_mode & 0o1000 != 0
}
