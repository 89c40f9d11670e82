//! Runs a QEMU that boots the guest ([`Emulator`]), and cleans up in all cases.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::regions::Version;
use serde_json::{Value, json};
use tracer::child::die_with_parent;
use tracer::signals::{self, Forward};

use super::error::BootError;
use super::guest::{Guest, INIT_MESSAGE};
use super::jit::Jit;
use super::qmp::{NoReply, Qmp};
use super::{Arguments, MemoryKind};
use verbs::lab::Tail;

/// All threads of QEMU use one malloc arena (mallopt(3), glibc). Arenas other than the first grow by an mprotect(2) every few
/// pages, 600 times per boot in the vCPU's thread. Under a policy that changes guards, each of these calls is a tracer stop:
/// 1.5 % of the boot's CPU time.
const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");
/// The time limit for QEMU to answer its monitor, or to exit.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The number of bytes kept from the end of QEMU's and the guest's output.
const KEPT_BYTES: usize = 1 << 20;
/// The number of lines shown from the end of the output.
const SHOWN_LINES: usize = 12;

/// QEMU's process. Signals that stop pagelab also kill it. Dropping it kills and reaps it.
struct Process(Child);

/// A running QEMU and its output.
pub struct Emulator {
    process: Process,
    qmp: Qmp,
    version: Version,
    output: Tail,
    started: Instant,
    started_cpu_s: f64,
}

/// The cost of a boot: from starting the guest to its power-off.
pub struct Boot {
    /// Wall-clock time in seconds.
    pub wall_s: f64,
    /// CPU seconds of all threads of QEMU.
    pub cpu_s: f64,
}

impl Emulator {
    /// Starts QEMU with the guest stopped.
    pub fn start(arguments: &Arguments, max_cpus: u32, guest: &Guest) -> Result<Emulator, BootError> {
        let program = tracer::resolve(arguments.qemu.as_os_str()).map_err(|error| BootError::NoEmulator { error })?;
        let not_run = |error| BootError::NotRun { program: program.clone(), error };
        let mut command = Command::new(&program);
        command
            .args(qemu_arguments(arguments, max_cpus))
            .arg("-kernel")
            .arg(&guest.kernel)
            .arg("-initrd")
            .arg(&guest.initrd);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs([ONE_HEAP]);
        signals::catch(Forward::Kill).map_err(not_run)?;
        let mut process = Process(die_with_parent(&mut command).spawn().map_err(not_run)?);
        signals::forward_to(process.0.id().cast_signed());
        let pipes = (process.0.stdin.take(), process.0.stdout.take(), process.0.stderr.take());
        let (Some(to), Some(from), Some(errors)) = pipes else { unreachable!("all three are piped") };
        let output = Tail::of(errors, KEPT_BYTES).map_err(not_run)?;
        let (qmp, version, started) = (Qmp::new(to, from).map_err(not_run)?, Version(0, 0, 0), Instant::now());
        let mut emulator = Emulator { process, qmp, version, output, started, started_cpu_s: 0.0 };
        emulator.version = emulator.read_greeting()?;
        emulator.execute("qmp_capabilities", Value::Null)?;
        Ok(emulator)
    }

    /// Starts the guest. The measured boot begins here, so that QEMU's own startup, and the tracer's overhead in it, are
    /// excluded.
    pub fn start_guest(&mut self) -> Result<(), BootError> {
        self.started_cpu_s = self.cpu_s()?;
        self.started = Instant::now();
        self.execute("cont", Value::Null).map(drop)
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Waits until the guest has powered off; QEMU is then stopped. Returns the cost.
    pub fn wait_for_power_off(&mut self, limit: Duration) -> Result<Boot, BootError> {
        let until = self.started + limit;
        loop {
            let event = self.qmp.event(until).map_err(|why| self.no_reply(why, limit))?;
            if event["event"] == "SHUTDOWN" {
                let wall_s = self.started.elapsed().as_secs_f64();
                let cpu_s = self.cpu_s()? - self.started_cpu_s;
                return self.check_end(&event).map(|()| Boot { wall_s, cpu_s });
            }
        }
    }

    fn cpu_s(&self) -> Result<f64, BootError> {
        tracer::child::cpu_s(self.pid()).map_err(BootError::Usage)
    }

    /// Checks that the guest printed init's message, and powered off instead of panicking.
    fn check_end(&self, event: &Value) -> Result<(), BootError> {
        let reason = event["data"]["reason"].as_str().unwrap_or("no reason");
        let wrong = |found: String| BootError::WrongEnd { expected: INIT_MESSAGE, found, output: self.last_lines() };
        if reason != "guest-shutdown" {
            return Err(wrong(format!("an end for the reason {reason}")));
        }
        // The message was written before the power-off, but through another pipe, so it may arrive later.
        let until = Instant::now() + Duration::from_secs(5);
        // A getty's prompt may precede init's message on the same line.
        while !self.output.text().lines().any(|line| line.trim_end().ends_with(INIT_MESSAGE)) {
            if Instant::now() > until {
                return Err(wrong("only the power-off".to_string()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// QEMU's translation statistics.
    pub fn jit(&mut self) -> Result<Jit, BootError> {
        let answer = self.execute("human-monitor-command", json!({ "command-line": "info jit" }))?;
        match answer.as_str() {
            Some(text) => Jit::parse(text),
            None => Err(BootError::Monitor { expected: "a text from `info jit`", found: answer.to_string() }),
        }
    }

    /// Reads QEMU's greeting, and returns its version.
    fn read_greeting(&mut self) -> Result<Version, BootError> {
        let greeting = self.qmp.greeting(Instant::now() + ANSWER_LIMIT);
        let greeting = greeting.map_err(|why| self.no_reply(why, ANSWER_LIMIT))?;
        let number = |name: &str| greeting["version"]["qemu"][name].as_u64();
        match (number("major"), number("minor"), number("micro")) {
            (Some(major), Some(minor), Some(micro)) => Ok(Version(major, minor, micro)),
            _ => Err(BootError::Monitor { expected: "a greeting with a version", found: greeting.to_string() }),
        }
    }

    /// Executes a monitor command, and returns its result.
    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, BootError> {
        self.send(command, arguments)?;
        let mut answer =
            self.qmp.answer(Instant::now() + ANSWER_LIMIT).map_err(|why| self.no_reply(why, ANSWER_LIMIT))?;
        if let Some(error) = answer.get("error") {
            let answer = error["desc"].as_str().map_or_else(|| error.to_string(), str::to_string);
            let answer = results::printable(&answer).to_string();
            return Err(BootError::Refused { command: command.to_string(), answer, output: self.last_lines() });
        }
        Ok(answer["return"].take())
    }

    /// The error if no message arrived from QEMU's monitor within a time limit.
    fn no_reply(&mut self, why: NoReply, limit: Duration) -> BootError {
        match why {
            NoReply::Ended => self.ended(),
            NoReply::Late => self.hangs(limit),
        }
    }

    /// Ends QEMU and waits for it, so that its CPU time is accounted.
    pub fn quit(mut self) -> Result<(), BootError> {
        self.send("quit", Value::Null)?;
        let until = Instant::now() + ANSWER_LIMIT;
        loop {
            match self.process.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) => return Err(self.ended()),
                Ok(None) if Instant::now() > until => return Err(self.hangs(ANSWER_LIMIT)),
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(BootError::NotRun { program: "QEMU".into(), error }),
            }
        }
    }

    fn send(&mut self, command: &str, arguments: Value) -> Result<(), BootError> {
        self.qmp.send(command, arguments).map_err(|_| self.ended())
    }

    /// The error if QEMU has ended: because a signal stopped pagelab, or by itself.
    fn ended(&mut self) -> BootError {
        let ended = self.process.0.wait();
        // QEMU's last output may not have arrived yet. The wait is limited, because a child of QEMU may keep the pipe open.
        let until = Instant::now() + Duration::from_secs(1);
        while !self.output.is_complete() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        match (signals::arrived(), ended) {
            (Some(signal), _) => BootError::Interrupted(signal),
            (None, Ok(status)) => BootError::ended(status, self.last_lines()),
            (None, Err(error)) => BootError::NotRun { program: "QEMU".into(), error },
        }
    }

    fn hangs(&self, limit: Duration) -> BootError {
        BootError::Hangs { limit_s: limit.as_secs(), output: self.last_lines() }
    }

    fn last_lines(&self) -> String {
        let text = self.output.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        last.iter().map(|line| format!("  {}", results::printable(line.trim_end()))).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        signals::stop_forwarding();
    }
}

/// QEMU's arguments. QEMU's messages and the guest's console both use standard error.
fn qemu_arguments(arguments: &Arguments, max_cpus: u32) -> Vec<String> {
    let memory_mib = arguments.memory_bytes() >> 20;
    let mut machine = "virt,gic-version=3".to_string();
    let mut words = Vec::new();
    if arguments.memory_kind == MemoryKind::Memfd {
        machine.push_str(",memory-backend=ram");
        words.extend(["-object".to_string(), format!("memory-backend-memfd,id=ram,size={memory_mib}M,share=on")]);
    }
    let pairs = [
        ("-machine", machine),
        ("-cpu", "cortex-a57".to_string()),
        ("-m", format!("{memory_mib}M")),
        ("-smp", format!("{},maxcpus={max_cpus}", arguments.smp)),
        ("-accel", format!("tcg,thread=multi,tb-size={}", arguments.tb_size >> 20)),
        ("-display", "none".to_string()),
        ("-qmp", "stdio".to_string()),
        ("-serial", "file:/proc/self/fd/2".to_string()),
        ("-append", "console=ttyAMA0 panic=-1".to_string()),
    ];
    words.extend(pairs.into_iter().flat_map(|(option, value)| [option.to_string(), value]));
    words.extend(["-nodefaults", "-no-user-config", "-S", "-no-reboot", "-no-shutdown"].map(String::from));
    words
}
