//! `series`: what kernels of a series change, and a kernel judged by a stored one. The guests are emulated.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;

/// The timeout of a run with guests.
const PATIENCE: Duration = Duration::from_secs(900);

/// A kernel with its modules, in the place where `cargo xtask guests --fetch` puts it.
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

/// Runs it until it ends. Emulated guests take minutes if others use the processors.
fn ran(mut command: Command) -> Ran {
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    assert!(within(PATIENCE, || running.is_over()), "it still runs after {PATIENCE:?}: {command:?}");
    running.ran()
}

/// A series of one kernel with a program that touches memory.
fn touched(bench: &Bench, options: &[&str]) -> Vec<String> {
    let kernel = format!("--kernel=one={}", image().display());
    let fixed = ["series", &kernel, "--workloads", "none"];
    let words = fixed.into_iter().chain(options.iter().copied()).chain(["--"]).map(str::to_owned);
    let program = [bench.word("pagelab"), "workload".into(), "page-touch".into(), "--bytes".into(), "16M".into()];
    words.chain(program).collect()
}

fn series(bench: &Bench, words: &[String]) -> Command {
    bench.pagelab(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A stored series of one kernel with the command `touch`.
const BASE: &str = r#"{"schema": "pagelab.series/1", "pagelab": [], "version": "1", "emulator": "QEMU",
    "workloads": [{"name": "command", "command": ["touch"]}],
    "kernels": [{"name": "old", "release": "6.1.0", "image": "", "hash": "", "architecture": "x86_64", "cmdline": "",
        "memory_bytes": 1073741824, "missing": {"swap-in": "this kernel has no zram"},
        "boots": [{"command": {"faults": 100, "instructions": 5000}}]}]}"#;

#[test]
fn refuses_what_cannot_be_judged_with_a_code_that_ends_a_bisection() {
    let bench = Bench::new();
    fs::write(bench.path("base.json"), BASE).unwrap();
    fs::write(bench.path("other.json"), "{\"schema\": \"pagelab.capabilities/1\"}").unwrap();
    let judge = |base: &str, assertion: &str, command: &[&str]| {
        let fixed = ["series", "--kernel", "nowhere", "--against", base, "--assert", assertion, "--"];
        bench.pagelab(&[&fixed, command].concat()).ran()
    };
    judge("missing.json", "faults<=+1%", &["touch"]).assert_exit(255, &["missing.json"]);
    judge("other.json", "faults<=+1%", &["touch"])
        .assert_exit(255, &["pagelab.series/1", "pagelab series --save FILE"]);
    judge("base.json", "faults<1", &["touch"]).assert_exit(255, &["\"faults<1\": expected METRIC[@WORKLOAD]<=+N%"]);
    judge("base.json", "faults<=1%", &["touch"]).assert_exit(255, &["expected a tolerance such as +1%"]);
    judge("base.json", "wall_s<=+1%", &["touch"]).assert_exit(255, &["wall_s@command", "it has faults, instructions"]);
    judge("base.json", "faults@fork<=+1%", &["touch"]).assert_exit(255, &["it was not run; it has command"]);
    judge("base.json", "faults@swap-in<=+1%", &["touch"]).assert_exit(255, &["this kernel has no zram"]);
    judge("base.json", "faults<=+1%", &["other", "a b"])
        .assert_exit(255, &["expected the command", "touch", "other 'a b'"]);
    judge("base.json", "faults<=+1%", &["touch"]).assert_exit(125, &["nowhere: expected the image of a kernel"]);
    let plain = |words: &[&str]| bench.pagelab(&[&["series"], words].concat()).ran();
    plain(&["--kernel", "nowhere", "--assert", "faults<=+1%"]).assert_exit(2, &["--against"]);
    plain(&["--kernel", "nowhere", "--", "true"]).assert_exit(2, &["nowhere: expected the image of a kernel"]);
    plain(&["--kernel", "nowhere", "--workloads", "swap"]).assert_exit(2, &["swap-in", "mapped-file"]);
    plain(&["--", "true"]).assert_exit(2, &["--kernel"]);
}

/// The planted regression is a word of the kernel's command line: without transparent huge pages each base page has its own fault.
#[test]
fn a_bisection_finds_the_commit_from_which_a_kernel_faults_more() {
    if !has_guests() || !needs(&[program("git")]) {
        return;
    }
    let bench = Bench::new();
    let first =
        ran(series(&bench, &touched(&bench, &["--save", "base.json", "--cmdline", "transparent_hugepage=always"])));
    first.assert_exit(0, &["boot 1 of 2", "boot 2 of 2"]).assert_stdout(&["one (6.1", "spread over boots"]);
    let base: serde_json::Value = serde_json::from_str(&fs::read_to_string(bench.path("base.json")).unwrap()).unwrap();
    let boots = base["kernels"][0]["boots"].as_array().unwrap();
    let figure = |boot: usize, name: &str| boots[boot]["command"][name].as_f64().unwrap();
    // Two boots differ by when the host answers requests for files: some per cent of the instructions, single faults. The planted
    // regression is fifteen times the faults, so neither limit here can be reached by chance.
    assert!((figure(0, "faults") / figure(1, "faults") - 1.0).abs() < 0.1, "{base:#}");
    assert!(figure(0, "instructions") > figure(0, "faults"), "{base:#}");

    let words = touched(&bench, &["--boots", "1", "--against", "../base.json", "--assert", "faults<=+100%"]);
    let at = words.iter().position(|word| word == "--").unwrap();
    let (before, command) = words.split_at(at);
    let line = |words: &[String]| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let judge = format!("'{}' {} --cmdline \"$(cat cmdline)\" {}", bench.word("pagelab"), line(before), line(command));
    let (good, planted) = ("transparent_hugepage=always", "transparent_hugepage=never");
    let script = format!(
        "set -e; mkdir tree; cd tree; git init -q .; git config user.name a; git config user.email a@example.org
         commit() {{ echo \"$2\" > cmdline; echo \"$1\" > number; git add .; git commit -q -m \"$1\"; }}
         commit good {good}; commit better {good}; commit planted {planted}; commit bad {planted}
         cat > judge <<'END'\n{judge}\nEND
         git bisect start HEAD HEAD~3; git bisect run sh judge; git show -s --format='found %s' refs/bisect/bad"
    );
    let mut bisect = Command::new("sh");
    bisect.args(["-c", &script]).current_dir(bench.path("")).env("XDG_DATA_HOME", bench.path("data"));
    let bisected = ran(bisect);
    let text = format!("{}{}", bisected.stdout, bisected.stderr);
    assert!(text.contains("does not hold: faults of command is ") && text.contains("found planted"), "{text}");

    let broken =
        touched(&bench, &["--against", "base.json", "--assert", "faults<=+1%", "--cmdline", "rdinit=/nothing"]);
    ran(series(&bench, &broken)).assert_exit(125, &["the guest ended without a result", "Kernel panic"]);
}
