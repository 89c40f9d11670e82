//! Tests of `compare --kernel` with Debian's kernels in QEMU guests. All guests are emulated and count instructions, so that the
//! results do not depend on /dev/kvm.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use serde_json::Value;

/// The timeout of a run with guests.
const PATIENCE: Duration = Duration::from_secs(900);
/// The time within which a guest must be gone.
const SOON: Duration = Duration::from_secs(10);

/// The image of a kernel whose modules are next to it. `cargo xtask guests --fetch` puts both there.
fn image() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_default().join("pagelab/kernels/x86-64-6.1/linux")
}

/// Whether guests can be booted here.
fn has_guests() -> bool {
    let image = image();
    needs(&[
        ("x86-64", cfg!(target_arch = "x86_64")),
        program("qemu-system-x86_64"),
        ("`cargo xtask guests --fetch x86-64-6.1`", image.is_file() && image.with_file_name("lib").is_dir()),
    ])
}

/// A comparison in guests of this kernel, which is given under several names, each with additional words for its
/// command line.
fn compare(bench: &Bench, kernels: &[(&str, &str)], options: &[&str], command: &[String]) -> Command {
    let temporary = bench.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let image = image().display().to_string();
    let named: Vec<String> = kernels.iter().map(|(name, _)| format!("--kernel={name}={image}")).collect();
    let lines: Vec<String> = kernels.iter().map(|(_, words)| format!("--cmdline={words}")).collect();
    let fixed = ["--icount", "--boots", "1", "--min-blocks", "1", "--memory", "1G", "-p", "default,base"];
    let words: Vec<&str> =
        named.iter().chain(&lines).map(String::as_str).chain(fixed).chain(options.iter().copied()).collect();
    let mut compare = bench.compare(&words, command);
    compare.env("TMPDIR", &temporary);
    compare
}

/// Runs the command until it ends. Emulated guests take minutes if other work uses the processors.
fn ran(mut command: Command) -> Ran {
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    assert!(within(PATIENCE, || running.is_over()), "it still runs after {PATIENCE:?}: {command:?}");
    running.ran()
}

/// The times in the trials of a comparison.
fn times(comparison: &Value) -> Vec<String> {
    let trials =
        comparison["trials"].as_array().unwrap().iter().flat_map(|trial| trial["observations"].as_array().unwrap());
    let metrics = comparison["design"]["metrics"].as_array().unwrap().iter().map(|metric| &metric["name"]);
    let names = trials.map(|one| &one["metric"]).chain(metrics).map(|name| name.as_str().unwrap().to_owned());
    names.filter(|name| name.ends_with("_s")).collect()
}

/// The number of running guests of one run. They are found by a word of the kernel's command line.
fn guests(name: &str) -> usize {
    processes_with(&format!("pagelab.kernel={name} ")).len()
}

/// The number of files that guests left in a directory.
fn left_in(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn two_kernels_are_booted_and_compared_without_a_time_and_nothing_they_write_is_the_hosts() {
    if !has_guests() {
        return;
    }
    let bench = Bench::new();
    let written = bench.word("written");
    let program = bench.word("pagelab");
    let script =
        format!("echo x > {written} && cat {written} && {program} workload page-touch --bytes 64M --answer-only");
    // Debian's kernels zero memory when they allocate it (init_on_alloc), and this kernel zeroes a huge page once more for the
    // fault. The second zeroing takes as many instructions as the avoided faults save.
    let words = |enabled: &str| format!("transparent_hugepage={enabled} init_on_alloc=0");
    let (never, always) = (words("never"), words("always"));
    let kernels = [("never", never.as_str()), ("always", always.as_str())];
    let ran = ran(compare(&bench, &kernels, &["--check-output"], &shell(&script)));
    ran.assert_exit(0, &["boot 1 of 2", "boot 2 of 2", "(emulated, counting instructions)"]);
    ran.assert_stdout(&[
        "no figure is a time, because the guests are emulated",
        "default never ",
        "base always ",
        "bare never ",
        "pagelab show 1 2 --full --store ",
    ]);
    let show =
        |options: &[&str]| bench.pagelab(&[&["show", "1", "2", "--store", &bench.store()], options].concat()).ran();
    assert_eq!(show(&[]).assert_exit(0, &[]).stdout, ran.stdout, "the boots together read as the fresh comparison");
    show(&["--full"]).assert_exit(0, &[]).assert_stdout(&["Emulated: no figure is a time", "peak memory"]);
    show(&["--mail"]).assert_exit(0, &[]).assert_stdout(&["peak memory", "bare", "-- "]);
    bench
        .pagelab(&["list", "comparisons", "--store", &bench.store()])
        .ran()
        .assert_stdout(&["(on never)", "(on always)"]);
    assert!(!ran.stdout.contains("wall") && !ran.stdout.contains("claim"), "{ran}");
    assert!(!Path::new(&written).exists(), "the guest's files are its own");
    assert_eq!((guests("never"), guests("always"), left_in(&bench.path("tmp"))), (0, 0, 0));
    let median = |name: &str| {
        let stored = (1..=2).map(|number| bench.stored(number));
        let word = format!("pagelab.kernel={name} ");
        let of_kernel = |one: &Value| one["machine"]["kernel_command_line"].as_str().unwrap().contains(&word);
        let one = stored.into_iter().find(of_kernel).unwrap();
        assert_eq!(times(&one), [""; 0], "{name}");
        arm(&one, "default")["medians"].clone()
    };
    let faults = |name: &str| median(name)["minor_faults"].as_f64().unwrap();
    // The program gives its memory back before it ends, so none of it is inspected. Then the figure is absent, not 0.
    assert!(median("always")["large_page_bytes"].is_null(), "{:#}", median("always"));
    let (never, always) = (faults("never"), faults("always"));
    assert!(never > 64.0 * 256.0 && always < never / 4.0, "{never} and {always}");
    let instructions = |name: &str| median(name)["instructions"].as_f64().unwrap();
    let (never, always) = (instructions("never"), instructions("always"));
    assert!(never > 1.2 * always, "{never} and {always}");
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    shown.assert_stdout(&["a boot of the kernel ", "emulated, so no figure is a time"]);
    let mail = bench.pagelab(&["show", "1", "--mail", "--store", &bench.store()]).ran();
    mail.assert_stdout(&[
        "Emulated: no figure is a time",
        "* no time: the machine was emulated",
        "instructions default ",
        "minor faults default ",
    ]);
    assert!(!mail.stdout.contains("wall time") && !mail.stdout.contains(" s\n"), "{mail}");
}

#[test]
fn a_guest_is_gone_when_pagelab_is_killed_or_interrupted_and_leaves_nothing() {
    if !has_guests() {
        return;
    }
    for (name, signal) in [("killed", "KILL"), ("interrupted", "INT")] {
        let bench = Bench::new();
        let mut compare = compare(&bench, &[(name, "")], &[], &shell("sleep 1000"));
        let mut running = compare.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
        assert!(within(LIMIT, || guests(name) == 1), "no guest");
        send(signal, running.id());
        let code = running.wait().code();
        assert_eq!(code, if signal == "INT" { Some(130) } else { None });
        assert!(within(SOON, || guests(name) == 0), "the guest is still there after SIG{signal}");
        assert_eq!(left_in(&bench.path("tmp")), 0);
    }
}

#[test]
fn reports_panics_and_hangs_with_the_logs() {
    if !has_guests() {
        return;
    }
    let bench = Bench::new();
    let log = |name: &str| fs::read_to_string(bench.path(&format!("guest-{name}.log"))).unwrap();
    let panics = ran(compare(&bench, &[("panics", "rdinit=/nothing")], &[], &shell("true")));
    panics.assert_exit(4, &["panics: the guest ended without a result", "Kernel panic", "guest-panics.log"]);
    assert!(log("panics").contains("Kernel panic"));
    let hangs = ran(compare(&bench, &[("hangs", "")], &["--guest-time", "2s"], &shell("true")));
    hangs.assert_exit(4, &["hangs: the guest did not come up within 2 s", "guest-hangs.log"]);
    log("hangs");
    assert_eq!((guests("panics"), guests("hangs")), (0, 0));
}

#[test]
fn a_study_boots_its_guests_and_compares_them() {
    if !has_guests() {
        return;
    }
    let bench = Bench::new();
    let image = image().display().to_string();
    let study = format!(
        "schema = \"pagelab.study/1\"\nname = \"guests\"\nquestion = \"Which?\"\npolicies = [\"default\", \"base\"]\n\
         [sizes.standard]\nblocks = 1\nmin_blocks = 1\nboots = 1\n\
         [[workload]]\nname = \"touch\"\ncommand = [\"pagelab\", \"workload\", \"page-touch\", \"--bytes\", \"16M\", \"--answer-only\"]\n\
         [boots.never]\nimage = \"{image}\"\ncmdline = \"transparent_hugepage=never\"\nmemory = \"1G\"\nicount = true\nbaseline = true\n\
         [boots.always]\nimage = \"{image}\"\ncmdline = \"transparent_hugepage=always\"\nmemory = \"1G\"\nicount = true\n"
    );
    fs::write(bench.path("guests.toml"), study).unwrap();
    let study = |verb: &str, words: &[&str]| {
        let store = bench.store();
        let fixed = ["study", verb, "guests.toml", "--store", &store];
        ran(bench.pagelab(&fixed.iter().chain(words).copied().collect::<Vec<&str>>()))
    };
    study("run", &[]).assert_exit(0, &["boot 1 of 2", "boot 2 of 2"]).assert_stdout(&["1 of 1 rows are done"]);
    let again = study("run", &[]);
    again.assert_exit(0, &[]);
    assert!(!again.stderr.contains("boot 1"), "what is done is not booted again: {again}");
    let report = study("report", &["--json"]).json();
    let rows = report["over_boots"]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["touch under default", "touch under base"]);
    let cell = rows[0]["cells"].as_array().unwrap().iter().find(|cell| cell["policy"] == "always").unwrap();
    assert!(cell["effects"]["minor_faults"]["ratio"].as_f64().unwrap() < 0.5, "{cell:#}");
    assert_eq!(report["over_boots"]["baseline"], "never");
    let mail = study("report", &["--mail"]);
    let words = mail.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for what in [
        "Kernel never: 6.1",
        "booted with transparent_hugepage=never",
        "Config always is the same image as never.",
        "THP never: enabled never",
        "instructions never",
        "pagelab workload page-touch --bytes 16M --answer-only",
        "in 1 boot",
        "* no interval: one boot of a kernel is one observation",
    ] {
        assert!(words.contains(what), "{what} in {mail}");
    }
    assert!(mail.stdout.is_ascii() && mail.stdout.lines().all(|line| line.len() <= 72), "{mail}");
}

#[test]
fn reports_unbootable_kernels_before_any_boot() {
    let bench = Bench::new();
    let refuses = |options: &[&str], parts: &[&str]| {
        bench.compare(options, &shell("true")).ran().assert_exit(2, parts);
    };
    refuses(&["--kernel", "/bin/sh"], &["/bin/sh: expected the image of a kernel", "an ELF file (vmlinux)"]);
    refuses(&["--kernel", "nowhere"], &["nowhere: expected the image of a kernel"]);
    refuses(&["--kernel", "a b=x"], &["expected IMAGE or NAME=IMAGE"]);
    refuses(&["--memory", "1G"], &["--kernel"]);
    let mut header = vec![0; 0x1000];
    header[0x38..0x3c].copy_from_slice(if cfg!(target_arch = "aarch64") { b"RSC\x05" } else { b"ARM\x64" });
    header[0x200..0x215].copy_from_slice(b"Linux version 6.12.1 ");
    fs::write(bench.path("Image"), header).unwrap();
    refuses(&["--kernel", "Image"], &["Image: expected a kernel for", "a guest runs the programs of this host"]);
    if !has_guests() {
        return;
    }
    let image = image().display().to_string();
    symlink(&image, bench.path("link")).unwrap();
    fs::copy(&image, bench.path("alone")).unwrap();
    refuses(&["--kernel", "alone"], &["alone: no modules of 6.1", "INSTALL_MOD_PATH"]);
    refuses(&["--kernel", "link", "--memory", "1M"], &["expected 512M or more, found 1M"]);
    refuses(&["--kernel", "link", "--memory", "900T"], &["found 900T", "--memory SIZE"]);
    refuses(&["--kernel", "a=link", "--kernel", "a=link"], &["duplicate name \"a\""]);
    refuses(
        &["--kernel", "link", "--cmdline", "a", "--cmdline", "b"],
        &["expected one for all, or one for each of 1 kernels"],
    );
    refuses(&["--kernel", "link", "--icount", "--metric", "x:lower=(.*)"], &["because the guest is emulated"]);
    let mut without = bench.compare(&["--kernel", "link", "--icount"], &words_of(&["/bin/true"]));
    without
        .env("PATH", "/nowhere")
        .ran()
        .assert_exit(2, &["qemu-system-x86_64", "install it (Debian: qemu-system-x86)"]);
    let missing = bench.compare(&["--kernel", "link", "--icount"], &words_of(&["no-such-program"])).ran();
    missing.assert_exit(127, &["no-such-program"]);
    assert!(!missing.stderr.contains("boot 1"), "{missing}");
}
