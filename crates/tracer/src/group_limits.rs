//! [`GroupLimits`]: how many pages of a pool the control groups of a task let it take.

use std::collections::HashMap;
use std::io;

use host::{HugetlbGroups, Root, if_exists};
use policy::pool::GroupLimit;
use policy::size::PageSize;

use crate::permission::if_permitted;
use crate::ptrace::Tid;

/// The control groups that limit the pool, of the tasks seen so far. Programs move to other groups (`cgexec`, `systemd-run`),
/// so each task's groups are read again when it maps memory. Whether groups limit anything is read only once.
#[derive(Debug, Default)]
pub struct GroupLimits {
    /// By the content of /proc/TID/cgroup; `None` where there is no limit.
    seen: HashMap<String, Option<HugetlbGroups>>,
}

impl GroupLimits {
    /// The current limit for pages of `size`.
    pub fn of(&mut self, tid: Tid, size: PageSize) -> io::Result<GroupLimit> {
        // A kernel without control groups has no such file.
        let memberships = if_permitted(if_exists(host::content(format!("/proc/{tid}/cgroup"))))?.unwrap_or_default();
        let root = Root::live();
        if let Some(known) = self.seen.get(&memberships) {
            return known.as_ref().map_or(Ok(GroupLimit::NONE), |groups| limit(groups, &root, size));
        }
        let groups = HugetlbGroups::of(&root, &memberships).map_err(io::Error::other)?;
        let found = limit(&groups, &root, size)?;
        self.seen.insert(memberships, Some(groups).filter(|_| found != GroupLimit::NONE));
        Ok(found)
    }
}

fn limit(groups: &HugetlbGroups, root: &Root, size: PageSize) -> io::Result<GroupLimit> {
    let limits = groups.limits(root, size).map_err(io::Error::other)?;
    Ok(GroupLimit {
        room_pages: limits.room_pages(),
        may_refuse_faults: limits.may_refuse_faults(),
        may_refuse_copies: limits.is_limited(),
    })
}
