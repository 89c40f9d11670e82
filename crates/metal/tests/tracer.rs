//! Programs of every kind under every policy: they must not notice, and the policy must hold.
//!
//! The programs are in `programs`, compiled on the way. What a test needs and does not find (root, a
//! compiler, a tool) it names as `skipped: needs X`. Settings are changed under `/run/pagelab-test.lock` and
//! put back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use metal::host::Host;
use metal::tracer::{Ended, Launch, LaunchError, Leftovers, Obstacle, Rewriting, User, Witness, run};
use study::cause::Cause;
use study::policy::Policy;
use study::size::PageSize;
use study::trial::Exit;

// ---- what the tests stand on ----

/// One tree at a time: the leash and the waiting are the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn skip(needs: &str) {
    println!("skipped: needs {needs}");
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn host() -> Host {
    Host::open("/").expect("the host that runs the test")
}

fn nobody() -> User {
    user("nobody", 65534)
}

fn user(name: &str, id: u32) -> User {
    User { name: name.into(), uid: id, gid: id, groups: vec![id], home: "/".into(), shell: "/bin/sh".into() }
}

/// Where the programs are compiled to.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tracer");
    fs::create_dir_all(&folder).expect("a folder for programs");
    folder
});

/// A folder whose files every user can execute.
fn public_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a readable folder");
    folder
}

/// A copy of a program there, with a mode.
fn public_copy(folder: &tempfile::TempDir, program: &Path, mode: u32) -> PathBuf {
    let copy = folder.path().join(program.file_name().expect("a file"));
    fs::copy(program, &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("a mode");
    copy
}

/// Compiles a C program of `programs`; `None` where there is no such compiler.
fn compile(compiler: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let variant: String = options.iter().flat_map(|option| option.chars()).filter(|c| c.is_alphanumeric()).collect();
    let program = FOLDER.join(format!("{name}-{compiler}-{variant}"));
    let fresh = FOLDER.join(format!("{name}-{compiler}-{variant}.{}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-pthread", "-o"]).arg(&fresh).arg(source).args(options).stderr(Stdio::null());
    let built = command.status().is_ok_and(|status| status.success());
    built.then(|| fs::rename(&fresh, &program).expect("a compiled program")).map(|()| program)
}

fn c(name: &str) -> Option<PathBuf> {
    compile("gcc", name, &[]).or_else(|| {
        skip("gcc");
        None
    })
}

/// What a program in a tree had at its end, and what it said.
struct Outcome {
    ended: Ended,
    output: String,
    seen: Seen,
}

impl Outcome {
    fn answered(&self, call: &str) -> bool {
        self.ended.answered.keys().any(|answered| answered.starts_with(call))
    }

    fn has(&self, cause: &Cause) -> bool {
        self.ended.causes.contains_key(cause)
    }
}

/// The largest figure of each kind that any process had at its end, in bytes.
#[derive(Default)]
struct Seen {
    processes: usize,
    without_memory: usize,
    bytes: BTreeMap<String, u64>,
}

impl Witness for Seen {
    fn begins(&mut self, _: libc::pid_t) {}

    fn ends(&mut self, task: libc::pid_t, _: &[u64]) {
        self.processes += 1;
        let rollup = fs::read_to_string(format!("/proc/{task}/smaps_rollup")).unwrap_or_default();
        self.without_memory += usize::from(rollup.is_empty());
        for line in rollup.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(Ok(kib))) = (words.next(), words.next().map(str::parse::<u64>)) else { continue };
            let most = self.bytes.entry(name.trim_end_matches(':').to_string()).or_default();
            *most = (*most).max(kib << 10);
        }
    }

    fn unmaps(&mut self, _: libc::pid_t, _: u64, _: u64) {}
}

impl Seen {
    fn bytes(&self, name: &str) -> u64 {
        self.bytes.get(name).copied().unwrap_or(0)
    }
}

fn launch(command: &[&str], stdout: &File) -> Launch {
    Launch {
        command: command.iter().map(OsString::from).collect(),
        user: None,
        variables: Vec::new(),
        stdin: Some(OwnedFd::from(File::open("/dev/null").unwrap())),
        stdout: Some(OwnedFd::from(stdout.try_clone().unwrap())),
        stderr: Some(OwnedFd::from(stdout.try_clone().unwrap())),
        disable_thp: false,
    }
}

fn try_under(policy: &str, command: &[&str], change: impl FnOnce(&mut Launch)) -> Result<Outcome, LaunchError> {
    let policy: Policy = policy.parse().expect("a policy");
    let rewriting = Rewriting::of(&policy, host().geometry());
    let mut file = tempfile::tempfile().expect("a file for the output");
    let mut launch = launch(command, &file);
    launch.disable_thp = rewriting.disable_thp;
    change(&mut launch);
    let mut seen = Seen::default();
    let ended = run(&launch, &rewriting, Some(&mut seen), Leftovers::KillAfter(Duration::from_millis(200)))?;
    let mut output = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut output).unwrap();
    Ok(Outcome { ended, output: output.trim_end().to_string(), seen })
}

fn under(policy: &str, command: &[&str]) -> Outcome {
    try_under(policy, command, |_| {}).unwrap_or_else(|error| panic!("{command:?} under {policy}: {error}"))
}

fn bare(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).stderr(Stdio::null()).output().expect("the bare program");
    String::from_utf8(output.stdout).unwrap().trim_end().to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

fn pool_file() -> String {
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into()
}

/// Settings that are put back in the end; `None` where this user may not change them.
struct Settings {
    saved: Vec<(String, String)>,
    _lock: Flock<File>,
}

impl Settings {
    fn lease() -> Option<Settings> {
        if !is_root() {
            return None;
        }
        let lock = File::options().create(true).append(true).open("/run/pagelab-test.lock").ok()?;
        Some(Settings { saved: Vec::new(), _lock: Flock::lock(lock, FlockArg::LockExclusive).ok()? })
    }

    /// Whether the setting took.
    fn set(&mut self, path: &str, value: &str) -> bool {
        let Ok(found) = fs::read_to_string(path) else { return false };
        let chosen = found.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
        let former = chosen.unwrap_or(found.trim()).to_string();
        if fs::write(path, value).is_err() {
            return false;
        }
        self.saved.push((path.to_string(), former));
        let now = fs::read_to_string(path).unwrap_or_default();
        now.trim() == value || now.contains(&format!("[{value}]"))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, value) in self.saved.iter().rev() {
            fs::write(path, value).unwrap_or_else(|error| panic!("{path} could not be set back to {value}: {error}"));
        }
    }
}

fn has_4k_pages_and_2m_leaves() -> bool {
    let host = host();
    host.geometry().base == PageSize::K4 && host.geometry().pmd == Some(PageSize::M2)
}

/// Policies that need nothing but the kernel.
const POLICIES: [&str; 7] =
    ["default", "base", "thp", "thp+prefault", "default+no-huge", "thp+no-guards", "thp+no-guards+prefault"];

// ---- the program must not notice ----

fn answers_stay(program: &Path, arguments: &[&str]) {
    let command: Vec<&str> = [&[text(program)], arguments].concat();
    let expected = bare(&command);
    for policy in POLICIES {
        let outcome = under(policy, &command);
        assert_eq!((outcome.output.as_str(), outcome.ended.exit), (expected.as_str(), Exit::Code(0)), "{policy}");
        assert_eq!(outcome.seen.without_memory, 0, "{policy}: every memory was seen while it was there");
    }
}

#[test]
fn a_dynamic_program_gives_its_answer() {
    let _alone = alone();
    let Some(program) = c("mix") else { return };
    answers_stay(&program, &[]);
}

#[test]
fn static_programs_give_their_answer() {
    let _alone = alone();
    for (compiler, options) in [("gcc", &["-static"][..]), ("gcc", &["-static-pie"]), ("musl-gcc", &["-static"])] {
        match compile(compiler, "mix", options) {
            Some(program) => {
                let expected = bare(&[text(&program)]);
                for policy in ["base", "thp", "thp+no-guards"] {
                    assert_eq!(under(policy, &[text(&program)]).output, expected, "{compiler} {options:?} {policy}");
                }
            }
            None => skip(&format!("{compiler} {options:?}")),
        }
    }
}

#[test]
fn a_go_program_gives_its_answer() {
    let _alone = alone();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/goroutines");
    let program = FOLDER.join("goroutines");
    let go = if Path::new("/usr/local/go/bin/go").exists() { "/usr/local/go/bin/go" } else { "go" };
    let built = Command::new(go).args(["build", "-o"]).arg(&program).current_dir(source).status();
    if !built.is_ok_and(|status| status.success()) {
        return skip("go");
    }
    let expected = bare(&[text(&program)]);
    for policy in ["base", "thp", "default+no-huge", "thp+no-guards"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert_eq!(outcome.seen.without_memory, 0, "{policy}: the last thread's memory was seen");
    }
}

#[test]
fn every_way_to_make_and_end_a_task() {
    let _alone = alone();
    let Some(program) = c("tree") else { return };
    let expected = "tree: 15 15 15 15 15 15 15 of 15";
    for policy in ["default", "thp", "thp+no-guards", "hugetlb-2m"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!((outcome.output.as_str(), outcome.ended.killed_leftovers), (expected, 0), "{policy}");
    }
}

#[test]
fn shells_compilers_and_interpreters() {
    let _alone = alone();
    let make = "set -e; d=$(mktemp -d); cd $d; trap 'rm -rf $d' EXIT; \
        for i in 1 2 3 4; do echo \"int f$i(int x){return x*$i;}\" > f$i.c; done; \
        printf 'all: f1.o f2.o f3.o f4.o\\n\\tcat $^ | cksum\\n%%.o: %%.c\\n\\tgcc -O2 -c $<\\n' > Makefile; make -s -j2";
    let lines = [
        ("sh", "seq 1 20000 | sort -r | head -n 3 | tr '\\n' ' '; (exit 3); echo $?"),
        ("make", make),
        (
            "python3",
            "python3 -c 'import hashlib; d=bytes(range(256))*80000; print(hashlib.sha1(d).hexdigest(), len([i for i in range(10**6)]))'",
        ),
        ("xz", "seq 1 300000 | xz -T2 -c | xz -dc | cksum"),
    ];
    for (tool, line) in lines {
        if bare(&["sh", "-c", &format!("command -v {tool} && {tool} --version")]).is_empty() && tool != "sh" {
            skip(tool);
            continue;
        }
        let expected = bare(&["sh", "-c", line]);
        for policy in ["base", "thp", "hugetlb-2m"] {
            assert_eq!(under(policy, &["sh", "-c", line]).output, expected, "{tool} {policy}");
        }
    }
}

/// Runs the torture over seeds; says where it went wrong.
fn torture(policies: &[&str], seeds: std::ops::Range<u32>, closed: bool) {
    let Some(program) = c("torture") else { return };
    for seed in seeds {
        for policy in policies {
            let (seed, steps) = (seed.to_string(), "1000");
            let command: Vec<&str> =
                [text(&program), &seed, steps].into_iter().chain(closed.then_some("closed")).collect();
            let outcome = under(policy, &command);
            assert_eq!(outcome.output, format!("torture {seed} {steps} kept its memory"), "{policy}");
        }
    }
}

#[test]
fn random_memory_calls_are_not_noticed() {
    let _alone = alone();
    torture(&["default", "thp", "thp+prefault", "default+no-huge"], 1..3, true);
    torture(&["thp+no-guards"], 1..3, false);
}

#[test]
fn random_memory_calls_on_pools_that_are_full_scarce_and_empty() {
    let _alone = alone();
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    for pages in ["0", "12", "40", "300"] {
        if !settings.set(&pool_file(), pages) {
            return skip(&format!("{pages} hugetlb pages of 2M"));
        }
        torture(&["hugetlb-2m", "hugetlb-2m+no-guards"], 10..13, false);
    }
}

#[test]
fn hugetlb_backs_what_it_can_and_says_what_it_cannot() {
    let _alone = alone();
    let (Some(program), Some(against)) = (c("mix"), c("against")) else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    let expected = bare(&[text(&program)]);
    for pages in [0, 20, 400u64] {
        if !settings.set(&pool_file(), &pages.to_string()) {
            return skip(&format!("{pages} hugetlb pages of 2M"));
        }
        let outcome = under("hugetlb-2m", &[text(&program)]);
        assert_eq!(outcome.output, expected, "pool of {pages}");
        let backed = outcome.seen.bytes("Private_Hugetlb") + outcome.seen.bytes("Shared_Hugetlb");
        assert_eq!(backed > 0, pages > 0, "pool of {pages}: {backed} bytes");
        assert_eq!(outcome.has(&Cause::PoolExhausted { size: PageSize::M2 }), pages < 400, "pool of {pages}");
    }
    let told = [("huge", "huge: 0 0, resident 1"), ("piecewise", "piecewise: 0 0, resident 1")];
    for (how, told) in told {
        let outcome = under("hugetlb-2m", &[text(&against), how]);
        let backed = outcome.seen.bytes("Private_Hugetlb");
        assert!(outcome.output == told && backed >= 14 << 20, "{} {backed}", outcome.output);
    }
}

#[test]
fn folios_of_64k_come_from_sysfs_and_advice() {
    let _alone = alone();
    let Some(program) = c("mix") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&format!("{THP}/hugepages-64kB/enabled"), "madvise") {
        return skip("folios of 64K");
    }
    settings.set(&format!("{THP}/hugepages-2048kB/enabled"), "never");
    let allocated = || fs::read_to_string(format!("{THP}/hugepages-64kB/stats/anon_fault_alloc")).unwrap_or_default();
    let before = allocated();
    let expected = bare(&[text(&program)]);
    assert_eq!(under("mthp-64k", &[text(&program)]).output, expected);
    assert_ne!(allocated(), before, "folios of 64K were given");
}

// ---- the policy must hold ----

/// THP for advised memory only, so that the advice makes the difference.
fn advised_only() -> Option<Settings> {
    let mut settings = Settings::lease()?;
    let set = settings.set(&format!("{THP}/enabled"), "madvise") && has_4k_pages_and_2m_leaves();
    settings.set(&format!("{THP}/defrag"), "madvise");
    set.then_some(settings)
}

#[test]
fn memory_is_huge_when_asked_for_whatever_the_program_says() {
    let _alone = alone();
    let Some(program) = c("against") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    let huge = |policy: &str, how: &str| {
        let outcome = under(policy, &[text(&program), how]);
        (outcome.seen.bytes("AnonHugePages") >= 12 << 20, outcome)
    };
    for how in ["disable", "advise", "populate", "huge", "zeroed", "grown", "piecewise"] {
        let (is_huge, outcome) = huge("thp", how);
        assert!(is_huge, "{how}: {:?}", outcome.seen.bytes);
        let told = if how == "disable" { "again: 0 1, resident 1" } else { &format!("{how}: 0 0, resident 1") };
        assert_eq!(outcome.output, told, "the program is told what it wants to hear");
        assert_eq!(outcome.answered("prctl"), how == "disable");
        assert_eq!(outcome.answered("madvise(MADV_NOHUGEPAGE)"), how == "advise");
        for policy in ["default+no-huge", "base"] {
            assert!(!huge(policy, how).0, "{policy} {how}");
        }
        assert_eq!(huge("default", how).0, how == "huge", "default {how}");
    }
}

#[test]
fn prefaulted_memory_is_resident_at_once() {
    let _alone = alone();
    let Some(program) = c("churn") else { return };
    let faults = |policy| under(policy, &[text(&program), "50", "8388608", "0"]).ended.usage;
    let (lazy, eager) = (faults("thp"), faults("thp+prefault"));
    // Three whole large pages at least of each mapping: populating counts as faults (`mm_account_fault`, mm/memory.c).
    assert!(eager.minor_faults >= lazy.minor_faults + 3 * 50, "{eager:?} against {lazy:?}");
}

#[test]
fn guards_fault_unless_they_are_given_up() {
    let _alone = alone();
    let Some(program) = c("guards") else { return };
    for policy in ["default", "base", "thp", "thp+prefault"] {
        assert_eq!(under(policy, &[text(&program)]).output, "guards that fault: 4 4 4 1", "{policy}");
    }
    let outcome = under("thp+no-guards", &[text(&program)]);
    assert_eq!(outcome.output, "guards that fault: 0 0 0 0");
    assert!(outcome.answered("mprotect(PROT_NONE)") && outcome.answered("mprotect that left"));
    assert!(outcome.answered("mmap(PROT_NONE, MAP_FIXED)"));
}

#[test]
fn guards_inside_pool_pages() {
    let _alone = alone();
    let Some(program) = c("guards") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&pool_file(), "40") {
        return skip("40 hugetlb pages of 2M");
    }
    let outcome = under("hugetlb-2m", &[text(&program)]);
    assert_eq!(outcome.output, "guards that fault: 4 0 4 1", "what was never opened cannot be told from a guard");
    assert!(outcome.has(&Cause::Demoted) && outcome.has(&Cause::ProtectionWidened));
    let outcome = under("hugetlb-2m+no-guards", &[text(&program)]);
    assert_eq!(outcome.output, "guards that fault: 0 0 0 1");
    assert!(outcome.answered("mmap(PROT_NONE, MAP_FIXED)") && !outcome.has(&Cause::Demoted));
}

// ---- seccomp, signals, debuggers, privileges ----

#[test]
fn filters_of_the_programs_own() {
    let _alone = alone();
    let Some(program) = c("filters") else { return };
    let expected = [
        ("kill", "kill: 1, child 0"),
        ("threads", "threads: 0 0 1"),
        ("strict", "strict: 7, forbidden 1"),
        ("foreign", "foreign: -1 1"),
    ];
    for (how, output) in expected {
        assert_eq!(bare(&[text(&program), how]), output);
        for policy in ["default", "base", "thp", "thp+prefault", "default+no-huge", "hugetlb-2m"] {
            let outcome = under(policy, &[text(&program), how]);
            assert_eq!(outcome.output, output, "{policy}");
            let filtered = outcome.has(&Cause::FilteredByProgram);
            let advises = policy.starts_with("thp") || policy.ends_with("no-huge");
            assert_eq!(filtered, advises && matches!(how, "kill" | "threads"), "{policy} {how}");
        }
    }
}

#[test]
fn timers_and_stops() {
    let _alone = alone();
    let Some(program) = c("signals") else { return };
    for policy in ["default", "thp", "thp+no-guards", "hugetlb-2m"] {
        let outcome = under(policy, &[text(&program), "timer"]);
        assert_eq!(outcome.output, "timer: enough 1, strange 0, blocked 0", "{policy}");
        let outcome = under(policy, &[text(&program), "stops"]);
        assert_eq!(outcome.output, "stops: held 100, went on 100, killed 9", "{policy}");
        assert_eq!(under(policy, &[text(&program), "self"]).output, bare(&[text(&program), "self"]), "{policy}");
    }
}

#[test]
fn tracers_inside_fail_and_are_said() {
    let _alone = alone();
    for (tool, command) in
        [("strace", &["strace", "-f", "true"][..]), ("gdb", &["gdb", "-batch", "-ex", "run", "true"])]
    {
        if bare(&["sh", "-c", &format!("command -v {tool}")]).is_empty() {
            skip(tool);
            continue;
        }
        let outcome = under("thp", command);
        assert!(outcome.has(&Cause::Debugger), "{tool}: {:?} {}", outcome.ended.causes, outcome.output);
    }
}

#[test]
fn a_32_bit_program_runs_untouched() {
    let _alone = alone();
    if !cfg!(target_arch = "x86_64") {
        return skip("x86-64");
    }
    // Of no library, so that the compiler of this architecture is enough.
    let options = ["-m32", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-fno-stack-protector"];
    let Some(program) = compile("gcc", "abi32", &options) else { return skip("gcc") };
    let expected = bare(&[text(&program)]);
    assert_eq!(expected, "00002048");
    for policy in ["thp", "default+no-huge", "hugetlb-2m", "thp+no-guards"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert!(outcome.has(&Cause::ForeignAbi));
    }
}

#[test]
fn roots_programs_change_their_user_by_exec_and_other_users_do_not() {
    let _alone = alone();
    let Some(program) = c("identity") else { return };
    if !is_root() {
        return skip("root");
    }
    let folder = public_folder();
    let program = public_copy(&folder, &program, 0o4755);
    let outcome = try_under("thp", &[text(&program)], |launch| launch.user = Some(nobody())).unwrap();
    assert_eq!(outcome.output, "user 65534 for 65534");
    assert!(outcome.has(&Cause::PrivilegeNotGained));
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let outcome = under("thp", &[text(&program)]);
    assert_eq!(outcome.output, "user 65534 for 0", "unless {folder:?} is mounted nosuid");
    assert!(!outcome.has(&Cause::PrivilegeNotGained));
}

/// Runs one ignored test of this file as nobody, on a program.
fn as_nobody(test: &str, program: &Path, mode: u32) {
    let folder = public_folder();
    let program = public_copy(&folder, program, mode);
    let tests = public_copy(&folder, &std::env::current_exe().unwrap(), 0o755);
    let mut command = Command::new(tests);
    command.args(["--exact", test, "--ignored", "--nocapture"]).env("PAGELAB_TEST_PROGRAM", program);
    let output = command.uid(65534).gid(65534).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn without_root() {
    let _alone = alone();
    let (Some(mix), Some(identity)) = (c("mix"), c("identity")) else { return };
    if !is_root() {
        return skip("root, to become another user");
    }
    as_nobody("nobody_traces", &mix, 0o755);
    as_nobody("nobody_gains_no_privilege", &identity, 0o4755);
}

#[test]
#[ignore = "run by without_root, as another user"]
fn nobody_traces() {
    assert!(!is_root());
    let program = std::env::var("PAGELAB_TEST_PROGRAM").expect("a program");
    let expected = bare(&[&program]);
    for policy in POLICIES.into_iter().chain(["hugetlb-2m"]) {
        assert_eq!(under(policy, &[&program]).output, expected, "{policy}");
    }
    let refused = try_under("thp", &[&program], |launch| launch.user = Some(nobody_else()));
    assert!(matches!(refused, Err(LaunchError::Prepare { step: "becoming the user", .. })), "only root can");
}

fn nobody_else() -> User {
    user("daemon", 1)
}

#[test]
#[ignore = "run by without_root, as another user"]
fn nobody_gains_no_privilege() {
    let program = std::env::var("PAGELAB_TEST_PROGRAM").expect("a program");
    let outcome = under("thp", &[&program]);
    assert_eq!(outcome.output, "user 65534 for 65534");
    assert!(outcome.has(&Cause::PrivilegeNotGained));
}

// ---- ends ----

#[test]
fn what_outlives_the_root_is_killed() {
    let _alone = alone();
    let line = "sleep 600 & (trap '' TERM HUP; while :; do sleep 0.01; done) & echo done";
    let since = Instant::now();
    let outcome = under("thp", &["sh", "-c", line]);
    assert_eq!(outcome.output, "done");
    assert!(outcome.ended.killed_leftovers >= 2 && since.elapsed() < Duration::from_secs(5));
}

/// Takes so long for every look.
struct Slow(Duration);

impl Witness for Slow {
    fn begins(&mut self, _: libc::pid_t) {}

    fn ends(&mut self, _: libc::pid_t, _: &[u64]) {
        std::thread::sleep(self.0);
    }

    fn unmaps(&mut self, _: libc::pid_t, _: u64, _: u64) {}
}

#[test]
fn looks_are_told_by_what_they_do_to_the_wall_time() {
    let _alone = alone();
    let rewriting = Rewriting::of(&Policy::DEFAULT, host().geometry());
    let look_s = 0.3;
    let looked = |line: &str| {
        let file = tempfile::tempfile().unwrap();
        let mut slow = Slow(Duration::from_secs_f64(look_s));
        let leftovers = Leftovers::KillAfter(Duration::from_millis(50));
        run(&launch(&["sh", "-c", line], &file), &rewriting, Some(&mut slow), leftovers).unwrap()
    };
    for (line, apart, within, after) in
        [("exit 0", 1.0, 0.0, 0.0), ("(exit 0); exit 0", 1.0, 1.0, 0.0), ("sleep 600 & sleep 0.1", 1.0, 1.0, 1.0)]
    {
        let Ended { wall_s, tracer_s, looks, .. } = looked(line);
        for (took_s, looks) in [(looks.apart_s, apart), (looks.within_s, within), (looks.after_s, after)] {
            assert!(
                (look_s * looks..look_s * (looks + 0.5)).contains(&took_s) || took_s == look_s * looks,
                "{line}: {took_s}"
            );
        }
        assert!((look_s * within..look_s * (within + 0.9)).contains(&wall_s), "{line}: {wall_s} s");
        assert!(wall_s > 0.0 && tracer_s >= look_s * (apart + within + after), "{line}: {wall_s} {tracer_s}");
    }
}

#[test]
fn ends_and_failures_are_told_apart() {
    let _alone = alone();
    let exit = |line: &str| under("thp", &["sh", "-c", line]).ended.exit;
    assert_eq!(exit("exit 7"), Exit::Code(7));
    assert_eq!(exit("kill -SEGV $$"), Exit::Signal(libc::SIGSEGV));
    let fails = |command: &[&str]| try_under("thp", command, |_| {}).err().expect("a failure");
    assert!(matches!(fails(&["no-such-command-here"]), LaunchError::NotFound(_)));
    let obstacle = |command: &str| match fails(&[command]) {
        LaunchError::NotExecutable(_, obstacle) => obstacle,
        other => panic!("{command}: {other}"),
    };
    assert_eq!(obstacle("/etc/passwd"), Obstacle::NoPermission);
    assert_eq!(obstacle("/"), Obstacle::Directory);
    let file = FOLDER.join(format!("nothing.{}", std::process::id()));
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(obstacle(text(&file)), Obstacle::NoProgram);
    fs::write(&file, "#!/no/such\n").unwrap();
    assert_eq!(obstacle(text(&file)), Obstacle::NoInterpreter("/no/such".into(), file.clone()));
    fs::write(&file, "#!/etc/passwd\n").unwrap();
    assert_eq!(obstacle(text(&file)), Obstacle::Forbidden);
    fs::remove_file(file).unwrap();
}

#[test]
fn redis_keeps_its_data_and_its_large_pages() {
    let _alone = alone();
    if bare(&["sh", "-c", "command -v redis-server redis-cli"]).is_empty() {
        return skip("redis-server and redis-tools");
    }
    // redis disables THP for itself; saving forks a copy of the whole memory.
    let line = "d=$(mktemp -d); cd $d; trap 'rm -rf $d' EXIT; \
        redis-server --port 0 --unixsocket $d/s --save '' --appendonly no --enable-debug-command yes > log & \
        c=\"redis-cli -s $d/s\"; until $c ping > /dev/null 2>&1; do sleep 0.02; done; \
        $c debug populate 100000 key 100 > /dev/null; $c bgsave > /dev/null; \
        until $c info persistence | grep -q bgsave_in_progress:0; do sleep 0.02; done; \
        $c info persistence | grep -o last_bgsave_status:ok; $c dbsize; $c debug digest; $c shutdown nosave; wait";
    let mut settings = Settings::lease();
    // redis does so where THP is on for all.
    let disables = settings.as_mut().is_some_and(|settings| settings.set(&format!("{THP}/enabled"), "always"));
    let expected = bare(&["sh", "-c", line]);
    assert!(expected.contains("ok") && expected.contains("100000"), "{expected}");
    for policy in ["base", "thp", "hugetlb-2m"] {
        let outcome = under(policy, &["sh", "-c", line]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert_eq!(outcome.answered("prctl(PR_SET_THP_DISABLE, 1)"), disables && policy == "thp", "{policy}");
    }
}

// ---- programs that map often ----

/// Jumps and answer of `programs/places.c`, which does one thing with a place that maps often.
fn places(policy: &str, program: &Path, how: &str) -> Outcome {
    let outcome = under(policy, &[text(program), how]);
    let ended = (outcome.output.as_str(), outcome.ended.exit);
    let told = if how == "exec" { "registers" } else { how };
    assert_eq!(ended, (format!("{told}: ok").as_str(), Exit::Code(0)), "{how} under {policy}");
    outcome
}

fn x86_64_program(name: &str) -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        skip("x86-64");
        return None;
    }
    c(name)
}

#[test]
fn a_place_that_maps_often_is_given_a_jump_and_the_program_does_not_notice() {
    let _alone = alone();
    let Some(program) = x86_64_program("places") else { return };
    let jumps = [
        ("registers", 1),
        ("arguments", 1),
        ("lookalike", 0),
        ("copies", 4),
        ("exec", 2),
        ("threads", 1),
        ("beside", 1),
        ("interrupts", 2),
        ("traps", 1),
    ];
    for (how, jumps) in jumps {
        for policy in ["thp", "default+no-huge"] {
            assert_eq!(places(policy, &program, how).ended.jumps, jumps, "{how} under {policy}");
        }
    }
}

#[test]
fn static_programs_are_given_jumps_too() {
    let _alone = alone();
    if x86_64_program("places").is_none() {
        return;
    }
    // musl comes without the kernel's headers.
    let headers = ["-static", "-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];
    for (compiler, options) in [("gcc", &["-static"][..]), ("gcc", &["-static-pie"]), ("musl-gcc", &headers)] {
        let Some(program) = compile(compiler, "places", options) else {
            skip(&format!("{compiler} {options:?}"));
            continue;
        };
        for (how, jumps) in [("registers", 1), ("interrupts", 2), ("hole", 1)] {
            assert_eq!(places("thp", &program, how).ended.jumps, jumps, "{compiler} {options:?} {how}");
        }
    }
}

#[test]
fn the_place_of_the_c_library_is_given_a_jump_where_it_loads_the_number_last() {
    let _alone = alone();
    if x86_64_program("churn").is_none() {
        return;
    }
    // musl loads another register between the number and the call.
    let programs = [("gcc", &[][..], 1), ("gcc", &["-static"], 1), ("musl-gcc", &["-static"], 0)];
    for (compiler, options, jumps) in programs {
        match compile(compiler, "churn", options) {
            Some(program) => {
                let outcome = under("thp", &[text(&program), "200", "2097152", "0"]);
                assert_eq!(outcome.ended.jumps, jumps, "{compiler} {options:?}");
            }
            None => skip(&format!("{compiler} {options:?}")),
        }
    }
}

#[test]
fn policies_that_change_more_than_advice_stop_at_each_mapping() {
    let _alone = alone();
    let Some(program) = x86_64_program("churn") else { return };
    let command = [text(&program), "200", "2097152", "0"];
    for policy in ["default", "base", "thp+prefault", "thp+no-guards", "hugetlb-2m", "default+no-guards"] {
        assert_eq!(under(policy, &command).ended.jumps, 0, "{policy}");
    }
    for policy in ["thp", "thp+no-huge", "mthp-64k"] {
        assert_eq!(under(policy, &command).ended.jumps, 1, "{policy}");
    }
}

#[test]
fn text_in_a_large_leaf_is_not_written_to() {
    let _alone = alone();
    let Some(program) = x86_64_program("places") else { return };
    if !is_root() {
        return skip("root, to mount a tmpfs with large folios");
    }
    // In a mount namespace of its own, which goes with it.
    let folder = tempfile::tempdir().unwrap();
    let line = "mount -t tmpfs -o huge=always none $1 || exit 3; exec $0 large-text $1/text";
    let outcome = under("thp", &["unshare", "-m", "sh", "-c", line, text(&program), text(folder.path())]);
    if outcome.ended.exit == Exit::Code(3) || outcome.output == "large-text: no large leaf" {
        return skip("a tmpfs with large folios");
    }
    assert_eq!((outcome.output.as_str(), outcome.ended.jumps), ("large-text: ok", 0));
}

#[test]
fn mappings_without_a_stop_are_advised() {
    let _alone = alone();
    let Some(program) = x86_64_program("places") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    let huge = |policy| places(policy, &program, "resident").seen.bytes("AnonHugePages");
    assert!(huge("thp") >= 24 << 20, "{} of 32M", huge("thp"));
    assert_eq!(huge("default+no-huge"), 0);
}

#[test]
fn jumps_are_taken_back_from_programs_that_filter_their_calls() {
    let _alone = alone();
    let Some(program) = x86_64_program("places") else { return };
    for how in ["filter", "filter-threads", "dispatch"] {
        assert_eq!(places("thp", &program, how).ended.jumps, 1, "{how}");
    }
}

#[test]
fn a_jump_into_a_hole_goes_to_the_call_of_the_programs_own() {
    let _alone = alone();
    let Some(program) = x86_64_program("places") else { return };
    for (how, jumps) in [("hole", 1), ("not-executable", 1), ("hole-beside", 1), ("libraries", 3)] {
        assert_eq!(places("thp", &program, how).ended.jumps, jumps, "{how}");
    }
}

// ---- speed ----

/// The smoke of `benches/tracer.rs`: the ratio is not judged here, where other tests run beside it.
#[test]
fn frequent_mappings_cost_little() {
    let _alone = alone();
    let Some(program) = c("churn") else { return };
    let command = [text(&program), "300", "2097152", "300"];
    let seconds = |output: String| output.parse::<f64>().expect("seconds");
    let best = |runs: [f64; 3]| runs.into_iter().fold(f64::MAX, f64::min);
    let (without, with) =
        (best([0; 3].map(|_| seconds(bare(&command)))), best([0; 3].map(|_| seconds(under("thp", &command).output))));
    assert!(with < 2.0 * without, "{with} s under the tracer, {without} s without");
}
