//! Tests of the switches of real programs. `inspect` prints a remedy for the largest cause of a program, and the program is started
//! again as the remedy demands. At least three quarters of that memory must then be mapped by large pages. A server may have the rest
//! in memory that the switch does not concern, and that exists only for some time.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::causes::{HUGE, Set, THP, for_advised};
use super::remedies::{Followed, fallbacks, large_bytes};
use crate::common::{Bench, Running, Runs, has, needs, python};

/// A program that prints its PID when its memory is filled, and keeps the memory until its input ends. In `script`, `"$@"`
/// are further arguments.
pub struct Filled<'a> {
    pub bench: Bench,
    pub script: &'a str,
    /// The conditions of remedies that apply to this program's memory.
    pub holds: &'a [&'a str],
}

impl Filled<'_> {
    /// Starts the program with these arguments and variables, and inspects it.
    fn inspected(&self, followed: &Followed) -> Value {
        let mut command = Command::new("bash");
        command.args(["-c", self.script, "bash"]).args(&followed.arguments);
        command.envs(followed.environment.iter().cloned()).current_dir(self.bench.path(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running: Running = command.begin();
        let mut line = String::new();
        BufReader::new(running.stdout()).read_line(&mut line).unwrap();
        let ran = self.bench.pagelab(&["inspect", line.trim(), "--json"]).ran();
        assert_eq!(ran.code, Some(0), "{line} {ran}");
        drop(running.stdin());
        running.wait();
        ran.json()["processes"][0].take()
    }

    /// Follows each remedy of the largest cause whose condition applies, and that a user can follow without changing the
    /// source. Also checks the texts of these remedies, in which `N` replaces the number of pages that a pool gets.
    pub fn follow(&self, expected: &[&str]) {
        let process = self.inspected(&Followed::default());
        let all = process["regions"].as_array().unwrap().iter().flat_map(|region| region["causes"].as_array().unwrap());
        let cause = all.max_by_key(|cause| cause["bytes"].as_u64()).unwrap();
        let bytes = cause["bytes"].as_u64().unwrap();
        let remedies = cause["remedies"].as_array().unwrap().iter();
        let is_outside = |remedy: &&Value| {
            let changes = remedy["changes"].as_array().unwrap();
            changes.iter().all(|change| !matches!(change["kind"].as_str(), Some("source" | "collapse")))
        };
        let applies = |remedy: &&Value| remedy["only"].as_str().is_none_or(|only| self.holds.contains(&only));
        let remedies: Vec<&Value> = remedies.filter(is_outside).filter(applies).collect();
        let texts: Vec<String> =
            remedies.iter().map(|remedy| without_pages(remedy["text"].as_str().unwrap())).collect();
        assert_eq!(texts, expected, "{cause:#}");
        for remedy in remedies {
            let before = fallbacks();
            let Some(followed) = Followed::remedy(remedy) else { continue };
            validation::free_large_blocks();
            let process = self.inspected(&followed);
            let large: u64 = process["regions"].as_array().unwrap().iter().map(large_bytes).sum();
            // If a fault found no free block, the remedy is not to blame.
            let fell_back = HUGE * (fallbacks() - before);
            assert!(
                (large + fell_back) * 4 >= bytes * 3,
                "{large} of {bytes} are large, {fell_back} fell back, after {}\n{process:#}",
                remedy["text"]
            );
        }
    }
}

/// The text of a remedy, with `N` in place of the number of pages that it adds to a pool.
fn without_pages(text: &str) -> String {
    match text.split_once(" + ").and_then(|(before, rest)| Some((before, rest.split_once("))")?.1))) {
        Some((before, after)) => format!("{before} + N)){after}"),
        None => text.to_owned(),
    }
}

/// The instruction that adds pages to the pool, as a remedy's text contains it.
pub fn pooled() -> String {
    format!("as root: echo $(($(cat {path}) + N)) > {path}", path = Pool::PATH)
}

/// The instruction that enables all sizes, as a remedy's text contains it.
pub fn always() -> String {
    format!("as root: echo always > {THP}/enabled")
}

#[test]
fn redis_follows_the_switches_of_jemalloc_and_of_its_own() {
    let Some(_lease_guard) = for_advised() else { return };
    if !needs(&[("redis-server with jemalloc", has("redis-server") && has("redis-cli"))]) {
        return;
    }
    let script = "redis-server --port 0 --unixsocket \"$PWD/socket\" --save '' --appendonly no \"$@\" >log & server=$!
        until redis-cli -s \"$PWD/socket\" ping >/dev/null 2>&1; do sleep 0.05; done
        redis-cli -s \"$PWD/socket\" eval \"for i=1,100000 do redis.call('set','k'..i,string.rep('x',512)) end\" 0 >/dev/null
        echo $server; read end; kill $server; wait";
    let redis = Filled { bench: Bench::new(), script, holds: &[] };
    let switch = format!("{}; then start redis-server with --disable-thp no", always());
    redis.follow(&["start it with MALLOC_CONF=thp:always", &switch]);
}

#[test]
fn java_follows_its_own_switches() {
    let Some(_lease_guard) = for_advised() else { return };
    let pool = Pool::empty();
    if !needs(&[("java", has("java")), ("an empty pool of 2M", pool.is_some())]) {
        return;
    }
    let bench = Bench::new();
    let source = "public class Fill { public static void main(String[] words) throws Exception {
        byte[][] all = new byte[1500][];
        for (int i = 0; i < all.length; i++) { all[i] = new byte[100000]; java.util.Arrays.fill(all[i], (byte) 1); }
        System.out.println(ProcessHandle.current().pid()); System.in.read(); } }";
    fs::write(bench.path("Fill.java"), source).unwrap();
    let java = Filled { bench, script: "java -Xms256m -Xmx256m Fill.java \"$@\" 2>log", holds: &[] };
    java.follow(&[
        "start it with JAVA_TOOL_OPTIONS=-XX:+UseTransparentHugePages",
        &always(),
        &format!("{}; then start it with JAVA_TOOL_OPTIONS=-XX:+UseLargePages", pooled()),
    ]);
}

#[test]
fn python_follows_the_switches_of_its_allocator_and_of_malloc_together() {
    let Some(_lease_guard) = for_advised() else { return };
    let python = python();
    if !needs(&[("python3", python.is_some())]) {
        return;
    }
    let bench = Bench::new();
    fs::write(
        bench.path("fill.py"),
        "import os,sys\nd={i:str(i) for i in range(600000)}\nprint(os.getpid(),flush=True)\nsys.stdin.read()\n",
    )
    .unwrap();
    let script = format!("{} fill.py", python.unwrap());
    let python = Filled { bench, script: &script, holds: &["if malloc made it"] };
    python.follow(&["start it with PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (if malloc made it)"]);
}

/// The pool of 2M pages, which must be empty.
pub struct Pool;

impl Pool {
    const PATH: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    pub fn empty() -> Option<Pool> {
        fs::read_to_string(Pool::PATH).is_ok_and(|pages| pages == "0\n").then_some(Pool)
    }

    /// Adds pages to the pool until this is dropped; `None` if the kernel finds too few.
    pub fn with(pages: u64) -> Option<Set> {
        validation::free_large_blocks();
        let set = Set::to(Pool::PATH, &pages.to_string());
        let found = fs::read_to_string(Pool::PATH).unwrap();
        needs(&[("free memory for a pool", found.trim() == pages.to_string())]).then_some(set)
    }
}
