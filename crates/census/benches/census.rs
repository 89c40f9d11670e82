//! The cost of a census, compared with `tools/mm/thpmaps` of the kernel's sources.
//!
//! ```text
//! cargo bench -p census --bench census -- [--bytes SIZE] [--thpmaps FILE] [--python PROGRAM] [--runs N] [--only KIND]
//! ```
//! Measures processes that map `SIZE` (default 8G) in base pages and in THP, in 64K folios where root can enable them, in base
//! pages while another process has THP (`base+thp`), and a small process. Prints milliseconds of a census without and with root,
//! the best and the median of N runs; the same for an inspection, which also determines causes, and for one that does not
//! (`--sizes`); with `--thpmaps`, the run time of that script (as root, needs Python and numpy) on the same process, minus the
//! start of Python with numpy, and whether both results agree. `--only` measures one of these processes.
//!
//! Without arguments it runs on 64 MiB, so that tests can run it.
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use census::Observer;
use census::explain::examine;
use census::inspect::{Detail, Inspector};
use host::Host;
use policy::Policy;
use policy::census::{Backing, Census, Folio};
use policy::size::{PageSize, format_bytes, parse_bytes};

const SMOKE_BYTES: u64 = 64 << 20;

struct Arguments {
    bytes: u64,
    thpmaps: Option<String>,
    /// A Python interpreter with numpy.
    python: String,
    runs: usize,
    only: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [word, kind, bytes] = words.as_slice()
        && word == "--hold"
    {
        return hold(kind, bytes.parse()?);
    }
    let arguments = read_arguments(&words)?;
    println!(
        "{:<10} {:>6} {:<13} {:>9} {:>9} {:>9}  same answer",
        "process", "bytes", "method", "best ms", "median", "ms/GiB"
    );
    for kind in ["base", "thp", "mthp-64k", "base+thp"] {
        if arguments.only.as_deref().is_none_or(|only| only == kind) {
            let _neighbour = if kind == "base+thp" { Some(Held::start("thp", 64 << 20)?) } else { None };
            measure(kind, arguments.bytes, &arguments)?;
        }
    }
    if arguments.only.is_some() {
        return Ok(());
    }
    measure("small", 1 << 20, &arguments)?;
    examine_small(&arguments)
}

fn read_arguments(words: &[String]) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments { bytes: SMOKE_BYTES, thpmaps: None, python: "python3".into(), runs: 5, only: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--bytes" => arguments.bytes = parse_bytes(value)?,
            "--thpmaps" => arguments.thpmaps = Some(value.clone()),
            "--python" => arguments.python = value.clone(),
            "--only" => arguments.only = Some(value.clone()),
            "--runs" => arguments.runs = value.parse::<usize>()?.max(1),
            _ => {
                return Err(
                    format!("unknown argument {word}; known: --bytes, --thpmaps, --python, --runs, --only").into()
                );
            }
        }
    }
    Ok(arguments)
}

/// The measured process: maps and touches memory as the kind specifies, and waits for the end of its standard input.
fn hold(kind: &str, bytes: usize) -> Result<(), Box<dyn Error>> {
    let advice = if matches!(kind, "thp" | "mthp-64k") { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: a fresh private mapping; it is touched only inside its length.
    let start = unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        libc::madvise(start, bytes, advice);
        start.cast::<u8>()
    };
    for at in (0..bytes).step_by(4096) {
        // SAFETY: `at` is below the mapping's length.
        unsafe { start.add(at).write_volatile(1) };
    }
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

struct Held(Child);

impl Held {
    fn start(kind: &str, bytes: u64) -> Result<Held, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--hold", kind, &bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.trim() == "ready" {
            Ok(Held(child))
        } else {
            Err("the measured process could not map its memory".into())
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Settings that a kind of process needs while it touches its memory, restored afterwards.
struct Knobs(Vec<(String, String)>);

impl Knobs {
    fn for_kind(kind: &str) -> Result<Knobs, std::io::Error> {
        const THP: &str = "/sys/kernel/mm/transparent_hugepage";
        let mut knobs = Knobs(Vec::new());
        if kind == "mthp-64k" {
            knobs.set(format!("{THP}/hugepages-2048kB/enabled"), "never")?;
            knobs.set(format!("{THP}/hugepages-64kB/enabled"), "madvise")?;
        }
        Ok(knobs)
    }

    fn set(&mut self, path: String, value: &str) -> std::io::Result<()> {
        let text = fs::read_to_string(&path)?;
        let chosen = text.split(['[', ']']).nth(1).unwrap_or_default().to_string();
        fs::write(&path, value)?;
        self.0.push((path, chosen));
        Ok(())
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        for (path, value) in self.0.drain(..).rev() {
            if let Err(error) = fs::write(&path, &value) {
                eprintln!("{path} could not be set back to {value}: {error}");
            }
        }
    }
}

fn measure(kind: &str, bytes: u64, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let _knobs = match Knobs::for_kind(kind) {
        Ok(knobs) => knobs,
        Err(error) => {
            println!("{kind:<10} skipped: needs root to switch the size on ({error})");
            return Ok(());
        }
    };
    // The settings stay until the process has been measured: khugepaged would make larger folios of its memory.
    let held = Held::start(kind, bytes)?;
    let pid = held.0.id();
    let gibibytes = bytes as f64 / (1u64 << 30) as f64;
    let print = |method: &str, mut times: Vec<f64>, same: &str| {
        times.sort_by(f64::total_cmp);
        let (best, median) = (times[0], times[times.len() / 2]);
        let size = format_bytes(bytes);
        println!("{kind:<10} {size:>6} {method:<13} {best:>9.3} {median:>9.3} {:>9.2}  {same}", median / gibibytes);
        median
    };
    let plain = Observer::open()?.without_folios();
    let (census, times) = census_times(&plain, pid, arguments.runs)?;
    let unprivileged = print("census", times, &summary(&census));
    let observer = Observer::open()?;
    let mut privileged = None;
    if observer.sees_folios() {
        let (census, times) = census_times(&observer, pid, arguments.runs)?;
        privileged = Some((census.clone(), print("census, root", times, &summary(&census))));
    }
    inspections(pid, arguments.runs, &print)?;
    // For a small process the script's time is less than the variation of Python's start.
    let script = arguments.thpmaps.as_ref().filter(|_| bytes >= SMOKE_BYTES);
    if let (Some(script), Some((census, privileged))) = (script, privileged) {
        let start_ms =
            best_of(3, || run(Command::new(&arguments.python).args(["-c", "import argparse, numpy"])).map(drop))?;
        let mut output = String::new();
        let whole_ms = best_of(3, || {
            output = run(Command::new(&arguments.python).args([script, "--pid", &pid.to_string(), "--rollup"]))?;
            Ok(())
        })?;
        let same = if thpmaps_says(&output) == thp_of(&census) { "same" } else { "DIFFERENT" };
        print("thpmaps", vec![whole_ms - start_ms], same);
        println!(
            "{kind:<10} thpmaps/census {:.0}, thpmaps/census as root {:.0}; with the start of Python ({start_ms:.0} ms) {:.0} and {:.0}",
            (whole_ms - start_ms) / unprivileged,
            (whole_ms - start_ms) / privileged,
            whole_ms / unprivileged,
            whole_ms / privileged,
        );
        if same != "same" {
            return Err(format!("thpmaps says\n{output}the census says {:?}", thp_of(&census)).into());
        }
    }
    Ok(())
}

/// The cost of `pagelab inspect PID` without the start of the program, as root and without root, with causes and without.
fn inspections(pid: u32, runs: usize, print: &dyn Fn(&str, Vec<f64>, &str) -> f64) -> Result<(), Box<dyn Error>> {
    for (method, as_root, sizes_only) in [
        ("inspect", false, false),
        ("inspect -s", false, true),
        ("inspect, root", true, false),
        ("inspect -s, r", true, true),
    ] {
        let observer = Observer::open()?.with_file_folios().with_tlb_runs();
        let observer = if as_root { observer } else { observer.without_folios() };
        if as_root && !observer.sees_folios() {
            continue;
        }
        let inspector = Inspector::new(Host::open("/")?, observer, Detail { sizes_only, ..Detail::default() });
        let (mut times, mut last) = (Vec::new(), Census::default());
        for _ in 0..runs {
            let start = Instant::now();
            last = inspector.process(pid, &inspector.supply()?)?.census();
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        print(method, times, &summary(&last));
    }
    Ok(())
}

/// The cost of the whole examination of a small process, as at an exit stop.
fn examine_small(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let held = Held::start("small", 256 << 10)?;
    let (host, observer) = (Host::open("/")?, Observer::open()?);
    let state = host.state()?;
    for policy in ["base", "thp"] {
        let asked: Policy = policy.parse()?;
        let mut times = Vec::new();
        for _ in 0..arguments.runs.max(20) {
            let start = Instant::now();
            examine(&observer, held.0.id(), &asked, host.page_sizes(), &state)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!(
            "examine of a small process under {policy}: best {:.3} ms, median {:.3} ms",
            times[0],
            times[times.len() / 2]
        );
    }
    Ok(())
}

fn census_times(observer: &Observer, pid: u32, runs: usize) -> Result<(Census, Vec<f64>), Box<dyn Error>> {
    let mut last = observer.process(pid)?.census;
    let mut times = Vec::new();
    for _ in 0..runs {
        let start = Instant::now();
        last = observer.process(pid)?.census;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok((last, times))
}

fn summary(census: &Census) -> String {
    let by_leaf = census.bytes_by_leaf();
    let words: Vec<String> = by_leaf.iter().map(|(leaf, bytes)| format!("{leaf} {}", format_bytes(*bytes))).collect();
    words.join(", ")
}

fn best_of(times: usize, mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::MAX;
    for _ in 0..times {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(best)
}

fn run(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{command:?} failed").into())
    }
}

/// Bytes by thpmaps' labels of anonymous memory: `pmd-SIZE`, `pte-SIZE`, `partial`.
type Answer = BTreeMap<String, u64>;

fn thpmaps_says(output: &str) -> Answer {
    let mut answer = Answer::new();
    for line in output.lines() {
        let Some((label, value)) = line.split_once(':') else { continue };
        let Some(kind) = label.strip_prefix("anon-thp-") else { continue };
        let kilobytes: u64 = value.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let kind = if kind.contains("unaligned") { "pte-partial" } else { kind };
        *answer.entry(kind.replace("aligned-", "")).or_insert(0) += kilobytes << 10;
    }
    answer.retain(|_, bytes| *bytes > 0);
    answer
}

fn thp_of(census: &Census) -> Answer {
    let mut answer = Answer::new();
    for (mapping, bytes) in census.rows().filter(|(mapping, _)| mapping.backing == Backing::Anonymous) {
        let smallest = census.bytes_by_leaf()[0].0;
        let kilobytes = |size: PageSize| size.bytes() >> 10;
        let label = match mapping.folio {
            Folio::Whole(size) if size == smallest => continue,
            Folio::Whole(size) if size == mapping.leaf => format!("pmd-{}kB", kilobytes(size)),
            Folio::Whole(size) => format!("pte-{}kB", kilobytes(size)),
            Folio::Part(_) => "pte-partial".to_string(),
            Folio::Unknown => "unknown".to_string(),
        };
        *answer.entry(label).or_insert(0) += bytes;
    }
    answer
}
