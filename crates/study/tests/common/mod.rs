//! A platform without a machine: times come from a noise model, and trials advance the clock.
#![allow(dead_code)]

use policy::Exit;
use policy::cause::{Cause, CauseShare};
use policy::census::Census;
use policy::machine::{Machine, SettingChange, State};
use policy::size::PageSize;
use policy::verdict::{Holding, Verdict};
use policy::{Admission, Unsupported};
use policy::{Granularity, Modifier, PageSizes, Policy};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use study::comparison::{Comparison, Design, Invocation};
use study::control::Role;
use study::metric::{Direction, Metric, Observation, Unit, names};
use study::runner::{Platform, Run};
use study::trial::{Answer, Arm, Trial, TrialRecord};

/// Variation of the times of a fake machine; every figure is a share of the time.
#[derive(Clone, Copy)]
pub struct Noise {
    /// Standard deviation from trial to trial.
    pub trial: f64,
    /// Standard deviation of the innovation that each block adds to an AR(1) process.
    pub drift: f64,
    /// Coefficient of the AR(1) process from block to block.
    pub memory: f64,
    /// Steady growth per block.
    pub trend: f64,
    /// Share of the trials that take 10 % to 60 % longer.
    pub outliers: f64,
}

impl Noise {
    /// The noise of LINUX-MM.md, section 5: AR(1) drift of this size, a trend, and 3 % outliers.
    pub fn drifting(drift: f64) -> Noise {
        Noise { trial: 0.01, drift, memory: 0.9, trend: 0.001, outliers: 0.03 }
    }

    /// Only a little variation from trial to trial.
    pub fn quiet() -> Noise {
        Noise { trial: 0.003, drift: 0.0, memory: 0.0, trend: 0.0, outliers: 0.0 }
    }
}

/// Wall times in seconds of repeated runs of a program, from `fixtures/noise`.
pub struct Recording(Vec<f64>);

/// Part of a recording.
pub type Stretch = std::vec::IntoIter<f64>;

impl Recording {
    pub const NAMES: [&str; 2] = ["busy", "own-session"];

    pub fn load(name: &str) -> Recording {
        let path = format!("{}/../../fixtures/noise/{name}.csv", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
        Recording(rows.map(|row| row.split(',').nth(1).unwrap().parse().unwrap()).collect())
    }

    /// A stretch of this many seconds with a random beginning; one that reaches the end continues at the beginning.
    pub fn stretch(&self, random: &mut Pcg64, seconds: f64) -> Stretch {
        let first = (uniform(random) * self.0.len() as f64) as usize;
        let mut left_s = seconds;
        let is_within = |time_s: &f64| {
            left_s -= time_s;
            left_s > 0.0
        };
        self.0.iter().copied().cycle().skip(first).take_while(is_within).collect::<Vec<f64>>().into_iter()
    }
}

/// The behaviour of a fake machine for one arm.
#[derive(Clone)]
pub struct FakeArm {
    /// Its time relative to an arm without effect.
    pub ratio: f64,
    /// Number of tracer stops; `None` without a tracer.
    pub stops: Option<f64>,
    pub holding: Holding,
    /// Why the arm is not supported.
    pub unsupported: Option<Unsupported>,
    /// Exit status by block; later blocks repeat the last one.
    pub exits: Vec<i32>,
}

impl FakeArm {
    pub fn of(ratio: f64) -> FakeArm {
        FakeArm { ratio, stops: Some(0.0), holding: Holding::Held, unsupported: None, exits: vec![0] }
    }
}

/// A fake machine.
pub struct Fake {
    pub arms: Vec<FakeArm>,
    pub labels: Vec<String>,
    pub noise: Noise,
    /// Times of runs on a real machine, in place of the noise.
    pub recorded: Option<Stretch>,
    pub wall_s: f64,
    /// Whether a trial, by its number in the run, is rejected.
    pub rejected: Box<dyn Fn(u32) -> bool>,
    /// The trial, by its number in the run, before which the user interrupts.
    pub interrupt_before: u32,
    /// Whether a trial, by arm and block, takes too long.
    pub slow: Box<dyn Fn(usize, u32) -> bool>,
    /// Seconds that the first trial waits for another pagelab.
    pub waits_s: f64,
    /// The trial, by its number in the run, that cannot run.
    pub broken: Option<u32>,
    /// The preparation, by its number in the run, that fails.
    pub unprepared: Option<u32>,
    /// Cause in every trial's verdict.
    pub cause: Option<Cause>,
    pub runs: u32,
    /// Requested preparations (`None`) and trials, in order.
    pub asked: Vec<Option<Trial>>,
    clock_s: f64,
    state: f64,
    random: Pcg64,
}

impl Fake {
    pub fn new(design: &Design, ratios: &[f64], noise: Noise, seed: u64) -> Fake {
        Fake {
            arms: ratios.iter().map(|ratio| FakeArm::of(*ratio)).collect(),
            labels: design.arms.iter().map(|arm| arm.label.clone()).collect(),
            noise,
            recorded: None,
            wall_s: 0.5,
            rejected: Box::new(|_| false),
            slow: Box::new(|_, _| false),
            waits_s: 0.0,
            interrupt_before: u32::MAX,
            broken: None,
            unprepared: None,
            cause: None,
            runs: 0,
            asked: Vec::new(),
            clock_s: 0.0,
            state: 0.0,
            random: Pcg64::seed_from_u64(seed),
        }
    }

    /// A machine for a design with control arms. For each policy: its own effect on the time, the effect of the
    /// tracer's stops on the time, and the number of stops.
    pub fn traced(design: &Design, policies: &[(f64, f64, f64)], noise: Noise, seed: u64) -> Fake {
        let mut fake = Fake::new(design, &vec![1.0; design.arms.len()], noise, seed);
        for (at, arm) in design.arms.iter().enumerate() {
            (fake.arms[at].ratio, fake.arms[at].stops) = match &arm.role {
                Role::Policy => (policies[at].0 * policies[at].1, Some(policies[at].2)),
                Role::Bare => (1.0, None),
                Role::Sham { of, .. } => (policies[*of].1, Some(policies[*of].2)),
                // Half of the policy's effect.
                Role::Frames { of } | Role::Share { of, .. } => {
                    (policies[*of].0.sqrt() * policies[*of].1, Some(policies[*of].2))
                }
            };
        }
        fake
    }

    fn index(&self, arm: &Arm) -> usize {
        self.labels.iter().position(|label| *label == arm.label).expect("an arm of the design")
    }

    /// The drift continues between trials, so it also varies within a block.
    fn time_s(&mut self, ratio: f64, block: u32) -> f64 {
        if let Some(recorded) = &mut self.recorded {
            return ratio * recorded.next().expect("a stretch that is long enough");
        }
        let step = 1.0 / self.arms.len() as f64;
        let memory = self.noise.memory.powf(step);
        self.state = self.state * memory + self.noise.drift * step.sqrt() * normal(&mut self.random);
        let outlier =
            if uniform(&mut self.random) < self.noise.outliers { 0.1 + 0.5 * uniform(&mut self.random) } else { 0.0 };
        let log = self.state + self.noise.trend * f64::from(block) + self.noise.trial * normal(&mut self.random);
        self.wall_s * ratio * log.exp() * (1.0 + outlier)
    }
}

impl Platform for Fake {
    type Error = String;

    fn admit(&mut self, arm: &Arm) -> Admission {
        match &self.arms[self.index(arm)].unsupported {
            Some(unsupported) => Admission::Unsupported(unsupported.clone()),
            None => Admission::Admitted { mechanism: "pretending".into() },
        }
    }

    fn prepare(&mut self) -> Result<(), String> {
        self.asked.push(None);
        self.clock_s += std::mem::take(&mut self.waits_s);
        if self.unprepared == Some(self.runs) { Err("there is no wood".into()) } else { Ok(()) }
    }

    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, String> {
        self.asked.push(Some(trial));
        let number = self.runs;
        self.runs += 1;
        if self.broken == Some(number) {
            return Err("the machine is on fire".into());
        }
        let fake = self.arms[self.index(arm)].clone();
        let started_s = self.clock_s;
        let wall_s = self.time_s(fake.ratio, trial.block);
        self.clock_s += wall_s;
        let exit = fake.exits[(trial.block as usize).min(fake.exits.len() - 1)];
        let mut record = record(trial, fake.holding, &[(names::WALL_S, wall_s)]);
        record.observations.extend(fake.stops.map(|stops| Observation::measured(names::TRACER_STOPS, stops)));
        record.started_s = started_s;
        record.answer.exit = Exit::Code(exit);
        if (self.slow)(trial.arm, trial.block) {
            record.answer = Answer {
                exit: Exit::Signal(9),
                stdout_sha256: None,
                too_slow: true,
                stated: study::trial::Stated::Nothing,
            };
            record.observations.clear();
        }
        record.verdict.causes.extend(self.cause.clone().map(|cause| CauseShare { cause, bytes: None }));
        if (self.rejected)(number) {
            record.rejected = vec![SettingChange {
                path: "/sys/kernel/mm/transparent_hugepage/enabled".into(),
                before: Some("always".into()),
                after: Some("never".into()),
            }];
        }
        Ok(record)
    }

    fn elapsed_s(&self) -> f64 {
        self.clock_s
    }

    fn interrupted(&self) -> bool {
        self.runs >= self.interrupt_before
    }
}

/// A default design over policies by name; a repeated name becomes the A/A arm.
pub fn design(policies: &[&str], seed: u64) -> Design {
    let mut arms: Vec<Arm> = Vec::new();
    for policy in policies {
        let again = arms.iter().filter(|arm| arm.policy.to_string() == *policy).count();
        let label = if again == 0 { policy.to_string() } else { format!("{policy} (again {again})") };
        arms.push(Arm::of_policy(label, policy.parse().expect("a policy")));
    }
    let mut design = Design::new(arms, 0, seed);
    design.metrics = vec![Metric::new(names::WALL_S, Unit::Seconds, Direction::Lower)];
    design
}

/// A default design with its control arms; policies of large pages, `+no-guards` and `+prefault` stop the program.
pub fn controlled(policies: &[&str], seed: u64) -> Design {
    design(policies, seed).with_controls(stops_program)
}

fn stops_program(policy: &Policy) -> bool {
    let granularity = matches!(policy.granularity, Granularity::Mthp(_) | Granularity::Thp | Granularity::Hugetlb(_));
    granularity || policy.has(Modifier::NoGuards) || policy.has(Modifier::Prefault)
}

/// A record with these values, exit status 0 and no rejection.
pub fn record(trial: Trial, holding: Holding, values: &[(&str, f64)]) -> TrialRecord {
    TrialRecord {
        trial,
        started_s: 0.0,
        observations: values.iter().map(|(metric, value)| Observation::measured(*metric, *value)).collect(),
        census: Census::default(),
        verdict: Verdict {
            holding,
            concerned_bytes: 1,
            covered_bytes: 1,
            peak: None,
            causes: vec![],
            answered: vec![],
        },
        answer: Answer::of(Exit::Code(0), None),
        state_before: State::default(),
        state_after: State::default(),
        rejected: vec![],
    }
}

/// Trials without a runner: `value(arm, block)` for block 0 and `blocks` blocks that count.
pub fn trials(arms: usize, blocks: u32, mut value: impl FnMut(usize, u32) -> f64) -> Vec<TrialRecord> {
    let mut trials = Vec::new();
    for block in 0..=blocks {
        for arm in 0..arms {
            let trial = Trial { arm, block, position: arm as u32, attempt: 0 };
            trials.push(record(trial, Holding::Held, &[(names::WALL_S, value(arm, block))]));
        }
    }
    trials
}

/// A host in one of its boots.
pub fn machine(host: u32, boot: u64) -> Machine {
    Machine {
        name: "host".into(),
        arch: "x86_64".into(),
        kernel: "6.18.0 #1".into(),
        kernel_command_line: "quiet".into(),
        boot_id: format!("boot-{host}-{boot}"),
        host_id: Some(format!("host-{host}")),
        cpu_model: "any".into(),
        cpus: 2,
        memory_bytes: 8 << 30,
        hypervisor: None,
        page_sizes: PageSizes { base: PageSize::K4, pmd: None, mthp: vec![], hugetlb: vec![] },
        direct_map: None,
    }
}

/// A comparison of the command `work`.
pub fn comparison(id: i64, machine: Machine, design: Design, run: Run) -> Comparison {
    Comparison {
        id,
        started_unix_s: 0,
        invocation: Invocation {
            command: vec!["work".into()],
            client: None,
            prepare: None,
            pagelab: vec![],
            version: "0".into(),
        },
        machine,
        admissions: run.admissions,
        trials: run.trials,
        analysis: run.analysis,
        advice: None,
        ended: run.ended,
        design,
    }
}

pub fn admitted(arms: usize) -> Vec<Admission> {
    vec![Admission::Admitted { mechanism: "pretending".into() }; arms]
}

/// Uniform between 0 and 1.
pub fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Standard normal, by the Box-Muller method.
pub fn normal(random: &mut Pcg64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(random)).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * uniform(random)).cos()
}
