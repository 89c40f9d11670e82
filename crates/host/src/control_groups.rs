//! [`ControlGroups`]: the groups in which a controller acts on a process, for versions 1 and 2 of control groups.

use std::fs;
use std::path::Path;

use crate::absence::if_exists;
use crate::absent;
use crate::kernel::unescaped;
use crate::read::HostError;
use crate::root::Root;

/// The name of the initial cgroup namespace (PROC_CGROUP_INIT_INO, include/linux/proc_ns.h). Only there is every group visible.
const INITIAL_NAMESPACE: &str = "cgroup:[4026531835]";

/// The control groups in which a controller acts on a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlGroups {
    /// Directories of the process's own group and of its ancestors, in this order.
    pub directories: Vec<String>,
    /// Whether there may be groups that are not visible here.
    pub may_be_hidden: bool,
    pub is_version_1: bool,
}

impl ControlGroups {
    /// The groups in the content of a /proc/PID/cgroup; none where the process is in no hierarchy of the controller.
    pub fn of(root: &Root, memberships: &str, controller: &str) -> Result<ControlGroups, HostError> {
        let Some((group, is_version_1)) = group(memberships, controller) else { return Ok(ControlGroups::default()) };
        let mounts = absent::text(root, "/proc/self/mountinfo")?.unwrap_or_default();
        let mount = mounts.lines().filter_map(Mount::parse).find(|mount| mount.has(controller, is_version_1));
        let is_initial = is_initial_namespace(root)?;
        let Some(mount) = mount else {
            let may_be_hidden = group != "/" || !is_initial;
            return Ok(ControlGroups { may_be_hidden, is_version_1, ..ControlGroups::default() });
        };
        let inside = below(group, &mount.root).unwrap_or_default();
        let own = format!("{}{inside}", mount.point);
        // The group is not visible if it is outside the mount, or if its name is not text.
        let is_visible = below(group, &mount.root).is_some() && absent::exists(root, &own)?;
        let directories = Path::new(&own)
            .ancestors()
            .map(|path| path.to_string_lossy().into_owned())
            .take_while(|path| path.starts_with(&mount.point));
        Ok(ControlGroups {
            directories: directories.filter(|_| is_visible).collect(),
            may_be_hidden: !is_visible || mount.root != "/" || !is_initial,
            is_version_1,
        })
    }
}

/// The group in which a controller acts, and whether it is of version 1: a controller is in one hierarchy only.
pub(crate) fn group<'a>(memberships: &'a str, controller: &str) -> Option<(&'a str, bool)> {
    let version_1 = memberships.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some((group, true))
    });
    version_1.or_else(|| memberships.lines().find_map(|line| Some((line.strip_prefix("0::")?, false))))
}

/// The path of a group below another, with a leading slash; empty for the group itself, `None` if it is not below `ancestor`.
fn below<'a>(group: &'a str, ancestor: &str) -> Option<&'a str> {
    let rest = group.strip_prefix(ancestor.trim_end_matches('/'))?.trim_end_matches('/');
    let is_inside = !rest.split('/').any(|name| name == "..");
    (is_inside && (rest.is_empty() || rest.starts_with('/'))).then_some(rest)
}

fn is_initial_namespace(root: &Root) -> Result<bool, HostError> {
    const LINK: &str = "/proc/self/ns/cgroup";
    if !root.is_live() {
        return Ok(true);
    }
    let link = if_exists(fs::read_link(LINK)).map_err(|error| absent::unreadable(root, LINK, error))?;
    Ok(link.is_none_or(|link| link.as_os_str() == INITIAL_NAMESPACE))
}

/// A mounted hierarchy of control groups.
struct Mount {
    /// The group at its mount point.
    root: String,
    /// Its mount point, without a slash at its end.
    point: String,
    is_version_2: bool,
    /// Its options; in version 1 the names of its controllers.
    options: String,
}

impl Mount {
    /// A line of mountinfo (proc_pid_mountinfo(5)); `None` for other file systems.
    fn parse(line: &str) -> Option<Mount> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let mut fields = file_system.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?.to_string());
        let point = point.trim_end_matches('/').to_string();
        kind.starts_with("cgroup").then_some(Mount { root, point, is_version_2: kind == "cgroup2", options })
    }

    fn has(&self, controller: &str, is_version_1: bool) -> bool {
        self.is_version_2 != is_version_1
            && (self.is_version_2 || self.options.split(',').any(|option| option == controller))
    }
}
