//! Tests of what each capability is needed for: docs/guide/privileges.md, and the systemd unit on that page.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{Bench, LIMIT, Running, Runs, c_program, needs, program, root, send, within, wrap};

const PAGE: &str = include_str!("../../../../docs/guide/privileges.md");
/// The systemd unit on the page.
fn unit() -> &'static str {
    let blocks = PAGE.split("```").find(|block| block.contains("[Service]"));
    blocks.expect("a unit").trim_start()
}

/// The value of a key of the unit.
fn value(key: &str) -> &'static str {
    unit().lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_else(|| panic!("no {key}"))
}

/// The capabilities of the unit, as setpriv names them.
fn capabilities() -> Vec<String> {
    value("AmbientCapabilities").split(' ').map(|one| one.strip_prefix("CAP_").unwrap().to_lowercase()).collect()
}

/// A command as a user with these capabilities and no others.
fn with_capabilities(capabilities: &[String], command: &Command) -> Command {
    let added: Vec<String> = capabilities.iter().map(|one| format!("+{one}")).collect();
    let set = added.join(",");
    let mut outer = Command::new("setpriv");
    outer.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]);
    outer.args(["--inh-caps", &set, "--ambient-caps", &set, "--bounding-set", &format!("-all,{set}")]);
    wrap(&mut outer, command);
    outer
}

/// A process of root with 8M in base pages, under a name that no other process has.
fn process_of_root(bench: &Bench, name: &str) -> Running {
    let up = bench.path("up");
    let body = "char *at = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(at, 1, 8 << 20); \
                close(creat(getenv(\"UP\"), 0600)); pause();";
    let running = Command::new(&c_program(bench, name, body)[0]).env("UP", &up).begin();
    assert!(within(LIMIT, || up.exists()));
    running
}

fn can_run() -> bool {
    needs(&[root(), program("gcc"), program("setpriv")])
}

#[test]
fn the_capabilities_of_the_page_suffice_and_fewer_do_not() {
    if !can_run() {
        return;
    }
    let bench = Bench::new();
    let running = process_of_root(&bench, "collapses");
    let pid = running.id().to_string();
    let inspect =
        |capabilities: &[String]| with_capabilities(capabilities, &bench.pagelab(&["inspect", &pid, "--json"])).ran();
    let all = capabilities();
    assert_eq!(all, ["sys_ptrace", "dac_read_search", "sys_admin"]);
    let sees_folios = |capabilities: &[String]| {
        let document = inspect(capabilities).assert_exit(0, &[]).json();
        let census = document["processes"][0]["census"].as_array().unwrap().clone();
        census.iter().filter(|row| row["backing"] == "anonymous").all(|row| row["folio"] != "unknown")
    };
    assert!(sees_folios(&all));
    assert!(!sees_folios(&all[..2]));
    // New kernels accept CAP_SYS_ADMIN in place of CAP_SYS_PTRACE, so it must be left out too.
    for too_few in [&all[..1], &all[1..2], &[all[0].clone(), all[2].clone()]] {
        inspect(too_few).assert_exit(2, &["CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"]);
    }
    let collapse = |capabilities: &[String]| {
        with_capabilities(capabilities, &bench.pagelab(&["inspect", &pid, "--collapse"])).ran()
    };
    collapse(&all).assert_exit(0, &[]).assert_stdout(&["refused", "EPERM: it needs CAP_SYS_NICE"]);
    let with_nice = collapse(&[all, vec!["sys_nice".to_owned()]].concat());
    assert!(!with_nice.assert_exit(0, &[]).stdout.contains("EPERM"), "{with_nice}");
}

#[test]
fn the_unit_writes_what_it_sees_with_its_capabilities() {
    if !can_run() {
        return;
    }
    let bench = Bench::new();
    let name = "plainly";
    let _running = process_of_root(&bench, name);
    let written = bench.word("pages.prom");
    let words: Vec<String> = value("ExecStart")
        .split(' ')
        .skip(1)
        .map(|word| match word {
            "%i" => name.to_owned(),
            "60s" => "100ms".to_owned(),
            word if word.ends_with(".prom") => written.clone(),
            word => word.to_owned(),
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut service = with_capabilities(&capabilities(), &bench.pagelab(&words));
    let mut service = service.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    let has_written = || fs::read_to_string(&written).is_ok_and(|text| text.ends_with("# EOF\n"));
    assert!(within(LIMIT, || service.is_over() || has_written()));
    if !has_written() {
        panic!("{}", service.ran());
    }
    let text = fs::read_to_string(&written).unwrap();
    let line = format!("name=\"{name}\",backing=\"anonymous\",leaf_bytes=\"4096\",folio_bytes=\"4096\"");
    assert!(text.contains(&line), "{text}");
    send("TERM", service.id());
    service.ran().assert_exit(128 + 15, &[]);
    assert_eq!(value("CapabilityBoundingSet"), value("AmbientCapabilities"));
}

#[test]
fn systemd_accepts_the_unit() {
    if !needs(&[program("systemd-analyze")]) {
        return;
    }
    let bench = Bench::new();
    let file = bench.path("pagelab-inspect@.service");
    // systemd checks that the program exists.
    fs::write(&file, unit().replace("/usr/bin/pagelab", &bench.word("pagelab"))).unwrap();
    let ran = Command::new("systemd-analyze").arg("verify").arg(&file).ran();
    let about_it: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("pagelab-inspect@")).collect();
    assert!(ran.code == Some(0) && about_it.is_empty(), "{ran}");
}
