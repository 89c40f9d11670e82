//! Tests of `workload kvm-dirty-log` as a command, on the real /dev/kvm. Without /dev/kvm, a test reports
//! `skipped: needs /dev/kvm`.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pagelab");
const PAGES: u64 = 512;

fn command(arguments: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["workload", "kvm-dirty-log"]).args(arguments.split_whitespace());
    command
}

fn run(arguments: &str) -> Output {
    command(arguments).output().expect("the program under test starts")
}

fn has_kvm() -> bool {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if opened.is_err() {
        testing::skip("/dev/kvm");
    }
    opened.is_ok()
}

fn document(arguments: &str) -> Value {
    let output = run(&format!("{arguments} --json"));
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(document: &Value) -> Vec<&str> {
    document["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap()).collect()
}

fn bytes() -> u64 {
    PAGES * workloads::memory::base_page().bytes()
}

#[test]
fn each_mode_has_its_phases_and_the_log_has_every_page() {
    if !has_kvm() {
        return;
    }
    let clear = document(&format!("--bytes {} --backing base --slots 2 --vcpus 2 --chunk 64", bytes()));
    let expected = ["populate", "write before", "enable", "get", "clear", "write 1", "get 1", "clear 1"];
    assert_eq!(names(&clear)[..8], expected);
    assert_eq!(names(&clear)[8..], ["write 2", "get 2", "clear 2", "disable", "repopulate"]);
    let enable = document(&format!("--bytes {} --backing memfd --mode enable --rounds 1", bytes()));
    let expected = ["populate", "write before", "enable", "get", "write 1", "get 1", "disable", "repopulate"];
    assert_eq!(names(&enable), expected);
    for (document, initially) in [(&clear, PAGES), (&enable, 0)] {
        let phases = document["phases"].as_array().unwrap();
        let dirty: Vec<u64> = phases.iter().filter_map(|phase| phase["dirty_pages"].as_u64()).collect();
        assert_eq!(dirty[0], initially);
        assert!(dirty[1..].iter().all(|pages| *pages == PAGES), "{dirty:?}");
        assert!(phases.iter().all(|phase| phase["wall_s"].as_f64().unwrap() > 0.0));
        assert_eq!(document["figures"]["dirty_pages"], PAGES as f64);
    }
}

#[test]
fn cycles_repeat_all_but_the_first_writes_and_their_times_are_medians() {
    if !has_kvm() {
        return;
    }
    for mode in ["clear", "enable"] {
        let thrice = document(&format!("--bytes {} --backing base --mode {mode} --rounds 1 --cycles 3", bytes()));
        let once = document(&format!("--bytes {} --backing base --mode {mode} --rounds 1", bytes()));
        assert_eq!(names(&thrice), names(&once));
        for phase in thrice["phases"].as_array().unwrap() {
            let mut times: Vec<f64> =
                phase["walls_s"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
            times.sort_by(f64::total_cmp);
            let before = phase["name"] == "populate" || phase["name"] == "write before";
            assert_eq!(times.len(), if before { 1 } else { 3 }, "{phase}");
            assert_eq!(phase["wall_s"], times[times.len() / 2], "{phase}");
        }
        let enable = thrice["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == "enable").unwrap();
        assert_eq!(thrice["figures"]["enable_s"], enable["wall_s"]);
    }
}

#[test]
fn a_pause_comes_before_each_phase_and_is_no_part_of_it() {
    if !has_kvm() {
        return;
    }
    let pause = Duration::from_millis(200);
    let since = Instant::now();
    let paused = document(&format!("--bytes {} --backing base --mode enable --rounds 1 --pause 200ms", bytes()));
    let pauses = u32::try_from(names(&paused).len()).unwrap();
    assert!(since.elapsed() >= pause * pauses, "{pauses} phases in {:?}", since.elapsed());
    let least = paused["phases"].as_array().unwrap().iter().map(|phase| phase["wall_s"].as_f64().unwrap());
    assert!(least.fold(f64::INFINITY, f64::min) < pause.as_secs_f64());
    assert_eq!(paused["arguments"]["pause_s"], 0.2);
}

#[test]
fn the_log_has_the_pages_that_the_guest_draws() {
    if !has_kvm() {
        return;
    }
    let phases = |document: &Value, name: &str| {
        let phases = document["phases"].as_array().unwrap();
        phases.iter().find(|phase| phase["name"] == name).unwrap().clone()
    };
    for (mode, percent) in [("clear", 25), ("enable", 25), ("clear", 0), ("clear", 100)] {
        let arguments = format!("--bytes {} --backing base --vcpus 2 --mode {mode} --write-percent {percent}", bytes());
        let document = document(&format!("{arguments} --guest-leaves 4K --cycles 2"));
        for round in 1..=2 {
            let written = phases(&document, &format!("write {round}"))["written_pages"].clone();
            let written: Vec<u64> = serde_json::from_value(written).unwrap();
            assert_eq!(written.len(), 2, "one for each cycle");
            let share = written[0] as f64 / PAGES as f64 * 100.0;
            assert!((share - f64::from(percent)).abs() < 10.0, "{share} % of the pages");
            let large = phases(&document, "populate")["leaves"]["pages_2m"].as_u64();
            if large == Some(0) {
                assert_eq!(phases(&document, &format!("get {round}"))["dirty_pages"], written[1]);
            }
        }
        assert_eq!(phases(&document, "populate")["written_pages"][0], PAGES);
        assert_eq!(document["arguments"]["write_percent"], percent);
    }
    let without = document(&format!("--bytes {}", bytes()));
    assert_eq!(phases(&without, "write 1")["written_pages"], Value::Null);
    assert_eq!(without["arguments"]["write_percent"], "default");
    let refused = run("--write-percent 101");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("0..=100"));
}

#[test]
fn the_answer_is_decided_by_the_arguments() {
    if !has_kvm() {
        return;
    }
    let answer = |arguments: &str| {
        let output = run(&format!("--bytes {} --answer-only {arguments}", bytes()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(answer(""), answer(""));
    assert_eq!(answer("").lines().count(), 1);
    assert_ne!(answer(""), answer("--seed 2"));
    assert_ne!(answer(""), answer("--rounds 3"));
    assert_ne!(answer(""), answer("--cycles 2"));
}

/// Whether advised memory gets PMD-size folios, so that large leaves can be expected.
fn has_thp() -> bool {
    let given = run(&format!("--bytes {} --backing thp --answer-only", 8 << 20)).status.success();
    if !given {
        testing::skip("THP for advised memory");
    }
    given
}

#[test]
fn large_leaves_are_split_and_come_back() {
    if !has_kvm() || !has_thp() {
        return;
    }
    for mode in ["clear", "enable"] {
        let document = document(&format!("--bytes {} --backing thp --mode {mode}", 16 << 20));
        let phases = document["phases"].as_array().unwrap();
        let large = |name: &str| {
            let phase = phases.iter().find(|phase| phase["name"] == name).unwrap();
            Some(phase["leaves"]["pages_2m"].as_u64()? + phase["leaves"]["pages_1g"].as_u64()?)
        };
        let host_is_large = document["host_mapping"].as_array().unwrap().iter().all(|row| row["leaf_bytes"] == 2 << 20);
        let (Some(before), true) = (large("populate"), host_is_large) else {
            testing::skip("a KVM that counts leaves, and free memory for THP");
            return;
        };
        assert_eq!(before, 8);
        assert_eq!((large("write 1"), large("repopulate")), (Some(0), Some(before)));
        let eager = document["kvm"]["eager_splitting"].as_str().unwrap();
        let split_in = document["split_in"].as_str().unwrap();
        // KVM's parameters must agree with the counters.
        match eager {
            "shown" => assert_eq!(split_in, mode),
            "not_shown" => assert_eq!(split_in, "write 1"),
            _ => assert!(split_in == mode || split_in == "write 1"),
        }
    }
}

/// Leaves of 4K and larger leaves after `populate`, `write 1` and `repopulate`; `None` if KVM does not count them.
fn leaves(document: &Value) -> Option<[(u64, u64); 3]> {
    let phases = document["phases"].as_array().unwrap();
    let after = |name: &str| {
        let leaves = &phases.iter().find(|phase| phase["name"] == name).unwrap()["leaves"];
        let count = |size: &str| leaves[size].as_u64();
        Some((count("pages_4k")?, count("pages_2m")? + count("pages_1g")?))
    };
    Some([after("populate")?, after("write 1")?, after("repopulate")?])
}

/// Whether the number of 4K leaves is the number of pages of the memory, apart from the pages of the guest's loop and
/// those that KVM maps around it.
fn all_of_4k(found: (u64, u64), bytes: u64) -> bool {
    found.1 == 0 && (bytes / 4096..bytes / 4096 + 64).contains(&found.0)
}

#[test]
fn leaves_of_the_guest_of_either_size_have_the_counts_that_they_must() {
    const BYTES: u64 = 16 << 20;
    if !has_kvm() {
        return;
    }
    for (guest_bytes, own) in [(4096, "4k"), (2 << 20, "2M")] {
        for mode in ["clear", "enable"] {
            let base = document(&format!("--bytes {BYTES} --backing base --mode {mode} --guest-leaves {own}"));
            assert_eq!(base["arguments"]["guest_leaf_bytes"], guest_bytes);
            assert_eq!(base["figures"]["dirty_pages"], (BYTES / workloads::memory::base_page().bytes()) as f64);
            match leaves(&base) {
                Some(counts) => assert!(counts.iter().all(|count| all_of_4k(*count, BYTES)), "{own}: {counts:?}"),
                None => testing::skip("a KVM that counts leaves"),
            }
        }
    }
    if !has_thp() {
        return;
    }
    for (own, larger_than_4k) in [("4K", false), ("2M", true)] {
        let document = document(&format!("--bytes {BYTES} --backing thp --guest-leaves {own} --cycles 2"));
        let shadows = document["kvm"]["tdp_mmu"] == false && document["kvm"]["nested_page_tables"] != true;
        let host_is_large = document["host_mapping"].as_array().unwrap().iter().all(|row| row["leaf_bytes"] == 2 << 20);
        let (Some([populated, written, repopulated]), true) = (leaves(&document), host_is_large) else {
            testing::skip("a KVM that counts leaves, and free memory for THP");
            return;
        };
        assert!(all_of_4k(written, BYTES), "{own}: {written:?}");
        for found in [populated, repopulated] {
            let expected = larger_than_4k || !shadows;
            assert_eq!(
                (all_of_4k(found, BYTES), found.1),
                (!expected, if expected { 8 } else { 0 }),
                "{own}: {found:?}"
            );
        }
        assert_eq!(document["split_in"].is_null(), shadows && !larger_than_4k);
        for phase in document["phases"].as_array().unwrap() {
            assert_eq!(phase["leaves_varied"], false, "the second cycle finds what the first one found: {phase}");
        }
    }
}

#[test]
fn prints_what_the_host_can_show_and_what_maps_the_memory() {
    if !has_kvm() {
        return;
    }
    let output = run(&format!("--bytes {} --backing base --with-model", 4 << 20));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in
        ["populated by", "the host maps it with 4M in ", "guest: ", "eager splitting: ", "seen: ", "Modelled, not"]
    {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("name=kvm-dirty-log bytes=4194304 ") && last.contains(" first_write_s="), "{last}");
    assert!(last.contains(" guest_leaf_bytes="), "{last}");
    let document = document(&format!("--bytes {} --backing base --with-model", 4 << 20));
    let model = &document["model"];
    assert_eq!(model["provenance"], "modelled");
    // 4 MiB of 4K pages are cleared in bitmap words of 64 pages: 16 walks, each through the root, a level 2 table and 64
    // entries of level 3.
    let vanilla = &model["cases"][0]["variants"][0]["counters"];
    assert_eq!((&model["cases"][0]["granule_bytes"], &vanilla["walks"]), (&4096.into(), &16.into()));
    assert_eq!(vanilla["entries_read"], 16 * (1 + 1 + 64));
    assert_eq!(vanilla["entries_built"], 0, "pages need no tables");
}

#[test]
fn senseless_arguments_end_with_2_and_name_the_option() {
    for (arguments, option) in [
        ("--bytes 1000", "--bytes"),
        ("--bytes 0", "--bytes"),
        ("--bytes 1M --slots 0", "--slots"),
        ("--bytes 64K --slots 1000", "--slots"),
        ("--bytes 64K --vcpus 100000", "--vcpus"),
        ("--bytes 1M --rounds 0", "--rounds"),
        ("--bytes 1M --cycles 0", "--cycles"),
        ("--bytes 1M --guest-leaves 12345", "--guest-leaves"),
        ("--bytes 1M --guest-leaves 16K", "--guest-leaves"),
        ("--bytes 1M --chunk 0", "--chunk"),
        ("--bytes 1M --chunk 63", "--chunk"),
        ("--bytes 1M --chunk 64 --mode enable", "--chunk"),
        ("--bytes 1M --backing hugetlb-2m", "--bytes"),
        ("--bytes 1M --memory-region 3", "--memory-region"),
        ("--bytes 4096T", "--bytes"),
    ] {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains(option), "{arguments}: {message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_the_device_or_the_right_to_open_it_the_message_has_the_remedy() {
    let hidden = "mount -t tmpfs none /dev && exec \"$0\" workload kvm-dirty-log --bytes 1M";
    let output = Command::new("unshare").args(["-m", "sh", "-c", hidden, PROGRAM]).output();
    match output {
        Ok(output) if output.status.code() == Some(3) => {
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(message.contains("cannot open /dev/kvm") && message.contains("modprobe"), "{message}");
        }
        _ => testing::skip("the right to mount a tmpfs"),
    }
    let unprivileged = ["--reuid", "65534", "--regid", "65534", "--clear-groups", PROGRAM, "workload", "kvm-dirty-log"];
    match Command::new("setpriv").args(unprivileged).args(["--bytes", "1M"]).output() {
        Ok(output) if output.status.code() == Some(3) => {
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(message.contains("cannot open /dev/kvm") && message.contains("group"), "{message}");
        }
        _ => testing::skip("root, and a /dev/kvm that not everybody may open"),
    }
}

#[test]
fn an_interrupt_says_where_it_came_and_leaves_nothing() {
    if !has_kvm() {
        return;
    }
    let mut command = command("--bytes 64M --rounds 1000000");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    wait_until(|| has_vm(pid));
    // When this much is resident, the first phase, which touches the guest's memory, has begun.
    wait_until(|| resident_bytes(pid) > 16 << 20);
    Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("SIGINT in phase `") && message.contains("end with this process"), "{message}");
    assert!(output.stdout.is_empty());
}

fn resident_bytes(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
}

/// Whether the process has a vCPU.
fn has_vm(pid: u32) -> bool {
    let Ok(links) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.any(|target| target.to_string_lossy().contains("kvm-vcpu"))
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing happened for half a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}
