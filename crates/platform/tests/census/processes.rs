//! Other processes: how they are mapped, why, and what is not visible.

use super::*;

/// The other process: maps and touches memory, and waits for the end of its standard input. Not a test unless a test started it.
#[test]
fn helper() {
    let Ok(task) = std::env::var("CENSUS_HELPER") else { return };
    let causes = task == "causes";
    let _mapped = causes.then(map_with_causes);
    let map = Map::private(16 * MIB);
    map.advise(libc::MADV_NOHUGEPAGE);
    map.write(0, if causes { 0 } else { 16 * MIB });
    if task == "look" {
        let observer = Observer::open().unwrap();
        let census = map.census(&observer);
        println!("sees folios {}, present {}", observer.sees_folios(), census.total_bytes());
    }
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

/// Memory that is advised after it was touched, memory with MADV_NOHUGEPAGE, and memory without advice.
fn map_with_causes() -> [Map; 3] {
    let late = Map::private(2 * pmd());
    late.write(0, 2 * pmd());
    late.advise(libc::MADV_HUGEPAGE);
    let against = Map::private(3 * pmd());
    against.advise(libc::MADV_NOHUGEPAGE);
    against.write(0, 3 * pmd());
    let not_advised = Map::private(5 * pmd());
    not_advised.write(0, 5 * pmd());
    [late, against, not_advised]
}

fn helper_process(task: &str, user: Option<u32>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "processes::helper", "--nocapture", "--test-threads=1"]).env("CENSUS_HELPER", task);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    user.map(|user| command.uid(user).gid(user));
    command.spawn()
}

/// Waits until no thread of a process runs: after the process reports that it is ready, it still touches pages before it blocks.
fn until_asleep(pid: u32) {
    let is_asleep = || {
        std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
        })
    };
    let mut times = 0;
    while times < 3 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        times = if is_asleep() { times + 1 } else { 0 };
    }
}

fn lines_until_ready(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.take_while(|line| !line.ends_with("ready")).collect()
}

#[test]
fn the_causes_of_another_process_are_found() {
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let mut child = helper_process("causes", None).unwrap();
    let _output = lines_until_ready(&mut child);
    let host = Host::open("/").unwrap();
    let (state, thp) = (host.state().unwrap(), "thp".parse::<Policy>().unwrap());
    let examination = examine(&Observer::open().unwrap(), child.id(), &thp, host.page_sizes(), &state);
    drop(child.stdin.take());
    child.wait().unwrap();
    let verdict = Evidence::of(examination.unwrap()).verdict();
    let bytes = |cause: Cause| {
        let share = verdict.causes.iter().find(|share| share.cause == cause);
        share.and_then(|share| share.bytes).unwrap_or(0) as usize
    };
    // The other process has memory of its own in addition to these mappings.
    let about = |cause: Cause, expected: usize| {
        let found = bytes(cause.clone());
        assert!(found >= expected && found < expected + pmd(), "{cause:?}: {found}, expected {expected}: {verdict:?}");
    };
    about(Cause::TouchedBeforeEligible, 2 * pmd());
    about(Cause::AdvisedAgainst, 3 * pmd());
    about(Cause::NotAdvised, 5 * pmd());
    let explained: u64 = verdict.causes.iter().filter_map(|share| share.bytes).sum();
    assert_eq!(verdict.covered_bytes + explained, verdict.concerned_bytes);
}

#[test]
fn the_memory_is_there_at_the_exit_stop() {
    let mut child = helper_process("wait", None).unwrap();
    lines_until_ready(&mut child);
    let pid = Pid::from_raw(child.id() as i32);
    if let Err(error) = ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT) {
        drop(child.stdin.take());
        child.wait().unwrap();
        return skip(format!("ptrace ({error})"));
    }
    drop(child.stdin.take());
    let stopped = waitpid(pid, None).unwrap();
    assert_eq!(stopped, WaitStatus::PtraceEvent(pid, nix::sys::signal::Signal::SIGTRAP, libc::PTRACE_EVENT_EXIT));
    let observer = Observer::open().unwrap();
    let host = Host::open("/").unwrap();
    let policy: Policy = "base".parse().unwrap();
    let state = host.state().unwrap();
    let seen = examine(&observer, child.id(), &policy, host.page_sizes(), &state).unwrap();
    ptrace::cont(pid, None).unwrap();
    child.wait().unwrap();
    assert!(seen.census.bytes_where(|mapping| mapping.backing == Backing::Anonymous) as usize >= 16 * MIB);
    if observer.sees_folios() {
        assert_eq!(Evidence::of(seen).verdict().holding, Holding::Held);
    }
    assert!(matches!(observer.process(child.id()), Err(CensusError::Gone { .. })));
}

#[test]
fn another_user_sees_leaves_but_no_folios() {
    if !nix::unistd::geteuid().is_root() {
        return skip("root, to become another user");
    }
    let Ok(mut child) = helper_process("look", Some(65534)) else {
        return skip("a build directory that another user may enter");
    };
    let lines = lines_until_ready(&mut child);
    drop(child.stdin.take());
    child.wait().unwrap();
    let wanted = format!("sees folios false, present {}", 16 * MIB);
    assert!(lines.iter().any(|line| line.ends_with(&wanted)), "{lines:?}");
}

#[test]
fn smaps_and_the_scan_agree_on_leaves() {
    let mut child = helper_process("wait", None).unwrap();
    lines_until_ready(&mut child);
    until_asleep(child.id());
    let bytes = |census: &Census| {
        let mut bytes = BTreeMap::new();
        for (mapping, count) in census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
            *bytes.entry((mapping.backing, mapping.leaf)).or_insert(0) += count;
        }
        bytes
    };
    let read = || {
        let scanned = Observer::open().unwrap().process(child.id()).unwrap();
        (scanned, Observer::open().unwrap().with_smaps_only().process(child.id()).unwrap())
    };
    let (scanned, summed) = settled(read, |(scanned, summed)| bytes(&scanned.census) != bytes(&summed.census));
    let part = Observer::open().unwrap().with_smaps_only().range(
        child.id(),
        0x1000,
        scanned.areas[0].vma.start + page() as u64,
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!((scanned.source, summed.source), (Source::PagemapScan, Source::Smaps));
    assert_eq!(bytes(&scanned.census), bytes(&summed.census));
    assert!(matches!(part, Err(CensusError::NeedsPagemapScan)));
}

#[test]
fn a_child_that_writes_after_fork_maps_a_part_of_the_folio() {
    let Some(_knobs) = Knobs::thp(&[]) else { return skip("root, for the THP settings") };
    let map = Map::private(pmd());
    map.advise(libc::MADV_HUGEPAGE);
    map.write(0, pmd());
    if leaf_bytes(&map.census(&Observer::open().unwrap()), Backing::Anonymous, pmd()) != pmd()
        || !Observer::open().unwrap().sees_folios()
    {
        return skip("free memory in blocks of PMD size, and root");
    }
    let (start, first) = (map.start as u64, map.start as *mut u8);
    // SAFETY: the child only writes to the mapping, stops, and exits without running Rust code.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            first.write_volatile(2);
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        child
    };
    let pid = Pid::from_raw(child);
    waitpid(pid, Some(nix::sys::wait::WaitPidFlag::WUNTRACED)).unwrap();
    let census = Observer::open().unwrap().range(child as u32, start, start + pmd() as u64);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    waitpid(pid, None).unwrap();
    let expected = [((true, page(), true), page()), ((true, pmd(), false), pmd() - page())];
    assert_eq!(by_folio(&census.unwrap()), expected.into());
    assert_eq!(by_folio(&map.census(&Observer::open().unwrap())), [((true, pmd(), true), pmd())].into());
}

#[test]
fn processes_without_memory_are_named() {
    let observer = Observer::open().unwrap();
    // PID 2 is kthreadd, except inside a PID namespace.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") && observer.sees_folios() {
        assert!(matches!(observer.process(2), Err(CensusError::NoAddressSpace { pid: 2 })));
    } else {
        skip("root and a kernel thread");
    }
    assert!(matches!(observer.process(u32::MAX), Err(CensusError::Gone { .. })));
    assert!(matches!(observer.range(u32::MAX, 0, 1 << 30), Err(CensusError::Gone { .. })));
}

#[test]
fn an_examination_of_nothing_says_so() {
    assert_eq!(Evidence::default().verdict().holding, Holding::NotAsked);
    assert_eq!(PageSize::new(page() as u64).unwrap(), Observer::open().unwrap().base_page());
}
