//! Finds host state that makes tests fail or wait ([`obstacles`]): folio sizes enabled for all programs, settings that
//! a lease left changed, or a process that holds the lease.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The directory with a subdirectory for each folio size.
const FOLIOS: &str = "sys/kernel/mm/transparent_hugepage";
/// The lock file of pagelab's lease, which contains its holder.
const LOCK: &str = "run/pagelab/lease.lock";
/// The journal of settings that a lease has changed and not restored yet.
const JOURNAL: &str = "var/lib/pagelab/lease.jsonl";

/// The holder of the lease, according to the lock file.
#[derive(Deserialize)]
struct Holder {
    pid: u32,
    command: String,
}

/// What hinders tests on the host below `root`, one text each, with advice.
pub fn obstacles(root: &Path) -> Vec<String> {
    let holder = holder(root);
    let left = || {
        root.join(JOURNAL)
            .exists()
            .then(|| format!("/{JOURNAL}: a lease ended without restoring its settings; run pagelab restore"))
    };
    let mut found = folios_for_all_programs(root);
    // While there is a holder, changed settings are no finding of their own, because the holder restores them.
    found.extend(holder.or_else(left));
    found
}

/// The folio sizes that the kernel gives to every program without madvise.
fn folios_for_all_programs(root: &Path) -> Vec<String> {
    let sizes = fs::read_dir(root.join(FOLIOS)).into_iter().flatten().flatten();
    let mut settings: Vec<String> = sizes.map(|size| size.file_name().to_string_lossy().into_owned()).collect();
    settings.retain(|size| {
        size.starts_with("hugepages-") && read(root, &format!("{FOLIOS}/{size}/enabled")).contains("[always]")
    });
    settings.sort();
    let advice = |size: String| {
        let path = format!("/{FOLIOS}/{size}/enabled");
        format!(
            "{path} is `always`: test programs get these folios under every policy; run pagelab restore, or echo never >{path}"
        )
    };
    settings.into_iter().map(advice).collect()
}

fn holder(root: &Path) -> Option<String> {
    let Holder { pid, command } = serde_json::from_str(&read(root, LOCK)).ok()?;
    let is_running = root.join(format!("proc/{pid}")).exists();
    is_running
        .then(|| format!("process {pid} ({command}) holds the settings lease: tests that change settings wait for it"))
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The obstacles on a host with these files, in a temporary directory.
    fn host(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let root = std::env::temp_dir().join(format!("xtask-host-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = obstacles(&root);
        let _ = fs::remove_dir_all(&root);
        found
    }

    #[test]
    fn an_idle_host_has_no_obstacles() {
        let folder = "sys/kernel/mm/transparent_hugepage";
        let files = [
            (format!("{folder}/enabled"), "[always] madvise never\n"),
            (format!("{folder}/hugepages-64kB/enabled"), "always inherit madvise [never]\n"),
            (format!("{folder}/hugepages-2048kB/enabled"), "always [inherit] madvise never\n"),
            (LOCK.to_string(), ""),
        ];
        assert_eq!(host("at-rest", &files.each_ref().map(|(path, text)| (path.as_str(), *text))), [""; 0]);
    }

    #[test]
    fn folios_for_all_programs_and_a_lease_are_reported_with_advice() {
        let size = "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
        let lock = r#"{"pid":4711,"start_ticks":1,"command":"pagelab compare","since_unix_s":1}"#;
        let files = [
            (size, "[always] inherit madvise never\n"),
            (LOCK, lock),
            ("proc/4711/comm", "pagelab\n"),
            (JOURNAL, "{}\n"),
        ];
        let found = host("held", &files);
        assert!(found.len() == 2 && found[0].contains("hugepages-64kB/enabled is `always`"), "{found:?}");
        assert!(found[1].contains("process 4711 (pagelab compare)"), "{found:?}");
        // If the holder has ended, the settings in its journal have not been restored.
        let found = host("left", &[(LOCK, lock), (JOURNAL, "{}\n")]);
        assert!(found.len() == 1 && found[0].ends_with("pagelab restore"), "{found:?}");
    }
}
