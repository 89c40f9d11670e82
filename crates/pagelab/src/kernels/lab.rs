//! Boots guests one after the other, each to do a job.

use std::path::{Path, PathBuf};
use std::time::Duration;

use guest::{Accelerator, Architecture, Machine};
use policy::size::format_bytes;
use study::comparison::Comparison;
use study::guest::{Clock, without_times};
use tracer::signals::{self, PassOn};

use super::emulator::{self, End, Ended, Limits};
use super::job::{Job, Said};
use super::kernel::Kernel;
use crate::failure::{Failure, report};

/// The time limit until a guest begins its job: with KVM, and emulated.
const READY: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(900)];
/// The time limit of the first guest under KVM before KVM is given up. That guest only boots.
const TRY: Duration = Duration::from_secs(30);
/// The environment in a guest with another system's files.
const OF_A_SYSTEM: [(&str, &str); 2] =
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
}

/// The result of a boot.
pub struct Booted {
    /// The measurement, without figures that its machine cannot measure.
    pub comparison: Comparison,
    /// An error that occurred although there is a measurement.
    pub exit: Result<(), Failure>,
}

impl Lab {
    /// Chooses KVM or emulation, and reports why if it is not KVM. Logs are stored next to `store`.
    ///
    /// # Errors
    /// QEMU is missing, or the directory or the user of this process has no name.
    pub fn open(kernels: &[Kernel], icount: bool, guest_time_s: f64, store: &Path) -> Result<Lab, Failure> {
        signals::catch(PassOn::Kill).map_err(Failure::input)?;
        let logs = store.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let template = template()?;
        let limit = Duration::try_from_secs_f64(guest_time_s).unwrap_or(Duration::MAX);
        let mut lab = Lab { accelerator: Accelerator::Counting, limit, logs, template };
        if icount {
            return Ok(lab);
        }
        lab.accelerator = Accelerator::Kvm;
        if let Some(first) = kernels.first()
            && let Err(why) = lab.all_native(kernels).map_or_else(|why| Ok(Err(why)), |()| lab.works(first))?
        {
            report(format_args!("pagelab: guests are emulated, so no time is measured: {why}"));
            lab.accelerator = Accelerator::Emulation;
        }
        Ok(lab)
    }

    /// Whether the clock of its guests measures real time.
    pub fn clock(&self) -> Clock {
        match self.accelerator {
            Accelerator::Kvm => Clock::Real,
            Accelerator::Emulation => Clock::Nothing,
            Accelerator::Counting => Clock::Instructions,
        }
    }

    /// The name of the accelerator.
    pub fn how(&self) -> &'static str {
        match self.accelerator {
            Accelerator::Kvm => "KVM",
            Accelerator::Emulation => "emulated",
            Accelerator::Counting => "emulated, counting instructions",
        }
    }

    /// Checks that all kernels are for this architecture; the error names one that is not.
    fn all_native(&self, kernels: &[Kernel]) -> Result<(), String> {
        let is_foreign = |kernel: &&Kernel| Architecture::own() != Some(kernel.image.architecture);
        kernels.iter().find(is_foreign).map_or(Ok(()), |kernel| {
            let (name, other) = (&kernel.name, kernel.image.architecture);
            Err(format!("{name} is a kernel for {other}, and this processor is {}", std::env::consts::ARCH))
        })
    }

    /// Tests whether a guest with this kernel boots under KVM, or why not. That /dev/kvm can be opened does not prove it.
    #[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
    fn works(&self, kernel: &Kernel) -> Result<Result<(), String>, Failure> {
        if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
            return Ok(Err(format!("/dev/kvm: {error}")));
        }
        let limits = Limits { ready: TRY, end: TRY };
        let ended = self.run(kernel, &self.job(kernel, &[], 0), limits, &mut |_| ())?;
        match ended.end {
            End::Done => Ok(Ok(())),
            End::Interrupted(signal) => Err(Failure::Interrupted(signal)),
            End::Early => Ok(Err(format!("by KVM a guest ended at once ({:?})", ended.last_words()))),
            End::TooSlow { .. } => Ok(Err(format!("by KVM a guest did not come up within {} s", TRY.as_secs()))),
        }
    }

    /// Boots a kernel and runs `compare` there with the given arguments.
    ///
    /// # Errors
    /// The kernel does not boot, or the guest has no result. The log of its console is kept in both cases.
    pub fn measure(&self, kernel: &Kernel, words: &[String], seed: u64) -> Result<Booted, Failure> {
        let ready = READY[usize::from(self.accelerator != Accelerator::Kvm)];
        let limits = Limits { ready, end: self.limit };
        let job = self.job(kernel, words, seed);
        let (mut comparison, mut failed) = (None, None);
        let mut hear = |said| match said {
            Said::Comparison(made) => comparison = Some(*made),
            Said::Failed { code, message } => failed = Some((code, message)),
            Said::Ready | Said::Done => {}
        };
        let ended = self.run(kernel, &job, limits, &mut hear)?;
        let failed = failed.map(|(code, message)| Failure::of_code(code, format!("{}: {message}", kernel.name)));
        match (&ended.end, comparison) {
            (End::Done, Some(comparison)) => {
                let comparison = without_times(comparison);
                Ok(Booted { comparison, exit: failed.map_or(Ok(()), Err) })
            }
            (End::Done, None) => Err(failed.unwrap_or_else(|| self.without_result(kernel, &ended))),
            (End::Interrupted(signal), _) => Err(Failure::Interrupted(*signal)),
            (End::Early | End::TooSlow { .. }, _) => Err(self.without_result(kernel, &ended)),
        }
    }

    /// The job of a guest. In another system, this host's directories, users and environment do not apply.
    fn job(&self, kernel: &Kernel, words: &[String], seed: u64) -> Job {
        let job = Job { words: words.to_vec(), seed, ..self.template.clone() };
        match &kernel.sysroot {
            None => job,
            Some(sysroot) => {
                let variables = OF_A_SYSTEM.map(|(name, value)| (name.into(), value.into())).into();
                Job { directory: "/".into(), program: sysroot.program(), user: None, variables, ..job }
            }
        }
    }

    fn run(&self, kernel: &Kernel, job: &Job, limits: Limits, hear: &mut dyn FnMut(Said)) -> Result<Ended, Failure> {
        let words = kernel.own_words().chain([self.clock().word()]);
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
            files: kernel.sysroot.as_ref().map_or_else(|| "/".into(), |sysroot| sysroot.path.clone()),
        };
        let job = serde_json::to_vec(job).map_err(Failure::input)?;
        let initrd = guest::initrd(&kernel.modules, &job, kernel.sysroot.as_ref()).map_err(Failure::input)?;
        let image = kernel.image.path.to_string_lossy();
        emulator::boot(&machine, &image, &initrd, limits, hear).map_err(Failure::input)
    }

    /// The error for a guest without a result, with the path of its log.
    fn without_result(&self, kernel: &Kernel, ended: &Ended) -> Failure {
        let file = self.logs.join(format!("guest-{}.log", kernel.name));
        let log = match ended.keep_log(file) {
            Ok(file) => format!("its console's log: {}", file.display()),
            Err(error) => format!("its console's log could not be kept: {error}"),
        };
        let what = match ended.end {
            End::TooSlow { is_ready: true } => {
                format!("the guest was not done within {} s; give more with --guest-time", self.limit.as_secs())
            }
            End::TooSlow { is_ready: false } => {
                let limit = READY[usize::from(self.accelerator != Accelerator::Kvm)].min(self.limit);
                format!("the guest did not come up within {} s", limit.as_secs())
            }
            _ => format!("the guest ended without a result (memory: {})", format_bytes(kernel.memory_bytes)),
        };
        Failure::NoResult(format!("{}: {what}; its last line was {:?}; {log}", kernel.name, ended.last_words()))
    }
}

/// A job without arguments: this program, its directory, environment and user.
fn template() -> Result<Job, Failure> {
    let about = |what: &str, error: std::io::Error| Failure::Input(format!("{what}: {error}"));
    let id = tracer::user::effective_id();
    let user = if id == 0 { None } else { Some(tracer::user::name_of(id).map_err(Failure::input)?) };
    Ok(Job {
        words: Vec::new(),
        directory: std::env::current_dir().map_err(|error| about("the working directory", error))?,
        variables: std::env::vars_os().collect(),
        user,
        seed: 0,
        program: std::env::current_exe().map_err(|error| about("pagelab's own path", error))?,
    })
}
