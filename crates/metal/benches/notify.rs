//! What it would cost to serve calls by seccomp user notification, with the task seized for an added call only, beside
//! the tracer: METHOD.md, "What notification would cost".
//!
//! ```text
//! cargo bench -p metal --bench notify -- [--full] [--rounds N] [--one-cpu]
//! ```
//! `tests/programs/repeats.c` makes one kind of call again and again: a heap grows by pages (musl), 2M are mapped and unmapped,
//! it forks, it executes `true`, it sends itself signals. Each round has one run in each of these ways, in random order:
//!
//! * `bare`, without a filter; `filter` with one that stops nothing;
//! * `tracer`: `metal::tracer::run` under the policy `thp`, without a witness;
//! * `stop`: PTRACE_O_TRACESECCOMP and the tracer's requests, without its books;
//! * `notify`: SECCOMP_RET_USER_NOTIF, `killable` with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, `sync` with
//!   SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP too.
//!
//! A call is `passed` on as it is; or `advised`: a madvise is added, under `notify` between PTRACE_SEIZE and PTRACE_DETACH; or the
//! heap is `kept`: it grows in steps of 2M, each advised, and what lies within one is answered without a call; or the new image
//! of an execve is `looked` at: seized until it is there, and its mappings read as the tracer does.
//! For forks it is exit_group that is watched, where a witness would look; for signals nothing has to be.
//!
//! Printed is what a run took more than the bare one of its round: wall time and CPU time, of program and supervisor together, as
//! ratios (Hodges-Lehmann, with 95 % intervals) and for one call (medians), and context switches for one call. The CPU time has the start
//! of the program and of its supervisor in it. Then some ways are set beside each other alike, and the steps of one advised call are timed. `--one-cpu` keeps everything on the first processor. Needs Linux 6.11 on x86-64.

#[cfg(target_arch = "x86_64")]
#[path = "../tests/listener/mod.rs"]
#[expect(dead_code, reason = "the tests of tests/notify.rs use the rest")]
mod listener;

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    probe::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("the probe knows the registers of x86-64 only");
}

#[cfg(target_arch = "x86_64")]
mod probe {
    use std::error::Error;
    use std::fs::File;
    use std::io::{self, Read, Seek};
    use std::num::NonZeroUsize;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::Instant;

    use metal::host::Host;
    use metal::tracer::{Launch, Leftovers, Rewriting, run};
    use study::plan;
    use study::policy::Policy;
    use study::stats::paired_ratio;

    use super::listener::{self, ADDED, Call, Listener, Waiting};

    const STEP: u64 = 2 << 20;
    const HUGE: u64 = libc::MADV_HUGEPAGE as u64;
    const MARKED: [u64; 6] = [0, 0, 0, 0, 0, ADDED as u64];
    /// The steps of an advised call that are timed.
    const STEPS: [&str; 5] = ["seize", "interrupt, answer", "until it stands", "madvise", "detach"];

    /// How calls get to who serves them.
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

    /// What is done with them.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Service {
        Pass,
        Advise,
        Keep,
        Look,
    }

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

    const LOOKED: [Arm; 2] =
        [("notify killable, looked", KILLABLE, Service::Look), ("notify sync, looked", SYNC, Service::Look)];

    /// What is compared without the bare run: an added call by seizure with one by a stop, and each with the tracer.
    const BESIDE: [(Arm, Arm); 6] = [
        (ADVISED[1], ADVISED[0]),
        (ADVISED[2], ADVISED[0]),
        (KEPT[1], KEPT[0]),
        (KEPT[1], TRACER),
        (PASSED[2], TRACER),
        (LOOKED[0], TRACER),
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
        /// Calls that a figure for one call is divided by; `None`: as many as notify.
        calls: Option<u32>,
        arms: Vec<Arm>,
    }

    /// What a run took.
    #[derive(Clone, Copy, Default)]
    struct Taken {
        wall_s: f64,
        cpu_s: f64,
        switches: f64,
    }

    pub fn main() -> Result<(), Box<dyn Error>> {
        let arguments = arguments()?;
        if let Some(needs) = listener::lacks() {
            println!("the probe needs {needs}");
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
        kinds.push(of("execs", &[libc::SYS_execve, libc::SYS_exit_group], execs, Some(execs), &[&LOOKED]));
        kinds.push(of("raises", ends, signals, Some(signals), &[&PASSED[3..]]));
        Ok(kinds)
    }

    fn compile(compiler: &str, options: &[&str], folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/repeats.c");
        let program = folder.join(format!("repeats-{compiler}"));
        let status = Command::new(compiler).args(options).args(["-O1", "-o"]).arg(&program).arg(source).status();
        match status.map_err(|error| format!("{compiler}: {error}"))?.success() {
            true => Ok(program),
            false => Err(format!("{compiler} could not compile repeats.c").into()),
        }
    }

    /// Measures a kind of call and prints its table.
    fn measure(kind: &Kind, rounds: usize) -> Result<(), Box<dyn Error>> {
        let counted = kind.run((KILLABLE, Service::Pass), &mut Vec::new())?.1;
        let calls = f64::from(kind.calls.unwrap_or(counted));
        let mut taken = vec![Vec::new(); kind.arms.len()];
        for round in 0..rounds {
            for arm in plan::order(1, round as u32, kind.arms.len()) {
                let (_, way, service) = kind.arms[arm];
                taken[arm].push(kind.run((way, service), &mut Vec::new())?.0);
            }
        }
        let bare_ms = median(taken[0].iter().map(|taken: &Taken| taken.wall_s).collect()) * 1e3;
        println!("{}: {calls} calls, {bare_ms:.1} ms bare", kind.name);
        println!("{:<26} {:>32} {:>7} {:>32} {:>7} {:>8}", "", "wall time", "us", "CPU time", "us", "switches");
        for (arm, taken_by) in kind.arms.iter().zip(&taken).skip(1) {
            println!("{}", row(arm.0, taken_by, &taken[0], calls)?);
        }
        for (arm, other) in BESIDE {
            let of = |arm: Arm| kind.arms.iter().position(|known| *known == arm).map(|at| &taken[at]);
            if let (Some(arm_taken), Some(other_taken)) = (of(arm), of(other)) {
                println!("{} beside {}:", arm.0, other.0);
                println!("{}", row("", arm_taken, other_taken, calls)?);
            }
        }
        if kind.arms.contains(&ADVISED[0]) {
            anatomy(kind, rounds)?;
        }
        println!();
        Ok(())
    }

    /// What an arm took more than another one: walls and CPU times as ratios and for one call, and switches.
    fn row(label: &str, taken: &[Taken], other: &[Taken], calls: f64) -> Result<String, Box<dyn Error>> {
        let each = |figure: fn(&Taken) -> f64| -> f64 {
            median(taken.iter().zip(other).map(|(taken, other)| figure(taken) - figure(other)).collect()) / calls
        };
        Ok(format!(
            "{label:<26} {:>32} {:>7.2} {:>32} {:>7.2} {:>8.2}",
            more(taken, other, |taken| taken.wall_s)?,
            each(|taken| taken.wall_s * 1e6),
            more(taken, other, |taken| taken.cpu_s)?,
            each(|taken| taken.cpu_s * 1e6),
            each(|taken| taken.switches),
        ))
    }

    /// A ratio with its interval, as what is more.
    fn more(taken: &[Taken], other: &[Taken], figure: fn(&Taken) -> f64) -> Result<String, Box<dyn Error>> {
        let figures = |taken: &[Taken]| taken.iter().map(figure).collect::<Vec<_>>();
        let ratio = paired_ratio(&figures(taken), &figures(other), 0.95).ok_or("no pairs of times")?;
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = ratio.interval.map(|(low, high)| format!(" ({:+.0} to {:+.0})", percent(low), percent(high)));
        Ok(format!("{:+.1} %{}", percent(ratio.ratio), interval.unwrap_or_default()))
    }

    /// Prints how long the steps of an advised call take, seen by the supervisor.
    fn anatomy(kind: &Kind, rounds: usize) -> Result<(), Box<dyn Error>> {
        for (label, way, service) in &ADVISED[1..] {
            let mut steps = Vec::new();
            for _ in 0..rounds {
                kind.run((*way, *service), &mut steps)?;
            }
            let of = |at: usize| median(steps.iter().map(|steps: &[f64; STEPS.len()]| steps[at] * 1e6).collect());
            let each: Vec<String> =
                STEPS.iter().enumerate().map(|(at, step)| format!("{step} {:.2} us", of(at))).collect();
            println!("{label}, its steps: {}", each.join(", "));
        }
        Ok(())
    }

    impl Kind {
        /// One run: what it took, and how many calls were served. `steps` are timed where it has room for them.
        fn run(
            &self,
            (way, service): (Way, Service),
            steps: &mut Vec<[f64; STEPS.len()]>,
        ) -> Result<(Taken, u32), Box<dyn Error>> {
            let before = used()?;
            let (wall_s, calls) = match way {
                Way::Bare => (seconds(&self.command().output()?.stdout)?, 0),
                Way::Tracer => (self.traced()?, 0),
                _ => self.supervised(way, service, steps)?,
            };
            let after = used()?;
            Ok((Taken { wall_s, cpu_s: after.0 - before.0, switches: after.1 - before.1 }, calls))
        }

        fn command(&self) -> Command {
            let mut command = Command::new(&self.program);
            command.arg(self.name).arg(self.times.to_string());
            command
        }

        fn traced(&self) -> Result<f64, Box<dyn Error>> {
            let policy: Policy = "thp".parse()?;
            let rewriting = Rewriting::of(&policy, Host::open("/")?.geometry());
            let mut file = tempfile::tempfile()?;
            let launch = Launch {
                command: vec![self.program.clone().into(), self.name.into(), self.times.to_string().into()],
                user: None,
                variables: Vec::new(),
                stdin: Some(File::open("/dev/null")?.into()),
                stdout: Some(file.try_clone()?.into()),
                stderr: None,
                disable_thp: false,
                limit: None,
            };
            run(&launch, &rewriting, None, Leftovers::Follow)?;
            let mut printed = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut printed)?;
            seconds(&printed)
        }

        fn supervised(
            &self,
            way: Way,
            service: Service,
            steps: &mut Vec<[f64; STEPS.len()]>,
        ) -> Result<(f64, u32), Box<dyn Error>> {
            let (action, flags) = match way {
                Way::Stop => (libc::SECCOMP_RET_TRACE, 0),
                Way::Notify { killable, .. } => (
                    libc::SECCOMP_RET_USER_NOTIF,
                    libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
                        | if killable { libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV } else { 0 },
                ),
                _ => (libc::SECCOMP_RET_ALLOW, 0),
            };
            // At its end a stopped program is let go, so that its parent can wait for it.
            let filter = match way {
                Way::Stop => listener::filter(&[self.watched, &[libc::SYS_exit_group]].concat(), action),
                _ => listener::filter(self.watched, action),
            };
            let (output, calls) = listener::supervise(self.command(), filter, flags, |waiting, listener| {
                let mut server = Server { service, heap: Heap::default(), calls: 0, steps };
                match (way, listener) {
                    (Way::Stop, _) => server.stops(waiting)?,
                    (Way::Notify { sync, .. }, Some(listener)) => server.notices(waiting, &listener, sync)?,
                    _ => waiting.release()?,
                }
                Ok(server.calls)
            })?;
            if !output.status.success() {
                return Err(format!("{way:?}, {service:?}: the program ended with {}", output.status).into());
            }
            Ok((seconds(&output.stdout)?, calls))
        }
    }

    /// The two ends of a heap, as in the tracer.
    #[derive(Clone, Copy, Default)]
    struct Heap {
        start: u64,
        kernel_end: u64,
    }

    /// What a call of brk comes to.
    enum Growth {
        Unknown,
        Answer(u64),
        Grow { wanted: u64 },
    }

    impl Heap {
        /// The programs only grow their heaps.
        fn growth(&self, asked: u64) -> Growth {
            match asked {
                _ if self.start == 0 => Growth::Unknown,
                _ if asked <= self.kernel_end => Growth::Answer(asked),
                _ => Growth::Grow { wanted: asked.next_multiple_of(STEP) },
            }
        }
    }

    struct Server<'a> {
        service: Service,
        heap: Heap,
        calls: u32,
        steps: &'a mut Vec<[f64; STEPS.len()]>,
    }

    impl Server<'_> {
        /// Serves a program by notification until nobody of it is left.
        fn notices(&mut self, waiting: Waiting, listener: &Listener, sync: bool) -> io::Result<()> {
            if sync {
                listener.wake_in_place()?;
            }
            waiting.release()?;
            while let Some(call) = listener.receive()? {
                self.calls += 1;
                match self.service {
                    Service::Pass => listener.pass(call)?,
                    Service::Advise => self.advise(listener, call)?,
                    Service::Keep => self.keep(listener, call)?,
                    Service::Look if call.number == libc::SYS_execve => look(listener, call)?,
                    Service::Look => listener.pass(call)?,
                }
            }
            Ok(())
        }

        fn advise(&mut self, listener: &Listener, call: Call) -> io::Result<()> {
            let received = Instant::now();
            listener::seize(call.tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL)?;
            let seized = Instant::now();
            listener::interrupt(call.tid)?;
            listener.pass(call)?;
            let answered = Instant::now();
            let held = listener::held(call.tid)?;
            let stands = Instant::now();
            held.call(libc::SYS_madvise, advice(held.result()? as u64, call))?;
            let advised = Instant::now();
            held.detach()?;
            let times = [received, seized, answered, stands, advised, Instant::now()];
            self.steps.push(std::array::from_fn(|at| (times[at + 1] - times[at]).as_secs_f64()));
            Ok(())
        }

        fn keep(&mut self, listener: &Listener, call: Call) -> io::Result<()> {
            match self.heap.growth(call.arguments[0]) {
                Growth::Answer(end) => listener.answer(call, end as i64),
                Growth::Unknown => {
                    let held = listener::hold(call, |call| listener.pass(call))?;
                    self.begin(held.result()?);
                    held.detach()
                }
                Growth::Grow { wanted } => {
                    let asked = call.arguments[0];
                    let held = listener::hold(call, |call| listener.answer(call, asked as i64))?;
                    let end = held.call(libc::SYS_brk, [wanted, 0, 0, 0, 0, ADDED.into()])?;
                    let added = [self.heap.kernel_end, wanted - self.heap.kernel_end, HUGE];
                    held.call(libc::SYS_madvise, [added[0], added[1], added[2], 0, 0, ADDED.into()])?;
                    self.grown(end, wanted)?;
                    held.detach()
                }
            }
        }

        fn begin(&mut self, end: i64) {
            self.heap = Heap { start: end as u64, kernel_end: end as u64 };
        }

        fn grown(&mut self, end: i64, wanted: u64) -> io::Result<()> {
            if end as u64 != wanted {
                return Err(io::Error::other(format!("the heap ends at {end:#x} and not at {wanted:#x}")));
            }
            self.heap.kernel_end = wanted;
            Ok(())
        }

        /// Serves a program by stops until nobody of it is left.
        fn stops(&mut self, waiting: Waiting) -> io::Result<()> {
            let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACESECCOMP | libc::PTRACE_O_EXITKILL;
            listener::seize(waiting.tid, options)?;
            waiting.release()?;
            loop {
                match listener::wait(-1) {
                    Ok((tid, status)) if libc::WIFSTOPPED(status) => self.stop(tid, status)?,
                    Ok(_) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }

        fn stop(&mut self, tid: i32, status: i32) -> io::Result<()> {
            let signal = libc::WSTOPSIG(status);
            match status >> 16 {
                libc::PTRACE_EVENT_SECCOMP => {
                    if listener::registers(tid)?.orig_rax == libc::SYS_exit_group as u64 {
                        return listener::detach(tid);
                    }
                    self.calls += 1;
                    self.stopped_call(tid)?;
                }
                0 => return listener::resume(libc::PTRACE_CONT, tid, signal),
                _ => {}
            }
            listener::resume(libc::PTRACE_CONT, tid, 0)
        }

        fn stopped_call(&mut self, tid: i32) -> io::Result<()> {
            if self.service == Service::Pass {
                return Ok(());
            }
            let mut registers = listener::registers(tid)?;
            let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
            let call = Call { id: 0, tid, number: registers.orig_rax as i64, arguments };
            let growth = match self.service {
                Service::Keep => self.heap.growth(arguments[0]),
                _ => Growth::Unknown,
            };
            match growth {
                Growth::Answer(end) => {
                    (registers.rax, registers.orig_rax) = (end, u64::MAX);
                    return listener::set_registers(tid, &registers);
                }
                Growth::Grow { wanted } => {
                    listener::set_registers(tid, &libc::user_regs_struct { rdi: wanted, ..registers })?;
                }
                Growth::Unknown => {}
            }
            listener::to_call_stop(tid)?;
            let result = listener::registers(tid)?.rax;
            match (self.service, growth) {
                (Service::Keep, Growth::Grow { wanted }) => {
                    let from = self.heap.kernel_end;
                    self.grown(result as i64, wanted)?;
                    let added = [from, wanted - from, HUGE, 0, 0, ADDED.into()];
                    listener::inject(tid, libc::SYS_madvise, added, || Ok(()))?;
                    let own = libc::user_regs_struct { rax: arguments[0], ..registers };
                    listener::set_registers(tid, &own)
                }
                (Service::Keep, _) => {
                    self.begin(result as i64);
                    Ok(())
                }
                _ => listener::inject(tid, libc::SYS_madvise, advice(result, call), || Ok(())).map(|_| ()),
            }
        }
    }

    /// Follows a task into its new image and looks at that, or to the failure of its execve.
    fn look(listener: &Listener, call: Call) -> io::Result<()> {
        listener::seize(call.tid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)?;
        listener::interrupt(call.tid)?;
        listener.pass(call)?;
        let (tid, status) = listener::wait(call.tid)?;
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            std::hint::black_box(std::fs::read(format!("/proc/{tid}/maps"))?);
            std::hint::black_box(File::open(format!("/proc/{tid}/exe"))?.metadata()?);
        }
        listener::detach(tid)
    }

    /// The arguments of the madvise that is added to a call: for what it mapped, or for the page that a heap has grown by.
    fn advice(result: u64, call: Call) -> [u64; 6] {
        const PAGE: u64 = 4096;
        let (start, bytes) = match call.number {
            libc::SYS_brk => (result.saturating_sub(PAGE) & !(PAGE - 1), PAGE),
            _ => (result, call.arguments[1]),
        };
        [start, bytes, HUGE, MARKED[3], MARKED[4], MARKED[5]]
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
}
