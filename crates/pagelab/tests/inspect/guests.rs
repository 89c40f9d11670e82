//! Tests of the second stage of a process with a KVM virtual machine.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Bench, LeaseGuard, Runs, needs, program, python, root, within};

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

/// A script that runs in a mount namespace of its own: it mounts debugfs and executes a command.
const MOUNT: &str = "mount -t debugfs none /sys/kernel/debug || exit 77; exec \"$@\"";
const UNMOUNT: &str = "while umount /sys/kernel/debug 2>/dev/null; do :; done; exec \"$@\"";

/// The process as `inspect` sees it after a script; `None` if debugfs cannot be mounted.
fn inspected(bench: &Bench, script: &str, pid: &str) -> Option<Value> {
    let mut command = bench.pagelab_by(&["unshare", "-m", "sh", "-c", script, "sh"], &["inspect", pid, "--json"]);
    let ran = command.ran();
    (ran.code != Some(77)).then(|| ran.json()["processes"][0].clone())
}

fn leaf_bytes(process: &Value, leaf_bytes: u64) -> u64 {
    let leaves = process["second_stage"]["leaves"].as_array();
    let leaf = leaves.and_then(|leaves| leaves.iter().find(|leaf| leaf["leaf_bytes"] == leaf_bytes));
    leaf.map_or(0, |leaf| leaf["leaves"].as_u64().unwrap() * leaf_bytes)
}

/// While dirty logging is enabled, KVM maps memory by 4K that the host maps by 2M.
#[test]
fn the_second_stage_is_by_4k_while_the_host_is_by_2m() {
    let here = [root(), program("unshare"), ("/dev/kvm", can_open_kvm()), ("x86-64", cfg!(target_arch = "x86_64"))];
    if !needs(&here) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let bench = Bench::new();
    let guest = Guest::start();
    if inspected(&bench, MOUNT, &guest.pid()).is_none() {
        return testing::skip("debugfs");
    }
    let mut last = Value::Null;
    let is_logged = within(Duration::from_secs(20), || {
        last = inspected(&bench, MOUNT, &guest.pid()).unwrap();
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
}

/// A program that reads KVM's statistics itself has a descriptor of them, through which `inspect` reads them without
/// debugfs.
#[test]
fn the_second_stage_is_read_by_the_descriptor_that_the_process_has() {
    let here = [root(), program("unshare"), ("/dev/kvm", can_open_kvm()), ("x86-64", cfg!(target_arch = "x86_64"))];
    if !needs(&here) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let bench = Bench::new();
    let guest = Guest::start();
    let mut last = Value::Null;
    let is_mapped = within(Duration::from_secs(20), || {
        last = inspected(&bench, UNMOUNT, &guest.pid()).unwrap();
        [4096, 2 << 20].map(|size| leaf_bytes(&last, size)).iter().sum::<u64>() >= BYTES
    });
    assert!(is_mapped, "{:#}", last["second_stage"]);
    let text = last["second_stage"]["text"].as_str().unwrap();
    assert!(text.ends_with(" (KVM, a descriptor of the process)"), "{text}");
}

#[test]
fn a_second_stage_that_nothing_shows_was_not_looked_at() {
    let python = python();
    if !needs(&[root(), program("unshare"), ("/dev/kvm", can_open_kvm()), ("python3", python.is_some())]) {
        return;
    }
    // KVM_CREATE_VM, include/uapi/linux/kvm.h.
    let source = "import fcntl, os, sys\nmachine = fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xae01, 0)\n\
                  print(flush=True)\nsys.stdin.read()";
    let mut command = Command::new(python.unwrap());
    let mut machine = command.args(["-c", source]).stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
    BufReader::new(machine.stdout()).read_line(&mut String::new()).unwrap();
    let seen = inspected(&Bench::new(), UNMOUNT, &machine.id().to_string()).unwrap();
    let text = seen["second_stage"]["text"].as_str().unwrap();
    for part in [
        "second stage: not read: /sys/kernel/debug/kvm is not there; mount debugfs",
        "it has no descriptor of KVM's statistics",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}
