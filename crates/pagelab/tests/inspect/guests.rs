//! The second stage of a process with a KVM virtual machine.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Bench, Runs, needs, program, root, within};

const BYTES: u64 = 64 << 20;

/// A guest whose memory is logged again and again, until the test ends it.
struct Guest(std::process::Child);

impl Guest {
    fn start() -> Guest {
        let words = [
            "workload",
            "kvm-dirty-log",
            "--bytes",
            "64M",
            "--backing",
            "thp",
            "--mode",
            "enable",
            "--rounds",
            "1000000",
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagelab"));
        Guest(command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn can_open_kvm() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

/// The process as `inspect` sees it where debugfs is mounted, in a mount namespace of its own. `None` where that fails.
fn inspected(bench: &Bench, pid: &str) -> Option<Value> {
    let script = "mount -t debugfs none /sys/kernel/debug || exit 77; exec \"$@\"";
    let mut command = bench.pagelab_by(&["unshare", "-m", "sh", "-c", script, "sh"], &["inspect", pid, "--json"]);
    let ran = command.ran();
    (ran.code != Some(77)).then(|| ran.json()["processes"][0].clone())
}

fn leaf_bytes(process: &Value, leaf_bytes: u64) -> u64 {
    let leaves = process["second_stage"]["leaves"].as_array();
    let leaf = leaves.and_then(|leaves| leaves.iter().find(|leaf| leaf["leaf_bytes"] == leaf_bytes));
    leaf.map_or(0, |leaf| leaf["leaves"].as_u64().unwrap() * leaf_bytes)
}

/// While the dirty log is on, KVM maps by 4K what the host maps by 2M.
#[test]
fn the_second_stage_is_by_4k_while_the_host_is_by_2m() {
    let here = [root(), program("unshare"), ("/dev/kvm", can_open_kvm()), ("x86-64", cfg!(target_arch = "x86_64"))];
    if !needs(&here) {
        return;
    }
    let bench = Bench::new();
    let guest = Guest::start();
    if inspected(&bench, &guest.pid()).is_none() {
        return testing::skip("debugfs");
    }
    let mut last = Value::Null;
    let is_logged = within(Duration::from_secs(20), || {
        last = inspected(&bench, &guest.pid()).unwrap();
        leaf_bytes(&last, 4096) >= BYTES
    });
    assert!(is_logged, "{:#}", last["second_stage"]);
    let census = last["census"].as_array().unwrap();
    let host = census.iter().filter(|row| row["leaf_bytes"] == 2 << 20).map(|row| row["bytes"].as_u64().unwrap());
    let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !thp.contains("[never]") {
        assert!(host.sum::<u64>() >= BYTES, "{census:#?}");
    }
    assert!(last["second_stage"]["text"].as_str().unwrap().ends_with("by 4K (KVM, debugfs)"), "{last:#}");
    if std::fs::metadata("/sys/kernel/debug/kvm").is_err() {
        let text = bench.pagelab(&["inspect", &guest.pid()]).ran();
        text.prints(&["second stage: not looked at: /sys/kernel/debug/kvm is not there; mount debugfs"]);
    }
}
