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

use host::Host;
use study::cause::Cause;
use study::policy::Policy;
use study::size::PageSize;
use study::trial::Exit;
use testing::skip;
use tracer::{Ended, Extent, Launch, LaunchError, Leftovers, Pace, Refusal, Rewriting, User, Witness, run, run_bare};

// ---- what the tests stand on ----

/// One tree at a time: the leash and the waiting are the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

    fn ends(&mut self, task: libc::pid_t) {
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
        limit: None,
    }
}

fn try_under(policy: &str, command: &[&str], change: impl FnOnce(&mut Launch)) -> Result<Outcome, LaunchError> {
    let policy: Policy = policy.parse().expect("a policy");
    rewritten(Rewriting::of(&policy, host().geometry()), command, change)
}

fn rewritten(rewriting: Rewriting, command: &[&str], change: impl FnOnce(&mut Launch)) -> Result<Outcome, LaunchError> {
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
            None => skip(format!("{compiler} {options:?}")),
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
            return skip(format!("{pages} hugetlb pages of 2M"));
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
            return skip(format!("{pages} hugetlb pages of 2M"));
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
fn what_asks_for_base_pages_is_answered_as_without_a_policy() {
    let _alone = alone();
    let (Some(parts), Some(watched)) = (c("parts"), c("watched")) else { return };
    let expected = [bare(&[text(&parts)]), bare(&[text(&watched)])];
    if expected[1].starts_with("no userfaultfd") {
        skip("userfaultfd");
    }
    let same = |outcome: &Outcome, expected: &str, under: &str| {
        let differs = outcome.output.lines().zip(expected.lines()).find(|(line, expected)| line != expected);
        assert!(differs.is_none() && outcome.output == expected, "{under}: {differs:?}");
    };
    for policy in ["default", "base", "thp", "default+no-huge"] {
        same(&under(policy, &[text(&parts)]), &expected[0], policy);
    }
    same(&under("base", &[text(&watched)]), &expected[1], "base");
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    for pages in ["60", "0"] {
        if !settings.set(&pool_file(), pages) {
            return skip(format!("{pages} hugetlb pages of 2M"));
        }
        for (program, expected) in [&parts, &watched].into_iter().zip(&expected) {
            let outcome = under("hugetlb-2m", &[text(program)]);
            same(&outcome, expected, &format!("pool of {pages}"));
            assert_eq!(outcome.has(&Cause::Demoted), pages != "0" && !expected.starts_with("no userfaultfd"));
            assert!(!outcome.has(&Cause::NotGivenBack));
        }
    }
}

#[test]
fn pool_pages_that_cannot_be_given_back_are_said() {
    let _alone = alone();
    let Some(program) = c("watched") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&pool_file(), "20") {
        return skip("20 hugetlb pages of 2M");
    }
    // It limits its addresses first: there is no room for the base pages.
    let command = [text(&program), "limited"];
    assert_eq!(bare(&command), "limited: error 0");
    let outcome = under("hugetlb-2m", &command);
    assert_eq!(outcome.output, format!("limited: error {}", libc::ENOMEM));
    assert!(outcome.has(&Cause::NotGivenBack));
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
    for how in ["disable", "advise", "vector", "populate", "huge", "zeroed", "grown", "piecewise"] {
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
    for how in ["except", "enable"] {
        let (is_huge, outcome) = huge("base", how);
        assert!(!is_huge && outcome.output == bare(&[text(&program), how]), "{how}: {}", outcome.output);
        let excepts = outcome.output.starts_with("except: 0");
        assert_eq!(outcome.answered("prctl(PR_SET_THP_DISABLE"), how == "enable" || excepts, "{how}");
    }
}

#[test]
fn pieces_that_the_kernel_joins_are_huge_together() {
    let _alone = alone();
    let Some(program) = c("pieces") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    let huge_mib = |policy: &str, mappings: &[&str]| {
        let command = [&[text(&program)], mappings].concat();
        let outcome = under(policy, &command);
        assert_eq!(outcome.output, bare(&command), "{policy} {mappings:?}");
        outcome.seen.bytes("AnonHugePages") >> 20
    };
    // (count, KiB): as if it advised them all itself, but for the ends.
    assert!(huge_mib("default", &["advise", "200", "1028"]) >= 196);
    assert_eq!(huge_mib("default", &["touch", "200", "1028"]), 0);
    assert!(huge_mib("thp", &["touch", "200", "1028"]) >= 196);
    assert!(huge_mib("thp", &["touch", "300", "128"]) >= 32);
    // Those below the least are advised with the next one that is not.
    assert!(huge_mib("thp", &["touch", "1", "16", "200", "64", "1", "128"]) >= 8);
    // And are not where none comes: a stop for each would cost more than it brings.
    assert_eq!(huge_mib("thp", &["touch", "200", "64"]), 0);
    // What grows out of being too small.
    assert!(huge_mib("thp", &["grow", "1", "64", "1", "16384"]) >= 14);
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
            let advises = policy.starts_with("thp");
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
    for policy in ["base", "thp", "default+no-huge", "hugetlb-2m", "thp+no-guards"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert!(outcome.has(&Cause::ForeignAbi));
    }
    // It enables THP for itself, which nobody stops; the filter answers.
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    settings.set(&format!("{THP}/enabled"), "always");
    let huge = |policy: &str| under(policy, &[text(&program)]).seen.bytes("AnonHugePages");
    assert!(huge("default") >= 4 << 20);
    assert_eq!(huge("base"), 0);
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
    let outcome = under("thp", &["sh", "-c", line]);
    assert_eq!(outcome.output, "done");
    assert!(outcome.ended.killed_leftovers >= 2);
}

/// A daemon at work is waited for, as a program in the foreground is; one that waits is not.
#[test]
fn what_outlives_the_root_and_works_is_let_finish() {
    let _alone = alone();
    let work = "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done; echo done";
    let outcome = under("thp", &["sh", "-c", &format!("({work}) &")]);
    assert_eq!((outcome.output.as_str(), outcome.ended.killed_leftovers), ("done", 0));
    let Ended { outlived_s, outlived_cpu_s, usage, wall_s, cut_short, .. } = outcome.ended;
    let cpu_s = usage.user_s + usage.system_s;
    assert!(
        outlived_s > wall_s && outlived_cpu_s > cpu_s / 2.0 && outlived_cpu_s <= cpu_s,
        "{outlived_cpu_s} of {cpu_s} s"
    );
    assert!(!cut_short);
    let alone = under("thp", &["sh", "-c", "exit 0"]).ended;
    assert_eq!((alone.outlived_s, alone.outlived_cpu_s), (0.0, 0.0));
}

/// Takes so long for every look.
struct Slow(Duration);

impl Witness for Slow {
    fn begins(&mut self, _: libc::pid_t) {}

    fn ends(&mut self, _: libc::pid_t) {
        std::thread::sleep(self.0);
    }

    fn unmaps(&mut self, _: libc::pid_t, _: u64, _: u64) {}
}

/// Wants to see all that goes, and counts it.
#[derive(Default)]
struct Everything {
    gone_bytes: u64,
    replaced: usize,
}

impl Witness for Everything {
    fn begins(&mut self, _: libc::pid_t) {}
    fn ends(&mut self, _: libc::pid_t) {}

    fn unmaps(&mut self, _: libc::pid_t, start: u64, end: u64) {
        self.gone_bytes += end - start;
    }

    fn extent(&self) -> Extent {
        Extent::All
    }

    fn replaces(&mut self, _: libc::pid_t) {
        self.replaced += 1;
    }
}

#[test]
fn programs_do_not_notice_that_all_is_looked_at() {
    let _alone = alone();
    let (Some(mix), Some(pieces)) = (c("mix"), c("given_back")) else { return };
    let looked = |policy: &str, command: &[&str]| {
        let rewriting = Rewriting::of(&policy.parse().unwrap(), host().geometry());
        let mut file = tempfile::tempfile().unwrap();
        let mut everything = Everything::default();
        let leftovers = Leftovers::KillAfter(Duration::from_millis(200));
        let mut launch = launch(command, &file);
        launch.disable_thp = rewriting.disable_thp;
        let ended = run(&launch, &rewriting, Some(&mut everything), leftovers).unwrap();
        let mut output = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut output).unwrap();
        (ended.exit, output.trim_end().to_string(), everything)
    };
    let expected = bare(&[text(&mix)]);
    for policy in ["default", "base", "thp", "thp+prefault", "default+no-guards", "default+no-huge", "hugetlb-2m"] {
        let (exit, output, _) = looked(policy, &[text(&mix)]);
        assert_eq!((exit, &output), (Exit::Code(0), &expected), "{policy}");
        for how in ["unmap", "heap", "shrink", "drop", "free", "over"] {
            let (exit, _, seen) = looked(policy, &[text(&pieces), "524288", "16777216", how]);
            // Under hugetlb a page of the pool goes with its last piece.
            let all_but = if policy == "hugetlb-2m" && how == "free" { 16 << 20 } else { 2 << 20 };
            assert!(exit == Exit::Code(0) && seen.gone_bytes >= (16 << 20) - all_but, "{policy} {how}: {exit:?}");
        }
        // Failed attempts along PATH are told too, and the start of the program itself is not.
        let (exit, _, seen) = looked(policy, &[text(&pieces), "524288", "1048576", "exec"]);
        assert!(exit == Exit::Code(0) && seen.replaced >= 1, "{policy}: {exit:?}");
        assert_eq!(looked(policy, &[text(&pieces), "524288", "1048576", "keep"]).2.replaced, 0, "{policy}");
    }
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
        let since = Instant::now();
        let Ended { wall_s, tracer_s, looks, .. } = looked(line);
        let all_s = since.elapsed().as_secs_f64();
        for (took_s, looks) in [(looks.apart_s, apart), (looks.within_s, within), (looks.after_s, after)] {
            assert!(took_s >= look_s * looks && (looks > 0.0 || took_s == 0.0), "{line}: {took_s}");
        }
        // However slow the machine is: what is apart or after is not in the wall time, and what is within is.
        assert!(
            wall_s >= looks.within_s && wall_s <= all_s - looks.apart_s - looks.after_s,
            "{line}: {wall_s} of {all_s} s"
        );
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
    let refusal = |command: &str| match fails(&[command]) {
        LaunchError::NotExecutable(_, refusal) => refusal,
        other => panic!("{command}: {other}"),
    };
    assert_eq!(refusal("/etc/passwd"), Refusal::NoPermission);
    assert_eq!(refusal("/"), Refusal::Directory);
    let file = FOLDER.join(format!("nothing.{}", std::process::id()));
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(refusal(text(&file)), Refusal::NoProgram);
    fs::write(&file, "#!/no/such\n").unwrap();
    assert_eq!(refusal(text(&file)), Refusal::NoInterpreter("/no/such".into(), file.clone()));
    fs::write(&file, "#!/etc/passwd\n").unwrap();
    assert_eq!(refusal(text(&file)), Refusal::Forbidden);
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

// ---- bare and sham trials ----

/// The program without a tracer, by the same start.
fn run_untraced(command: &[&str]) -> (Result<Ended, LaunchError>, String) {
    let mut file = tempfile::tempfile().expect("a file for the output");
    let ended = run_bare(&launch(command, &file), Duration::from_millis(200));
    let mut output = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut output).unwrap();
    (ended, output.trim_end().to_string())
}

#[test]
fn a_bare_run_has_neither_filter_nor_tracer_and_else_what_every_run_has() {
    let _alone = alone();
    let look =
        ["sh", "-c", "grep -E '^(TracerPid|Seccomp|NoNewPrivs|SigBlk|SigIgn|CapEff)' /proc/self/status; ps -o sid= $$"];
    let (ended, bare) = run_untraced(&look);
    let traced = under("default", &look).output;
    assert_eq!(ended.unwrap().exit, Exit::Code(0));
    let field = |text: &str, name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.trim().to_string()
    };
    assert_eq!((&*field(&bare, "TracerPid:"), &*field(&bare, "Seccomp:")), ("0", "0"));
    assert_ne!((&*field(&traced, "TracerPid:"), &*field(&traced, "Seccomp:")), ("0", "0"));
    for name in ["NoNewPrivs:", "SigBlk:", "SigIgn:", "CapEff:"] {
        assert_eq!(field(&bare, name), field(&traced, name), "{name}");
    }
    assert_eq!(bare.lines().last(), traced.lines().last(), "the session");
}

#[test]
fn a_bare_run_ends_as_its_program_and_leaves_nothing_behind() {
    let _alone = alone();
    let exit = |line: &str| run_untraced(&["sh", "-c", line]).0.unwrap().exit;
    assert_eq!([exit("exit 7"), exit("kill -SEGV $$")], [Exit::Code(7), Exit::Signal(libc::SIGSEGV)]);
    let (ended, output) = run_untraced(&["sh", "-c", "sleep 1000 >/dev/null & echo $!"]);
    assert_eq!(ended.unwrap().killed_leftovers, 1);
    assert!(!Path::new("/proc").join(output).exists());
    let busy = "(i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done) & wait";
    let (ended, _) = run_untraced(&["sh", "-c", busy]);
    let ended = ended.unwrap();
    assert!(ended.usage.user_s > 0.0 && ended.wall_s > 0.0 && ended.stops == 0, "{ended:?}");
    assert!(matches!(run_untraced(&["/etc/passwd"]).0, Err(LaunchError::NotExecutable(_, Refusal::NoPermission))));
}

fn sham(policy: &str, pace: Pace, command: &[&str]) -> Outcome {
    let stops: Policy = policy.parse().expect("a policy");
    let rewriting = Rewriting::sham(&stops, &Policy::DEFAULT, host().geometry(), pace);
    rewritten(rewriting, command, |_| {}).unwrap_or_else(|error| panic!("{command:?} as {policy}: {error}"))
}

#[test]
fn a_sham_run_stops_as_the_policy_does_and_does_nothing() {
    let _alone = alone();
    let Some(program) = c("churn") else { return };
    for policy in ["thp", "thp+no-guards", "thp+prefault", "hugetlb-2m"] {
        let command = [text(&program), "400", "4194304", "0"];
        let real = under(policy, &command).ended;
        let outcome = sham(policy, real.pace, &command);
        let (real_stops, sham_stops) = (real.stops as f64, outcome.ended.stops as f64);
        assert!((sham_stops / real_stops - 1.0).abs() < 0.05, "{policy}: {sham_stops} against {real_stops} stops");
        assert!(outcome.ended.answered.is_empty() && outcome.ended.causes.is_empty(), "{policy}: {:?}", outcome.ended);
    }
}

#[test]
fn a_program_keeps_its_memory_under_a_sham() {
    let _alone = alone();
    let Some(program) = c("torture") else { return };
    let pace = Pace { served_ratio: 0.7, further_stops: 3.5 };
    for policy in ["thp", "thp+no-guards", "thp+prefault", "hugetlb-2m"] {
        let outcome = sham(policy, pace, &[text(&program), "5", "1000", "closed"]);
        assert_eq!(outcome.output, "torture 5 1000 kept its memory", "{policy}");
        assert_eq!(outcome.seen.bytes("Private_Hugetlb"), 0, "{policy}");
    }
}

#[test]
fn memory_is_not_huge_under_a_sham() {
    let _alone = alone();
    let Some(program) = c("against") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    for how in ["advise", "zeroed", "grown"] {
        let outcome = sham("thp", Pace { served_ratio: 1.0, further_stops: 3.0 }, &[text(&program), how]);
        assert_eq!(outcome.seen.bytes("AnonHugePages"), 0, "{how}");
    }
    assert!(
        sham("thp", Pace::default(), &[text(&program), "huge"]).seen.bytes("AnonHugePages") >= 12 << 20,
        "as it asks"
    );
}

#[test]
fn what_is_had_by_prctl_stops_for_nothing_else() {
    let _alone = alone();
    let (Some(churn), Some(program)) = (c("churn"), c("against")) else { return };
    let stops = |policy: &str| under(policy, &[text(&churn), "50", "1048576", "0"]).ended.stops;
    assert_eq!([stops("base"), stops("default+no-huge"), stops("thp+no-huge")], [stops("default"); 3]);
    let outcome = under("default+no-huge", &[text(&program), "disable"]);
    assert_eq!(outcome.output, "again: 0 1, resident 1", "the program is told what it wants to hear");
}
