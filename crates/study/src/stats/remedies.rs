//! Descriptions of warnings, and their remedies.

use crate::result::Warning;
use crate::trial::Arm;
use policy::size::format_bytes;

impl Warning {
    /// The warning as a clause without a full stop; `arms` are those of the design.
    pub fn describe(&self, arms: &[Arm]) -> String {
        let label = |arm: &usize| arms.get(*arm).map_or("?", |arm| arm.label.as_str());
        match self {
            Warning::Drift { ratio } => {
                format!("the baseline drifted by {} from the first block to the last", percent(ratio - 1.0))
            }
            Warning::Bimodal { arm, low, high } => format!(
                "the samples of {} fall into two groups, around {} and {} ({} apart)",
                label(arm),
                figure(*low),
                figure(*high),
                percent(high / low - 1.0)
            ),
            Warning::Outliers { arm, count, of } => {
                let verb = if *count == 1 { "is" } else { "are" };
                format!("{count} of the {of} samples of {} {verb} far from the rest (they are kept)", label(arm))
            }
            Warning::BaselineNotHeld => {
                "the baseline's policy was not shown to be in force, so the changes may be relative to something else than its label says"
                    .to_string()
            }
            Warning::AaDiffers { arm } => {
                format!("{} differs from the baseline although its policy is the same", label(arm))
            }
            Warning::Rejected { count, path } => {
                let trials = if *count == 1 { "trial was" } else { "trials were" };
                format!("{count} {trials} rejected and repeated because a setting changed meanwhile: {path}")
            }
            Warning::TracerCost { arm, ratio } => format!(
                "the tracer's stops change the primary metric of {} by {}",
                label(arm),
                percent(ratio - 1.0)
            ),
            Warning::TracerLoad { arm, ratio } => {
                format!(
                    "under {} tasks were stopped by the tracer, also to inspect them, for a total of {:.1} % of the wall time",
                    label(arm),
                    ratio * 100.0
                )
            }
            Warning::InspectionInWallTime { arm, ratio } => {
                format!(
                    "under {} the wall time includes {:.1} % spent on inspecting memory that was about to be given back (--prove-all)",
                    label(arm),
                    ratio * 100.0
                )
            }
            Warning::DirectMapDemoted { leaf, ratio } => {
                let share = match ratio {
                    Some(ratio) => format!("{:.1} % of it is in leaves of at most that size", ratio * 100.0),
                    None => "the share of such leaves is not known".to_string(),
                };
                format!("pagelab split part of the kernel's direct map into leaves of {leaf} in this boot (direct-map demote): {share}")
            }
            Warning::FreeMemoryReported { block, .. } => format!(
                "free page reporting is on (blocks of {block}): the first touch of a large page can also fault in the hypervisor"
            ),
            Warning::FirstProcessEnds { ratio, cpu_decides } => {
                let decides = if *cpu_decides { ", so CPU time decides" } else { "" };
                format!(
                    "the command's first process ends while others keep running (they use {:.0} % of the CPU time): the wall time does \
                     not cover the whole program{decides}",
                    ratio * 100.0
                )
            }
            Warning::FixedTime { wall_s, metric } => format!(
                "all runs took nearly the same time ({wall_s:.1} s), but {metric} differs: if the command runs for a fixed time, its wall \
                 time says nothing about {metric}"
            ),
            Warning::SharedMemory { bytes, .. } => format!(
                "{} of the memory is shared: its page size is set by the program (PostgreSQL: huge_pages) or by shmem_enabled, and no \
                 policy chooses it; the verdicts cover only the other memory",
                format_bytes(*bytes)
            ),
            Warning::ShortRuns { wall_s } => {
                format!("the runs take only {:.1} ms, so starting the process weighs heavily", wall_s * 1e3)
            }
        }
    }

    /// Whether the warning changes how the result must be read. Other warnings only show how to improve the measurement; the
    /// changes and their intervals remain valid.
    pub fn affects_interpretation(&self) -> bool {
        match self {
            Warning::BaselineNotHeld
            | Warning::AaDiffers { .. }
            | Warning::TracerLoad { .. }
            | Warning::InspectionInWallTime { .. }
            | Warning::DirectMapDemoted { .. }
            | Warning::FirstProcessEnds { .. }
            | Warning::FixedTime { .. }
            | Warning::SharedMemory { .. }
            | Warning::ShortRuns { .. } => true,
            Warning::Drift { .. }
            | Warning::Bimodal { .. }
            | Warning::Outliers { .. }
            | Warning::Rejected { .. }
            | Warning::TracerCost { .. }
            | Warning::FreeMemoryReported { .. } => false,
        }
    }

    /// What can be done about the warning, without a full stop.
    pub fn remedy(&self) -> String {
        let remedy = match self {
            Warning::Drift { .. } => {
                "changes are measured within blocks and remain valid; absolute figures depend on when they were measured. Let the \
                 machine warm up, fix its clock (cpupower frequency-set -g performance), and stop other programs"
            }
            Warning::Bimodal { .. } => {
                "look at the samples by block: something switches between two states; usual causes are placement on NUMA \
                 nodes (numactl --cpunodebind=0 --membind=0), a processor shared with others (taskset), frequency boost, \
                 and large pages that are granted only at times, or that khugepaged makes in some of the runs \
                 (--khugepaged off)"
            }
            Warning::Outliers { .. } => {
                "the estimate tolerates some; if there are many, look for periodic jobs (cron, timers, khugepaged) and for \
                 other guests of the host"
            }
            Warning::BaselineNotHeld => {
                "see the causes in the baseline's verdict, or choose `default` as the baseline, which asks for nothing"
            }
            Warning::AaDiffers { .. } => {
                "this happens by chance in a few of a hundred comparisons; if it happens again, the other changes of this \
                 size are not to be trusted either"
            }
            Warning::Rejected { .. } => {
                "find what writes the setting (a tuning daemon such as tuned, another user) and stop it"
            }
            Warning::TracerCost { .. } => {
                "--full shows it in the lines `tracing`; a change that the stops could explain is not claimed; a longer run of the \
                 program after its memory is mapped makes it smaller"
            }
            Warning::TracerLoad { .. } => {
                "the change contains that share as a cost that a permanent setting would not have; a longer run of the \
                 program after its memory is mapped makes it smaller"
            }
            Warning::InspectionInWallTime { .. } => {
                "take the verdict from this comparison, and times from one without --prove-all"
            }
            Warning::DirectMapDemoted { .. } => {
                "the figures are not those of the machine as it boots: kernel work is slower and 2M pages are scarce; \
                 reboot to undo it"
            }
            Warning::FreeMemoryReported { explained_by: Some(_), .. } => {
                "--prepare 'pagelab workload page-touch --bytes SIZE' makes the hypervisor provide the memory again before each trial \
                 (SIZE: somewhat more than the program's memory), and a program in production gets no such preparation"
            }
            Warning::FreeMemoryReported { explained_by: None, .. } => {
                "make the hypervisor provide the memory again before each trial (--prepare 'pagelab workload page-touch --bytes \
                 SIZE', somewhat more than the program's memory), or switch free page reporting off (QEMU: free-page-reporting=off); see Limits, Virtual machines, in the book"
            }
            Warning::FirstProcessEnds { .. } => {
                "run it in the foreground (for example, redis-server --daemonize no), or as a server with a client that drives it \
                 (--server, --ready)"
            }
            Warning::FixedTime { metric, .. } => return format!("then compare what it prints: --primary {metric}"),
            Warning::SharedMemory { .. } => {
                "for PostgreSQL, make a pool as root (sysctl vm.nr_hugepages=N; postgres -C shared_memory_size_in_huge_pages prints N), and \
                 compare its own setting: -p default --variant 'off={} -c huge_pages=off' --variant 'on={} -c huge_pages=on'. Keep \
                 huge_pages=on: with the default, try, PostgreSQL silently takes no page of a pool that is too small"
            }
            Warning::ShortRuns { .. } => "give the command more work, so that a run takes a tenth of a second or more",
        };
        remedy.to_string()
    }
}

/// A relative change in percent, with its sign.
fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// A figure with at least four significant digits.
fn figure(value: f64) -> String {
    let digits = 3.0 - value.abs().log10().floor().clamp(-12.0, 3.0);
    format!("{value:.*}", digits as usize)
}
