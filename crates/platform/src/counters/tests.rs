//! The counters on this machine, tested with a software event, which every machine has.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::*;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PAGE_FAULTS: Event = Event {
    quantity: Quantity::DataWalks,
    pmu_type: PERF_TYPE_SOFTWARE,
    config: 2, /* PERF_COUNT_SW_PAGE_FAULTS */
};

/// Runs `script` after an exec that starts the counters, and reads them when it has ended.
fn count(script: &str, events: &[Event]) -> Result<Vec<Reading>, Unavailable> {
    // The shell stops itself; everything after the exec is counted.
    let mut child = Command::new("sh").args(["-c", &format!("kill -STOP $$; exec sh -c '{script}'")]).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(_, Signal::SIGSTOP)), "{stopped:?}");
    let counters = Counters::open_events(pid, events);
    kill(pid, Signal::SIGCONT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    counters.map(|mut counters| counters.readings().unwrap())
}

#[test]
fn counting_begins_with_the_exec_and_follows_forks() {
    let faults = |script: &str| count(script, &[PAGE_FAULTS]).unwrap()[0].count;
    let alone = faults("true");
    let with_children = faults("/bin/true; /bin/true; /bin/true; /bin/true");
    assert!(alone > 10, "an exec and the loading of a shell take page faults: {alone}");
    assert!(with_children > alone + 100, "four programs more: {with_children} after {alone}");
}

#[test]
fn a_software_event_runs_all_the_time() {
    let reading = count("/bin/true", &[PAGE_FAULTS]).unwrap()[0];
    assert!(reading.running_ratio() > 0.999, "{reading:?}");
    let observed = observations(&[reading]);
    assert_eq!(observed[0].metric, study::metric::names::DTLB_WALKS);
    assert_eq!(observed[0].value, reading.count as f64);
}

#[test]
fn an_event_that_the_kernel_refuses_is_left_out_and_alone_it_is_the_reason() {
    let unknown = Event { quantity: Quantity::Cycles, pmu_type: PERF_TYPE_SOFTWARE, config: 9999 };
    let readings = count("true", &[unknown.clone(), PAGE_FAULTS]).unwrap();
    assert_eq!(readings.iter().map(|reading| reading.quantity).collect::<Vec<_>>(), [Quantity::DataWalks]);
    let unavailable = count("true", &[unknown]).unwrap_err();
    assert!(unavailable.reason.contains("refuses all events, the last one Cycles"), "{unavailable}");
}

#[test]
fn reports_a_process_that_has_exited() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    child.wait().unwrap();
    let unavailable = Counters::open_events(pid, &[PAGE_FAULTS]).unwrap_err();
    assert!(unavailable.reason.contains("ended before it could be counted"), "{unavailable}");
}

#[test]
fn this_machine_counts_or_says_why_not() {
    let has_pmu =
        ["cpu", "cpu_core"].iter().any(|pmu| std::path::Path::new("/sys/bus/event_source/devices").join(pmu).exists());
    let mut child = Command::new("sleep").arg("0.01").spawn().unwrap();
    let opened = Counters::open(Pid::from_raw(child.id() as i32));
    child.wait().unwrap();
    if has_pmu || cfg!(not(target_arch = "x86_64")) {
        assert!(opened.as_ref().map_or_else(|why| !why.remedy.is_empty(), |counters| !counters.counters.is_empty()));
        return;
    }
    let unavailable = opened.unwrap_err();
    assert!(unavailable.reason.contains("none in /sys/bus/event_source/devices"), "{unavailable}");
    assert!(unavailable.to_string().starts_with("no hardware counters: "), "{unavailable}");
}
