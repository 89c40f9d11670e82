//! A realistic comparison for the tests: six arms, and fifteen blocks that count. One arm is unsupported, one did not
//! hold, one is undecided, and one is an A/A arm. This file has more than 400 lines because all of it is one
//! comparison.

use std::sync::Arc;

use policy::Exit;
use policy::cause::{Cause, CauseShare};
use policy::census::{Backing, Census, Folio, Mapping};
use policy::machine::{Machine, SettingChange, State};
use policy::remedy::Change;
use policy::size::PageSize;
use policy::verdict::{AnsweredCall, Holding, Peak, Verdict};
use policy::{Admission, Unsupported};
use policy::{Granularity, PageSizes, Policy};
use study::advice::{Advice, Attempt, LargeBytes, Outcome, Tried};
use study::comparison::{Comparison, Design, Ended, Invocation};
use study::metric::{Direction, Metric, Observation, Unit, names};
use study::stats;
use study::trial::{Answer, Arm, Trial, TrialRecord};

use crate::rows::accepted;

pub(crate) const MIB: u64 = 1 << 20;
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";

/// The properties of one arm of the sample.
#[derive(Clone, Copy)]
struct ArmProfile {
    label: &'static str,
    policy: &'static str,
    time_ratio: f64,
    noise_ratio: f64,
    resident_bytes: u64,
    page_table_bytes: u64,
    minor_faults: f64,
    target: PageSize,
    coverage_ratio: f64,
    holding: Holding,
}

const K16: u64 = 16 << 10;

fn profiles() -> Vec<ArmProfile> {
    let base = ArmProfile {
        label: "default",
        policy: "default",
        time_ratio: 1.0,
        noise_ratio: 0.006,
        resident_bytes: 1100 * MIB,
        page_table_bytes: 2250 << 10,
        minor_faults: 281_600.0,
        target: PageSize::K4,
        coverage_ratio: 1.0,
        holding: Holding::NotAsked,
    };
    vec![
        base,
        ArmProfile { label: "hugetlb-1g", policy: "hugetlb-1g", ..base },
        ArmProfile {
            label: "thp+no-guards",
            policy: "thp+no-guards",
            time_ratio: 1.012,
            minor_faults: 276_000.0,
            target: PageSize::M2,
            coverage_ratio: 0.04,
            holding: Holding::NotHeld,
            ..base
        },
        ArmProfile {
            label: "thp",
            policy: "thp",
            time_ratio: 0.877,
            resident_bytes: 1320 * MIB,
            page_table_bytes: 130 << 10,
            minor_faults: 2_140.0,
            target: PageSize::M2,
            coverage_ratio: 0.97,
            holding: Holding::Held,
            ..base
        },
        ArmProfile {
            label: "mthp-64k",
            policy: "mthp-64k",
            time_ratio: 0.9955,
            noise_ratio: 0.03,
            minor_faults: 19_800.0,
            target: PageSize::K64,
            coverage_ratio: 0.94,
            holding: Holding::Held,
            ..base
        },
        ArmProfile { label: "default (again)", ..base },
    ]
}

const UNSUPPORTED: usize = 1;

/// Deterministic noise: the sum of four uniform numbers, nearly normal, with mean 0 and deviation 1.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        ((0..4).map(|_| self.uniform()).sum::<f64>() - 2.0) * 3f64.sqrt()
    }
}

pub(crate) fn comparison() -> Comparison {
    let mut comparison = empty();
    let mut noise = Noise(7);
    let mut clock_s = 0.4;
    for block in 0..=15 {
        for (position, arm) in
            study::plan::order(11, block, 6).into_iter().filter(|arm| *arm != UNSUPPORTED).enumerate()
        {
            let mut trial = Trial { arm, block, position: position as u32, attempt: 0 };
            if (block, arm) == (9, 0) {
                let rejected = reject(record(trial, clock_s, 1.02, &mut noise));
                clock_s += rejected.value(names::WALL_S).unwrap() + 0.6;
                comparison.trials.push(rejected);
                trial.attempt = 1;
            }
            let drift = if block == 0 { 1.06 } else { 1.0 + 0.0022 * f64::from(block) };
            let record = record(trial, clock_s, drift, &mut noise);
            clock_s += record.value(names::WALL_S).unwrap() + 0.6;
            comparison.trials.push(record);
        }
    }
    analyse(&mut comparison);
    comparison
}

/// Recomputes the analysis with `study`.
pub(crate) fn analyse(comparison: &mut Comparison) {
    comparison.analysis = stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions);
}

/// The comparison before its first trial.
pub(crate) fn empty() -> Comparison {
    let profiles = profiles();
    let arms: Vec<Arm> =
        profiles.iter().map(|profile| Arm::of_policy(profile.label, profile.policy.parse().unwrap())).collect();
    let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
    Comparison {
        id: 0,
        started_unix_s: 1_774_102_500,
        invocation: Invocation {
            command: words("sort --parallel=1 -S 1G -o /dev/null words.txt"),
            client: None,
            prepare: None,
            pagelab: words(
                "pagelab compare --aa -p thp -p mthp-64k -p hugetlb-1g -p thp+no-guards -- sort --parallel=1 -S 1G -o /dev/null words.txt",
            ),
            version: "0.1.0".to_string(),
        },
        design: Design { max_blocks: 15, ..Design::new(arms, 0, 11) },
        machine: machine(),
        admissions: profiles.iter().map(|profile| admission(profile.policy)).collect(),
        trials: Vec::new(),
        analysis: None,
        advice: Some(advice()),
        ended: Ended::Blocks,
    }
}

fn admission(policy: &str) -> Admission {
    let mechanism = match policy {
        "hugetlb-1g" => {
            return Admission::Unsupported(Unsupported {
                reason: "the pool of 1G pages is empty (0 of 2 wanted)".to_string(),
                remedy: format!("as root: echo 2 > {POOL}, or boot with hugepagesz=1G hugepages=2"),
            });
        }
        "default" => "nothing is touched",
        "mthp-64k" => "madvise(MADV_HUGEPAGE) after mmap and brk; hugepages-64kB/enabled = madvise, the others never",
        _ => "madvise(MADV_HUGEPAGE) after mmap and brk",
    };
    Admission::Admitted { mechanism: mechanism.to_string() }
}

/// Advice in which glibc's tunable had no effect, and the setting for every program gave the policy's pages.
fn advice() -> Advice {
    let tried = |changes: Change, large_bytes| Attempt {
        changes: vec![changes],
        outcome: Outcome::Ran { large_bytes, no_block_bytes: 0 },
    };
    let tunable = Change::Environment { variable: "GLIBC_TUNABLES".into(), value: "glibc.malloc.hugetlb=1".into() };
    Advice::Tried(Tried {
        policy: Policy::plain(Granularity::Thp),
        large: LargeBytes { by_policy: 256 << 20, by_default: 0 },
        attempts: vec![tried(tunable, 0), tried(Change::setting(ENABLED, "always"), 254 << 20)],
        source_change: Some("advise it".into()),
    })
}

fn machine() -> Machine {
    let sizes = |shifts: &[u32]| shifts.iter().map(|shift| PageSize::new(1 << shift).unwrap()).collect::<Vec<_>>();
    let mthp = sizes(&[14, 15, 16, 17, 18, 19, 20]);
    Machine {
        name: "host".into(),
        arch: "x86_64".into(),
        kernel: "6.18.0-1-amd64 #1 SMP PREEMPT_DYNAMIC".into(),
        kernel_command_line: "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet".into(),
        boot_id: "0f6c1c7e-3a0e-4d0c-8d0f-1f8c3f3f1a2b".into(),
        host_id: Some("5be8c3c1a9f00d42".into()),
        cpu_model: "AMD EPYC 7B13".into(),
        cpus: 2,
        memory_bytes: 8 << 30,
        hypervisor: Some("KVM".into()),
        page_sizes: PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp, hugetlb: sizes(&[21, 30]) },
        direct_map: None,
    }
}

fn state(load_1min: f64) -> State {
    let settings = [
        (ENABLED, "madvise"),
        ("/sys/kernel/mm/transparent_hugepage/defrag", "madvise"),
        ("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", "inherit"),
        ("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none", "511"),
        (POOL, "0"),
        ("/proc/sys/vm/compaction_proactiveness", "20"),
    ];
    State {
        settings: Arc::new(settings.map(|(path, value)| (path.to_string(), value.to_string())).into()),
        free_blocks_by_order: vec![812, 640, 333, 120, 77, 41, 20, 12, 9, 5, 1290],
        direct_map_bytes: [("4K", 180 * MIB), ("2M", 4800 * MIB), ("1G", 3 << 30)].map(|(k, v)| (k.into(), v)).into(),
        demoted_to: None,
        reported_block: None,
        available_bytes: 6200 * MIB,
        load_1min,
    }
}

fn reject(mut record: TrialRecord) -> TrialRecord {
    Arc::make_mut(&mut record.state_after.settings).insert(ENABLED.to_string(), "always".to_string());
    record.rejected = vec![SettingChange {
        path: ENABLED.to_string(),
        before: Some("madvise".to_string()),
        after: Some("always".to_string()),
    }];
    record
}

/// A trial of this arm.
fn record(trial: Trial, started_s: f64, drift: f64, noise: &mut Noise) -> TrialRecord {
    let profile = &profiles()[trial.arm];
    let cpu_s = 3.1 * profile.time_ratio * drift * (1.0 + profile.noise_ratio * noise.normal());
    let slow = if (trial.block, trial.arm) == (6, 3) { 1.25 } else { 1.0 };
    let wall_s = (cpu_s + 0.11) * slow * (1.0 + 0.004 * noise.normal());
    let system_s = 0.32 * profile.time_ratio.powi(4) * (1.0 + 0.02 * noise.normal());
    TrialRecord {
        trial,
        started_s,
        observations: vec![
            Observation::measured(names::WALL_S, wall_s),
            Observation::derived(names::CPU_S, cpu_s),
            Observation::measured(names::USER_S, cpu_s - system_s),
            Observation::measured(names::SYSTEM_S, system_s),
            Observation::measured(names::MINOR_FAULTS, (profile.minor_faults + 9.0 * noise.normal()).round()),
            Observation::measured(names::MAJOR_FAULTS, 0.0),
            Observation::measured(names::PEAK_RESIDENT_BYTES, profile.resident_bytes as f64),
            Observation::measured(names::PAGE_TABLE_SEEN_BYTES, profile.page_table_bytes as f64),
            Observation::measured(names::TRACER_S, 0.0021),
        ],
        census: census(profile),
        verdict: verdict(profile),
        answer: Answer::of(Exit::Code(0), Some("e3b0c44298fc1c14".repeat(4))),
        state_before: state(0.41),
        state_after: state(0.44),
        rejected: Vec::new(),
    }
}

fn census(profile: &ArmProfile) -> Census {
    let mut census = Census::default();
    let mut add = |backing, leaf, folio, bytes| census.add(Mapping { backing, leaf, folio }, bytes);
    let covered = (profile.resident_bytes as f64 * profile.coverage_ratio) as u64;
    let leaf = if profile.target == PageSize::M2 { PageSize::M2 } else { PageSize::K4 };
    let rest = profile.resident_bytes - covered;
    add(Backing::Anonymous, leaf, Folio::Whole(profile.target), covered);
    add(Backing::Anonymous, PageSize::K4, Folio::Whole(PageSize::new(K16).unwrap()), rest / 5);
    add(Backing::Anonymous, PageSize::K4, Folio::Part(PageSize::M2), rest / 5);
    add(Backing::Anonymous, PageSize::K4, Folio::Whole(PageSize::K4), rest - 2 * (rest / 5));
    add(Backing::File, PageSize::K4, Folio::Unknown, 9 * MIB);
    census
}

fn verdict(profile: &ArmProfile) -> Verdict {
    let covered_bytes = (profile.resident_bytes as f64 * profile.coverage_ratio) as u64;
    let rest = profile.resident_bytes - covered_bytes;
    let share = |cause, bytes| CauseShare { cause, bytes: Some(bytes) };
    let causes = match profile.holding {
        Holding::NotAsked => Vec::new(),
        Holding::NotHeld => vec![
            share(Cause::NotAdvised, rest / 4 * 3),
            share(Cause::SizeDisabled { path: ENABLED.to_string() }, rest / 4),
            CauseShare {
                cause: Cause::AllocationFellBack { counter: "thp_fault_fallback".into(), times: 7 },
                bytes: None,
            },
        ],
        _ => vec![share(Cause::NoAlignedSlot, rest)],
    };
    let answered = match profile.policy {
        "thp" => vec![AnsweredCall { call: "prctl(PR_SET_THP_DISABLE)".to_string(), times: 1 }],
        _ => Vec::new(),
    };
    let (holding, concerned_bytes) = (profile.holding, profile.resident_bytes);
    let peak =
        Peak { seen_bytes: concerned_bytes, least_bytes: concerned_bytes, most_bytes: concerned_bytes + 9 * MIB };
    Verdict { holding, concerned_bytes, covered_bytes, peak: Some(peak), causes, answered }
}

/// The sample with two control arms: a bare arm, and a sham arm of `thp`, which shows that `thp` loses only because of
/// its stops.
pub(crate) fn with_controls() -> Comparison {
    let mut comparison = comparison();
    let needs_stops = |policy: &Policy| !matches!(policy.granularity, Granularity::Default);
    comparison.design = comparison.design.with_controls(needs_stops);
    let (bare, thp) = (comparison.design.bare().unwrap(), 3);
    let sham = comparison.design.sham_of(thp).unwrap();
    comparison.admissions.resize(comparison.design.arms.len(), comparison.admissions[0].clone());
    let of_default = comparison.trials.clone().into_iter().filter(|record| record.trial.arm == 0 && accepted(record));
    for (at, record) in of_default.enumerate() {
        for (arm, ratio) in [(bare, 0.992), (sham, 1.31), (thp, 1.30)] {
            let ratio = ratio * (1.0 + 0.001 * f64::from(at as u32 % 3));
            let mut record = TrialRecord { trial: Trial { arm, ..record.trial }, ..record.clone() };
            record.observations.iter_mut().filter(|one| one.metric == names::WALL_S).for_each(|one| one.value *= ratio);
            let same = |other: &&mut TrialRecord| (other.trial.arm, other.trial.block) == (arm, record.trial.block);
            match comparison.trials.iter_mut().find(same) {
                Some(own) => own.observations = record.observations,
                None => comparison.trials.push(record),
            }
        }
    }
    for record in &mut comparison.trials {
        let stops = if [thp, sham].contains(&record.trial.arm) { 90_000.0 } else { 12.0 };
        record.observations.push(Observation::measured(names::TRACER_STOPS, stops));
    }
    analyse(&mut comparison);
    comparison
}

/// The sample with throughput and latency, which the user requested in addition to the primary metric.
pub(crate) fn with_own_metrics() -> Comparison {
    let mut comparison = comparison();
    comparison.design.metrics.push(Metric::new("rps", Unit::Custom, Direction::Higher));
    comparison.design.metrics.push(Metric::new("p99_latency_ms", Unit::Custom, Direction::Lower));
    for record in &mut comparison.trials {
        let wall_s = record.value(names::WALL_S).expect("every trial has one");
        record.observations.push(Observation::measured("rps", 300_000.0 / wall_s));
        record.observations.push(Observation::measured("p99_latency_ms", wall_s));
    }
    analyse(&mut comparison);
    comparison
}

/// The sample with a malicious string in every text that can come from outside.
pub(crate) fn hostile() -> Comparison {
    let hostile = "</pre><script>alert(1)</script>\" onload='x' \x1b[2J\u{202e}&lt;\u{fffd}";
    let mut comparison = comparison();
    comparison.invocation.command = vec!["sh".into(), "-c".into(), hostile.into()];
    comparison.invocation.client = Some(vec![hostile.into()]);
    comparison.invocation.prepare = Some(vec![hostile.into()]);
    comparison.invocation.pagelab.push(hostile.into());
    comparison.invocation.version = hostile.into();
    comparison.machine.cpu_model = hostile.into();
    comparison.machine.kernel = hostile.into();
    comparison.machine.kernel_command_line = hostile.into();
    comparison.machine.hypervisor = Some(hostile.into());
    comparison.machine.boot_id = hostile.into();
    comparison.machine.name = hostile.into();
    comparison.machine.arch = hostile.into();
    comparison.ended = Ended::Failed { message: hostile.into() };
    comparison.design.arms[3].label = hostile.into();
    comparison.admissions[0] = Admission::Admitted { mechanism: hostile.into() };
    comparison.admissions[UNSUPPORTED] =
        Admission::Unsupported(Unsupported { reason: hostile.into(), remedy: hostile.into() });
    if let Some(Advice::Tried(tried)) = &mut comparison.advice {
        tried.source_change = Some(hostile.into());
        tried.attempts[0].changes = vec![Change::setting(hostile, hostile)];
        tried.attempts[1].outcome = Outcome::Failed { how: hostile.into() };
    }
    comparison.design.metrics[0].name = hostile.into();
    comparison.design.primary = hostile.into();
    for record in &mut comparison.trials {
        record.observations[0].metric = hostile.into();
        record.verdict.answered.push(AnsweredCall { call: hostile.into(), times: 2 });
        record.verdict.causes.push(CauseShare { cause: Cause::SizeDisabled { path: hostile.into() }, bytes: None });
        for state in [&mut record.state_before, &mut record.state_after] {
            Arc::make_mut(&mut state.settings).insert(hostile.into(), hostile.into());
            state.direct_map_bytes.insert(hostile.into(), 1);
        }
        if let Some(change) = record.rejected.first_mut() {
            change.path = hostile.into();
            change.after = Some(hostile.into());
        }
        if record.trial.arm == 4 {
            record.answer.stdout_sha256 = Some(hostile.into());
        }
    }
    analyse(&mut comparison);
    comparison
}
