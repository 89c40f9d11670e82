//! [`observe_contention`]: how much of the processors other work uses.

use std::time::{Duration, Instant};

use host::{Host, HostError, ProcessorTimes};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use study::comparison::Contention;

/// How long the processors are observed. The kernel counts in ticks of 10 ms.
const WINDOW: Duration = Duration::from_millis(200);
/// The interval at which runnable tasks are counted.
const INTERVAL: Duration = Duration::from_millis(10);
/// Ticks per second where sysconf(3) does not report them (USER_HZ, include/asm-generic/param.h).
const USUAL_TICKS_PER_S: f64 = 100.0;

/// Observes how much of `cpus` processors other work uses. That takes 0.2 s, in which the calling thread keeps one of them busy:
/// a hypervisor steals only from processors that have work.
pub fn observe_contention(host: &Host, cpus: u32) -> Result<Contention, HostError> {
    let before = host.processor_times()?;
    let (begun, cpu_s) = (Instant::now(), thread_cpu_s());
    let mut runnable = Vec::new();
    while begun.elapsed() < WINDOW {
        let next = begun.elapsed() + INTERVAL;
        while begun.elapsed() < next {
            std::hint::spin_loop();
        }
        runnable.push(host.processor_times()?.runnable_tasks);
    }
    let (window_s, own_cpu_s) = (begun.elapsed().as_secs_f64(), thread_cpu_s() - cpu_s);
    Ok(between(
        before,
        host.processor_times()?,
        cpus,
        OwnObservation { window_s, cpu_s: own_cpu_s, runnable: &runnable },
    ))
}

/// What the observing thread read and used.
struct OwnObservation<'a> {
    window_s: f64,
    cpu_s: f64,
    /// Numbers of runnable tasks, this thread included.
    runnable: &'a [u64],
}

fn between(before: ProcessorTimes, after: ProcessorTimes, cpus: u32, own: OwnObservation<'_>) -> Contention {
    let busy_ticks = after.busy_ticks.saturating_sub(before.busy_ticks) as f64;
    // One tick may have been nearly complete before the window.
    let stolen_ticks = after.stolen_ticks.saturating_sub(before.stolen_ticks).saturating_sub(1) as f64;
    let ticks = busy_ticks + stolen_ticks;
    let others: u64 = own.runnable.iter().map(|tasks| tasks.saturating_sub(1)).sum();
    let busy_cpus = (busy_ticks / ticks_per_s() - own.cpu_s) / own.window_s;
    Contention {
        cpus,
        window_s: own.window_s,
        share_ratio: (own.cpu_s / own.window_s).min(1.0),
        busy_cpus: busy_cpus.clamp(0.0, f64::from(cpus)),
        runnable_tasks: others as f64 / own.runnable.len().max(1) as f64,
        steal_ratio: if ticks > 0.0 { stolen_ticks / ticks } else { 0.0 },
        decides: false,
    }
}

fn ticks_per_s() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(USUAL_TICKS_PER_S, |ticks| ticks as f64)
}

/// CPU time of this thread in seconds. The clock exists on every Linux.
fn thread_cpu_s() -> f64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0.0, |time| Duration::from(time).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: ProcessorTimes =
        ProcessorTimes { busy_ticks: 1000, idle_ticks: 500, stolen_ticks: 40, runnable_tasks: 1 };

    fn seen(busy_ticks: u64, stolen_ticks: u64, cpu_s: f64, runnable: &[u64]) -> Contention {
        let after = ProcessorTimes {
            busy_ticks: BEFORE.busy_ticks + busy_ticks,
            stolen_ticks: BEFORE.stolen_ticks + stolen_ticks,
            ..BEFORE
        };
        between(BEFORE, after, 2, OwnObservation { window_s: 0.2, cpu_s, runnable })
    }

    #[test]
    fn work_of_others_is_all_but_the_own() {
        let shared = seen(40, 0, 0.1, &[5, 6, 5, 6]);
        assert!((shared.busy_cpus - 1.5).abs() < 1e-9 && (shared.share_ratio - 0.5).abs() < 1e-9, "{shared:?}");
        assert_eq!((shared.runnable_tasks, shared.is_high()), (4.5, true));
        let quiet = seen(20, 1, 0.199, &[1, 1]);
        assert!(quiet.busy_cpus < 0.01 && quiet.runnable_tasks == 0.0 && !quiet.is_high(), "{quiet:?}");
    }

    #[test]
    fn a_single_stolen_tick_proves_nothing() {
        assert_eq!(seen(20, 1, 0.199, &[1]).steal_ratio, 0.0);
        let stolen = seen(18, 3, 0.199, &[1]);
        assert!((stolen.steal_ratio - 0.1).abs() < 1e-9 && stolen.is_high(), "{stolen:?}");
    }

    #[test]
    fn a_running_host_has_times() {
        let host = Host::open("/").unwrap();
        let seen = observe_contention(&host, host.machine().unwrap().cpus).unwrap();
        assert!(seen.share_ratio > 0.0 && seen.window_s >= 0.2 && !seen.decides, "{seen:?}");
    }
}
