//! Boots guests one after the other, each of which does one job ([`Lab`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use guest::{Accelerator, Architecture, Machine};
use policy::capability::Matrix;
use policy::size::format_bytes;
use study::comparison::Comparison;
use study::guest::{Clock, emulator_word, with_large_pages, without_times};
use tracer::signals::{self, Forward};

use super::emulator::{self, GuestEnd, GuestResult, Limits};
use super::job::{Job, Message, Task};
use super::kernel::Kernel;
use crate::compare::unix_s;
use crate::failure::{Failure, report};

/// Time within which a guest must begin its job: under KVM, and under emulation.
const READY_LIMITS: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(900)];
/// Time within which a first guest without a job must boot under KVM. If it does not, all guests are emulated.
const KVM_BOOT_LIMIT: Duration = Duration::from_secs(30);
/// The environment variables of a guest that uses the files of another system.
const SYSROOT_ENVIRONMENT: [(&str, &str); 2] =
    [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")];
/// The default time limit of a guest, in seconds.
pub const GUEST_TIME_S: f64 = 3600.0;

/// Settings for booting guests.
pub struct Lab {
    accelerator: Accelerator,
    limit: Duration,
    /// The directory for logs of failed guests.
    logs: PathBuf,
    template: Job,
    /// Whether all boots of an image begin equal: without randomisation, and with the same random numbers and time.
    is_reproducible: bool,
}

/// The results of the tasks of a boot, in the order of the tasks.
pub struct TaskResults {
    pub tasks: Vec<TaskResult>,
    /// Why the guest has no swap or no memory limits although they were asked for, as clauses.
    pub lacks: Vec<String>,
    /// When the guest was started, in seconds since 1970.
    began_unix_s: i64,
}

/// The result of a task, and its error: a measurement with a wrong answer has both.
#[derive(Debug, Default)]
pub struct TaskResult {
    pub comparison: Option<Comparison>,
    pub matrix: Option<Matrix>,
    pub failed: Option<Failure>,
}

/// The result of a boot.
pub struct BootResult {
    /// The measurement, without figures that the guest cannot measure.
    pub comparison: Comparison,
    /// An error that the guest reported although there is a measurement, such as a wrong answer under a policy.
    pub exit: Result<(), Failure>,
}

impl Lab {
    /// Chooses between KVM and emulation, and reports the reason if it is emulation. Logs of failed guests are stored
    /// next to `store`.
    pub fn open(kernels: &[Kernel], icount: bool, guest_time_s: f64, store: &Path) -> Result<Lab, Failure> {
        signals::catch(Forward::Kill).map_err(Failure::input)?;
        let logs = store.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let template = template()?;
        let limit = Duration::try_from_secs_f64(guest_time_s).unwrap_or(Duration::MAX);
        let mut lab = Lab { accelerator: Accelerator::Counting, limit, logs, template, is_reproducible: false };
        if icount {
            return Ok(lab);
        }
        lab.accelerator = Accelerator::Kvm;
        if let Some(first) = kernels.first()
            && let Err(why) = lab.check_native(kernels).map_or_else(|why| Ok(Err(why)), |()| lab.try_kvm(first))?
        {
            report(format_args!("pagelab: guests are emulated, so no time is measured: {why}"));
            lab.accelerator = Accelerator::Emulation;
        }
        Ok(lab)
    }

    /// Settings for guests that count instructions and begin equal in every boot. Logs are stored in `logs`.
    pub fn reproducible(guest_time_s: f64, logs: PathBuf, swap_bytes: u64) -> Result<Lab, Failure> {
        signals::catch(Forward::Kill).map_err(Failure::input)?;
        let template = Job { swap_bytes: Some(swap_bytes), ..template()? };
        let limit = Duration::try_from_secs_f64(guest_time_s).unwrap_or(Duration::MAX);
        Ok(Lab { accelerator: Accelerator::Counting, limit, logs, template, is_reproducible: true })
    }

    /// What the clock of the guests measures.
    pub fn clock(&self) -> Clock {
        match self.accelerator {
            Accelerator::Kvm => Clock::Real,
            Accelerator::Emulation => Clock::Nothing,
            Accelerator::Counting => Clock::Instructions,
        }
    }

    pub fn accelerator_name(&self) -> &'static str {
        match self.accelerator {
            Accelerator::Kvm => "KVM",
            Accelerator::Emulation => "emulated",
            Accelerator::Counting => "emulated, counting instructions",
        }
    }

    /// Checks that all kernels are for this architecture; the error names the first that is not.
    fn check_native(&self, kernels: &[Kernel]) -> Result<(), String> {
        let is_foreign = |kernel: &&Kernel| Architecture::own() != Some(kernel.image.architecture);
        kernels.iter().find(is_foreign).map_or(Ok(()), |kernel| {
            let (name, other) = (&kernel.name, kernel.image.architecture);
            Err(format!("{name} is a kernel for {other}, and this processor is {}", std::env::consts::ARCH))
        })
    }

    /// Tests whether a guest with this kernel boots under KVM; the inner error says why not. That /dev/kvm can be opened is
    /// not enough.
    #[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
    fn try_kvm(&self, kernel: &Kernel) -> Result<Result<(), String>, Failure> {
        if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
            return Ok(Err(format!("/dev/kvm: {error}")));
        }
        let limits = Limits { ready: KVM_BOOT_LIMIT, end: KVM_BOOT_LIMIT };
        let ended = self.run(kernel, &self.job(kernel, Vec::new(), 0), limits, &mut |_| ())?;
        match ended.end {
            GuestEnd::Done => Ok(Ok(())),
            GuestEnd::Interrupted(signal) => Err(Failure::Interrupted(signal)),
            GuestEnd::Early => Ok(Err(format!("with KVM a guest ended at once ({})", console_words(&ended)))),
            GuestEnd::TooSlow { .. } => {
                Ok(Err(format!("with KVM a guest did not start within {} s", KVM_BOOT_LIMIT.as_secs())))
            }
        }
    }

    /// Boots a kernel and runs `compare` there with the given arguments. If the kernel does not boot or the guest has no result,
    /// the log of its console is kept.
    pub fn measure(&self, kernel: &Kernel, words: &[String], seed: u64) -> Result<BootResult, Failure> {
        let done = self.run_tasks(kernel, vec![Task::Compare(words.to_vec())], seed)?;
        match done.tasks.into_iter().next() {
            Some(TaskResult { comparison: Some(comparison), failed, .. }) => {
                Ok(BootResult { comparison, exit: failed.map_or(Ok(()), Err) })
            }
            Some(TaskResult { failed: Some(failure), .. }) => Err(failure),
            _ => Err(Failure::NoResult(format!("{}: the guest sent no result", kernel.name))),
        }
    }

    /// Boots a kernel and runs tasks there, one after the other. If the kernel does not boot or the guest has no result at all, the
    /// log of its console is kept.
    pub fn run_tasks(&self, kernel: &Kernel, tasks: Vec<Task>, seed: u64) -> Result<TaskResults, Failure> {
        let ready = READY_LIMITS[usize::from(self.accelerator != Accelerator::Kvm)];
        let limits = Limits { ready, end: self.limit };
        let mut done = TaskResults { tasks: Vec::new(), lacks: Vec::new(), began_unix_s: unix_s() };
        done.tasks.resize_with(tasks.len(), TaskResult::default);
        let mut receive = |message| done.receive(message, kernel);
        let ended = self.run(kernel, &self.job(kernel, tasks, seed), limits, &mut receive)?;
        match ended.end {
            GuestEnd::Interrupted(signal) => Err(Failure::Interrupted(signal)),
            GuestEnd::Done if done.tasks.iter().all(TaskResult::is_present) => Ok(done),
            GuestEnd::Done | GuestEnd::Early | GuestEnd::TooSlow { .. } => Err(self.without_result(kernel, &ended)),
        }
    }

    /// The job of a guest. A guest with a sysroot gets none of this host's directories, users and environment.
    fn job(&self, kernel: &Kernel, tasks: Vec<Task>, seed: u64) -> Job {
        let job = Job { tasks, seed, ..self.template.clone() };
        match &kernel.sysroot {
            None => job,
            Some(sysroot) => {
                let variables = SYSROOT_ENVIRONMENT.map(|(name, value)| (name.into(), value.into())).into();
                Job { directory: "/".into(), program: sysroot.program(), user: None, variables, ..job }
            }
        }
    }

    fn run(
        &self,
        kernel: &Kernel,
        job: &Job,
        limits: Limits,
        receive: &mut dyn FnMut(Message),
    ) -> Result<GuestResult, Failure> {
        let emulator = match self.accelerator {
            Accelerator::Kvm => None,
            Accelerator::Emulation | Accelerator::Counting => emulator::version(kernel.image.architecture),
        };
        let emulator = emulator.map(|version| emulator_word(&format!("QEMU-{version}")));
        let words = kernel.command_line().chain([self.clock().word()]).chain(emulator);
        let cpus = match self.accelerator {
            Accelerator::Kvm => std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            Accelerator::Emulation | Accelerator::Counting => 1,
        };
        let machine = Machine {
            architecture: kernel.image.architecture,
            accelerator: self.accelerator,
            memory_bytes: kernel.memory_bytes,
            cpus,
            kernel_words: words.collect(),
            is_reproducible: self.is_reproducible,
            files: kernel.sysroot.as_ref().map_or_else(|| "/".into(), |sysroot| sysroot.path.clone()),
        };
        let job = serde_json::to_vec(job).map_err(Failure::input)?;
        let initrd = guest::initrd(&kernel.modules, &job, kernel.sysroot.as_ref()).map_err(Failure::input)?;
        let image = kernel.image.path.to_string_lossy();
        emulator::boot(&machine, &image, &initrd, limits, receive).map_err(Failure::input)
    }

    /// The error for a guest without a result, with the path of its log.
    fn without_result(&self, kernel: &Kernel, ended: &GuestResult) -> Failure {
        let file = self.logs.join(format!("guest-{}.log", kernel.name));
        let log = match ended.write_log(file) {
            Ok(file) => format!("console log: {}", file.display()),
            Err(error) => format!("the console log could not be written: {error}"),
        };
        let what = match ended.end {
            GuestEnd::TooSlow { is_ready: true } => {
                format!("the guest was not done within {} s; give more time with --guest-time", self.limit.as_secs())
            }
            GuestEnd::TooSlow { is_ready: false } => {
                let limit = READY_LIMITS[usize::from(self.accelerator != Accelerator::Kvm)].min(self.limit);
                format!("the guest did not come up within {} s", limit.as_secs())
            }
            _ => format!("the guest ended without a result (memory: {})", format_bytes(kernel.memory_bytes)),
        };
        let words = console_words(ended);
        Failure::NoResult(format!("{}: {what}; {words}; {log}", kernel.name))
    }
}

impl TaskResult {
    fn is_present(&self) -> bool {
        self.comparison.is_some() || self.matrix.is_some() || self.failed.is_some()
    }
}

impl TaskResults {
    fn receive(&mut self, message: Message, kernel: &Kernel) {
        match message {
            Message::Comparison { task, comparison } => {
                if let Some(result) = self.tasks.get_mut(task) {
                    result.comparison = Some(cleaned(*comparison, kernel, self.began_unix_s));
                }
            }
            Message::Capabilities { task, matrix } => {
                if let Some(result) = self.tasks.get_mut(task) {
                    result.matrix = Some(*matrix);
                }
            }
            Message::Failed { task, code, message } => {
                if let Some(result) = self.tasks.get_mut(task) {
                    result.failed = Some(Failure::of_code(code, format!("{}: {message}", kernel.name)));
                }
            }
            Message::Lacks { why } => self.lacks.push(why),
            Message::Ready | Message::Done => {}
        }
    }
}

/// A measurement of a guest without figures that its machine cannot measure.
fn cleaned(comparison: Comparison, kernel: &Kernel, began_unix_s: i64) -> Comparison {
    let mut comparison = without_times(with_large_pages(comparison));
    // A guest may have no clock, and then believes that it is 1970.
    comparison.started_unix_s = began_unix_s;
    // The configured size, because kernels report different amounts of the memory as usable.
    comparison.machine.memory_bytes = kernel.memory_bytes;
    // The command line of this process: the one in the guest can only be run by the guest's first process.
    comparison.invocation.pagelab = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    comparison
}

/// Why a guest ended, according to its console, as a clause.
fn console_words(ended: &GuestResult) -> String {
    ended
        .last_words()
        .map_or("its console is empty: the image may be damaged, or for another machine".to_owned(), |words| {
            format!("its console says {words:?}")
        })
}

/// A job without arguments: this program, its directory, environment and user.
fn template() -> Result<Job, Failure> {
    let about = |what: &str, error: std::io::Error| Failure::Input(format!("{what}: {error}"));
    let id = tracer::user::effective_id();
    let user = if id == 0 { None } else { Some(tracer::user::name_of(id).map_err(Failure::input)?) };
    Ok(Job {
        tasks: Vec::new(),
        swap_bytes: None,
        directory: std::env::current_dir().map_err(|error| about("the working directory", error))?,
        variables: std::env::vars_os().collect(),
        user,
        seed: 0,
        program: std::env::current_exe().map_err(|error| about("pagelab's own path", error))?,
    })
}
