//! The ways to serve calls, the programs, and the tables.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::Host;
use policy::Policy;
use study::plan;
use study::stats::paired_ratio;
use tracer::{Launch, Leftovers, Rewriting, run};

use super::listener;
use super::server::{STEPS, Server, Service, Steps};

/// How a call reaches the process that serves it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Bare,
    Filter,
    Tracer,
    Stop,
    Notify { killable: bool, sync: bool },
}

const PLAIN: Way = Way::Notify { killable: false, sync: false };
const KILLABLE: Way = Way::Notify { killable: true, sync: false };
const SYNC: Way = Way::Notify { killable: true, sync: true };

type Arm = (&'static str, Way, Service);

const BARE: Arm = ("bare", Way::Bare, Service::Pass);
const FILTER: Arm = ("filter", Way::Filter, Service::Pass);
const TRACER: Arm = ("tracer", Way::Tracer, Service::Pass);
const PASSED: [Arm; 4] = [
    ("stop, passed", Way::Stop, Service::Pass),
    ("notify, passed", PLAIN, Service::Pass),
    ("notify killable, passed", KILLABLE, Service::Pass),
    ("notify sync, passed", SYNC, Service::Pass),
];
const ADVISED: [Arm; 3] = [
    ("stop, advised", Way::Stop, Service::Advise),
    ("notify killable, advised", KILLABLE, Service::Advise),
    ("notify sync, advised", SYNC, Service::Advise),
];
const KEPT: [Arm; 3] = [
    ("stop, kept", Way::Stop, Service::Keep),
    ("notify killable, kept", KILLABLE, Service::Keep),
    ("notify sync, kept", SYNC, Service::Keep),
];

const INSPECTED: [Arm; 2] =
    [("notify killable, inspected", KILLABLE, Service::Inspect), ("notify sync, inspected", SYNC, Service::Inspect)];

/// Pairs compared without the bare run: a call added by seizing against one added at a stop, and each against the tracer.
const PAIRS: [(Arm, Arm); 6] = [
    (ADVISED[1], ADVISED[0]),
    (ADVISED[2], ADVISED[0]),
    (KEPT[1], KEPT[0]),
    (KEPT[1], TRACER),
    (PASSED[2], TRACER),
    (INSPECTED[0], TRACER),
];

struct Arguments {
    full: bool,
    rounds: usize,
    one_cpu: bool,
}

/// A kind of call.
struct Kind {
    name: &'static str,
    program: PathBuf,
    watched: &'static [i64],
    times: u32,
    /// Divisor of the per-call figures; `None`: the number of calls that notified.
    calls: Option<u32>,
    arms: Vec<Arm>,
}

/// The cost of a run.
#[derive(Clone, Copy, Default)]
struct Cost {
    wall_s: f64,
    cpu_s: f64,
    switches: f64,
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    if let Some(needs) = listener::missing_requirement() {
        println!("the benchmark needs {needs}");
        return Ok(());
    }
    if arguments.one_cpu {
        stay_on_one_cpu()?;
    }
    let folder = tempfile::tempdir()?;
    for kind in kinds(arguments.full, folder.path())? {
        measure(&kind, arguments.rounds)?;
    }
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments { full: false, rounds: 1, one_cpu: false };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        match word.as_str() {
            "--full" => arguments.full = true,
            "--one-cpu" => arguments.one_cpu = true,
            "--rounds" => {
                let number = words.next().ok_or("--rounds needs a number")?;
                let rounds: NonZeroUsize = number.parse().map_err(|error| format!("--rounds {number}: {error}"))?;
                arguments.rounds = rounds.get();
            }
            other => return Err(format!("expected --full, --rounds or --one-cpu, found {other}").into()),
        }
    }
    Ok(arguments)
}

fn kinds(full: bool, folder: &Path) -> Result<Vec<Kind>, Box<dyn Error>> {
    let size = |full_size: u32, small: u32| if full { full_size } else { small };
    let program = compile("gcc", &[], folder)?;
    let of = |name, watched, times, calls, more: &[&[Arm]]| Kind {
        name,
        program: program.clone(),
        watched,
        times,
        calls,
        arms: [&[BARE, FILTER, TRACER][..], &more.concat()].concat(),
    };
    let mut kinds = Vec::new();
    match compile("musl-gcc", &["-static"], folder) {
        Ok(static_program) => kinds.push(Kind {
            program: static_program,
            ..of("heap", &[libc::SYS_brk], size(22_370, 200), None, &[&PASSED, &ADVISED, &KEPT])
        }),
        Err(error) => println!("heap: {error}"),
    }
    let (mappings, forks, execs, signals) = (size(4000, 20), size(1000, 20), size(300, 5), size(50_000, 200));
    let ends = &[libc::SYS_exit_group];
    kinds.push(of("mmap", &[libc::SYS_mmap], mappings, Some(mappings), &[&PASSED, &ADVISED]));
    kinds.push(of("forks", ends, forks, Some(forks), &[&PASSED[1..]]));
    kinds.push(of("execs", &[libc::SYS_execve, libc::SYS_exit_group], execs, Some(execs), &[&INSPECTED]));
    kinds.push(of("raises", ends, signals, Some(signals), &[&PASSED[3..]]));
    Ok(kinds)
}

fn compile(compiler: &str, options: &[&str], folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/repeats.c");
    let program = folder.join(format!("repeats-{compiler}"));
    let status = Command::new(compiler).args(options).args(["-O1", "-o"]).arg(&program).arg(source).status();
    if status.map_err(|error| format!("{compiler}: {error}"))?.success() {
        Ok(program)
    } else {
        Err(format!("{compiler} could not compile repeats.c").into())
    }
}

fn measure(kind: &Kind, rounds: usize) -> Result<(), Box<dyn Error>> {
    let counted = kind.run((KILLABLE, Service::Pass), &mut Vec::new())?.1;
    let calls = f64::from(kind.calls.unwrap_or(counted));
    let mut costs = vec![Vec::new(); kind.arms.len()];
    for round in 0..rounds {
        for arm in plan::order(1, round as u32, kind.arms.len()) {
            let (_, way, service) = kind.arms[arm];
            costs[arm].push(kind.run((way, service), &mut Vec::new())?.0);
        }
    }
    let bare_ms = median(costs[0].iter().map(|cost: &Cost| cost.wall_s).collect()) * 1e3;
    println!("{}: {calls} calls, {bare_ms:.1} ms bare", kind.name);
    println!("{:<26} {:>32} {:>7} {:>32} {:>7} {:>8}", "", "wall time", "us", "CPU time", "us", "switches");
    for (arm, arm_costs) in kind.arms.iter().zip(&costs).skip(1) {
        println!("{}", row(arm.0, arm_costs, &costs[0], calls)?);
    }
    for (arm, other) in PAIRS {
        let of = |arm: Arm| kind.arms.iter().position(|known| *known == arm).map(|at| &costs[at]);
        if let (Some(arm_costs), Some(other_costs)) = (of(arm), of(other)) {
            println!("{} compared with {}:", arm.0, other.0);
            println!("{}", row("", arm_costs, other_costs, calls)?);
        }
    }
    if kind.arms.contains(&ADVISED[0]) {
        anatomy(kind, rounds)?;
    }
    println!();
    Ok(())
}

/// Table row: by how much an arm exceeds another, in wall and CPU time (ratio and per call) and in context switches.
fn row(label: &str, costs: &[Cost], other: &[Cost], calls: f64) -> Result<String, Box<dyn Error>> {
    let each = |figure: fn(&Cost) -> f64| -> f64 {
        median(costs.iter().zip(other).map(|(cost, other)| figure(cost) - figure(other)).collect()) / calls
    };
    Ok(format!(
        "{label:<26} {:>32} {:>7.2} {:>32} {:>7.2} {:>8.2}",
        more(costs, other, |cost| cost.wall_s)?,
        each(|cost| cost.wall_s * 1e6),
        more(costs, other, |cost| cost.cpu_s)?,
        each(|cost| cost.cpu_s * 1e6),
        each(|cost| cost.switches),
    ))
}

/// A ratio of pairs with its interval, printed as the excess over 1.
fn more(costs: &[Cost], other: &[Cost], figure: fn(&Cost) -> f64) -> Result<String, Box<dyn Error>> {
    let figures = |costs: &[Cost]| costs.iter().map(figure).collect::<Vec<_>>();
    let ratio = paired_ratio(&figures(costs), &figures(other), 0.95).ok_or("no pairs of times")?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let interval = ratio.interval.map(|(low, high)| format!(" ({:+.0} to {:+.0})", percent(low), percent(high)));
    Ok(format!("{:+.1} %{}", percent(ratio.ratio), interval.unwrap_or_default()))
}

/// Prints how long the supervisor takes for each step of an advised call.
fn anatomy(kind: &Kind, rounds: usize) -> Result<(), Box<dyn Error>> {
    for (label, way, service) in &ADVISED[1..] {
        let mut steps = Vec::new();
        for _ in 0..rounds {
            kind.run((*way, *service), &mut steps)?;
        }
        let of = |at: usize| median(steps.iter().map(|steps: &Steps| steps[at] * 1e6).collect());
        let each: Vec<String> = STEPS.iter().enumerate().map(|(at, step)| format!("{step} {:.2} us", of(at))).collect();
        println!("{label}, its steps: {}", each.join(", "));
    }
    Ok(())
}

impl Kind {
    /// Runs the program once. Returns its cost and how many calls were served. Appends the timed steps to
    /// `steps`.
    fn run(&self, (way, service): (Way, Service), steps: &mut Vec<Steps>) -> Result<(Cost, u32), Box<dyn Error>> {
        let before = used()?;
        let (wall_s, calls) = match way {
            Way::Bare => (seconds(&self.command().output()?.stdout)?, 0),
            Way::Tracer => (self.traced()?, 0),
            _ => self.supervised(way, service, steps)?,
        };
        let after = used()?;
        Ok((Cost { wall_s, cpu_s: after.0 - before.0, switches: after.1 - before.1 }, calls))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.name).arg(self.times.to_string());
        command
    }

    fn traced(&self) -> Result<f64, Box<dyn Error>> {
        let policy: Policy = "thp".parse()?;
        let rewriting = Rewriting::of(&policy, Host::open("/")?.page_sizes());
        let mut file = tempfile::tempfile()?;
        let launch = Launch {
            command: vec![self.program.clone().into(), self.name.into(), self.times.to_string().into()],
            user: None,
            variables: Vec::new(),
            stdin: Some(File::open("/dev/null")?.into()),
            stdout: Some(file.try_clone()?.into()),
            stderr: None,
            disable_thp: false,
            own_session: None,
            control_group: None,
            limit: None,
        };
        run(&launch, &rewriting, None, Leftovers::Follow)?;
        let mut printed = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut printed)?;
        seconds(&printed)
    }

    fn supervised(&self, way: Way, service: Service, steps: &mut Vec<Steps>) -> Result<(f64, u32), Box<dyn Error>> {
        let (action, flags) = match way {
            Way::Stop => (libc::SECCOMP_RET_TRACE, 0),
            Way::Notify { killable, .. } => (
                libc::SECCOMP_RET_USER_NOTIF,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
                    | if killable { libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV } else { 0 },
            ),
            _ => (libc::SECCOMP_RET_ALLOW, 0),
        };
        // A stopped program is resumed at its exit, so that its parent can wait for it.
        let filter = match way {
            Way::Stop => listener::filter(&[self.watched, &[libc::SYS_exit_group]].concat(), action),
            _ => listener::filter(self.watched, action),
        };
        let (output, calls) = listener::supervise(self.command(), filter, flags, |waiting, listener| {
            let mut server = Server::new(service, steps);
            match (way, listener) {
                (Way::Stop, _) => server.serve_stops(waiting)?,
                (Way::Notify { sync, .. }, Some(listener)) => server.serve_notifications(waiting, &listener, sync)?,
                _ => waiting.release()?,
            }
            Ok(server.calls())
        })?;
        if !output.status.success() {
            return Err(format!("{way:?}, {service:?}: the program ended with {}", output.status).into());
        }
        Ok((seconds(&output.stdout)?, calls))
    }
}

fn seconds(printed: &[u8]) -> Result<f64, Box<dyn Error>> {
    Ok(std::str::from_utf8(printed)?.trim().parse()?)
}

/// CPU time and context switches of this process and its children so far.
fn used() -> Result<(f64, f64), Box<dyn Error>> {
    use nix::sys::resource::{UsageWho, getrusage};
    let mut sum = (0.0, 0.0);
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who)?;
        let of = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
        sum.0 += of(usage.user_time()) + of(usage.system_time());
        sum.1 += (usage.voluntary_context_switches() + usage.involuntary_context_switches()) as f64;
    }
    Ok(sum)
}

fn stay_on_one_cpu() -> Result<(), Box<dyn Error>> {
    let mut first = nix::sched::CpuSet::new();
    first.set(0)?;
    Ok(nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &first)?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
