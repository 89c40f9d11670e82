//! A control group with limits on hugetlb pages, for the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{needs, within, wrap};

/// Where the unified hierarchy is mounted: alone, or next to the hierarchies of version 1.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A control group with the hugetlb controller, removed when this is dropped. The test must hold the lock of tests that change
/// settings, because the controller is switched on for all groups.
pub struct Group {
    directory: PathBuf,
    /// The file in which the controller was switched on; `None` if it was on before.
    switched_on: Option<PathBuf>,
}

impl Group {
    pub fn new(name: &str) -> Option<Group> {
        let made = HIERARCHIES.iter().find_map(|hierarchy| Group::below(Path::new(hierarchy), name));
        needs(&[("a hugetlb controller of control groups, version 2", made.is_some())]).then_some(made).flatten()
    }

    fn below(hierarchy: &Path, name: &str) -> Option<Group> {
        let control = hierarchy.join("cgroup.subtree_control");
        let was_on = fs::read_to_string(&control).ok()?.split_whitespace().any(|controller| controller == "hugetlb");
        fs::write(&control, "+hugetlb").ok()?;
        let group = Group {
            directory: hierarchy.join(format!("pagelab-test-{name}-{}", std::process::id())),
            switched_on: (!was_on).then_some(control),
        };
        fs::create_dir(&group.directory).ok()?;
        group.file("max").is_file().then_some(group)
    }

    /// A file of the group about 2M pages: `max`, `rsvd.max`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("hugetlb.2MB.{name}"))
    }

    pub fn limit(&self, name: &str, bytes: impl ToString) {
        fs::write(self.file(name), bytes.to_string()).unwrap();
    }

    /// The command, run in the group.
    pub fn holding(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.directory);
        wrap(&mut inside, command);
        inside
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        within(Duration::from_secs(20), || fs::remove_dir(&self.directory).is_ok() || !self.directory.exists());
        if let Some(control) = &self.switched_on {
            let _ = fs::write(control, "-hugetlb");
        }
    }
}
