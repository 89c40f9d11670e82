//! The CPU time of a simulated program: as given by the user, measured when the trace was recorded, or assumed.

use model::machine;
use model::replay::Replayed;
use model::simulation::Outcome;
use results::answer::RunTime;
use serde_json::{Value, json};
use study::stats::median;
use trace::{Header, Native, NativeRun, NativeTime};

use super::host_machine;
use crate::record::processor;

/// More instructions per second than any processor executes: the best execute about six in each of 3.5e9 cycles. If a
/// native run seems faster, it was not the run that was recorded, because it may have found its work done.
const MAX_INSTRUCTIONS_PER_S: f64 = 2e10;

/// The CPU time of the traced part of the program. `given`: the time that the user gave.
pub fn of(given: Option<f64>, header: &Header, replayed: &Replayed, ran: &[&Outcome]) -> RunTime {
    match given {
        Some(cpu_s) => RunTime::Given { cpu_s },
        None => measured(header, replayed, ran).unwrap_or_else(|why| RunTime::Assumed { why }),
    }
}

/// The time that was measured natively, or why it is refused: the native run may not have done the work that is in the
/// trace.
fn measured(header: &Header, replayed: &Replayed, ran: &[&Outcome]) -> Result<RunTime, String> {
    let refuse = |why: &str| Err(why.to_owned());
    let native = match replayed.notes.as_ref().map(|notes| &notes.native) {
        Some(Native::Measured(native)) => native,
        Some(Native::Unknown(why)) => return Err(format!("the trace has no CPU time of a native run: {why}")),
        None => return refuse("the trace has no CPU time of a native run"),
    };
    let has_unrecorded = !replayed.unrecorded.is_empty() || ran.iter().any(|outcome| outcome.costs.forks != 0);
    if !replayed.is_complete() {
        return refuse("the trace is incomplete, but the native run was complete");
    }
    if replayed.accesses_only {
        return refuse("--accesses-only leaves out what the native run did");
    }
    if has_unrecorded {
        return refuse("some processes have no trace, but the native run contains their time");
    }
    let Some(recorded) = ran.iter().find(|outcome| outcome.is_whole()).and_then(|outcome| outcome.instructions) else {
        return refuse("the trace counts no instructions, and may hold only a part of the native run");
    };
    let executed = executed(header, replayed, recorded).ok_or("a part of unknown size of the program was recorded")?;
    scaled(native, recorded, executed)
}

/// How many instructions the traced processes executed, recorded or not; `None` if unknown.
fn executed(header: &Header, replayed: &Replayed, recorded: u64) -> Option<u64> {
    let is_part = header.window.is_some() || header.max_instructions.is_some();
    if is_part { replayed.executed_instructions } else { Some(recorded) }
}

/// The native time. If only a part was recorded, its user time, scaled to the recorded instructions.
fn scaled(native: &NativeTime, recorded: u64, executed: u64) -> Result<RunTime, String> {
    let is_part = recorded < executed;
    let recorded_ratio = recorded as f64 / executed.max(1) as f64;
    let cpu_s = median(&mut native.sorted_s(NativeRun::cpu_s)).unwrap_or_default();
    if executed as f64 > cpu_s * MAX_INSTRUCTIONS_PER_S {
        return Err(format!(
            "no processor executes the recorded program's {executed} instructions in the {cpu_s} s of the native runs: they may \
             have found their work done"
        ));
    }
    Ok(RunTime::Measured {
        runs_s: native.sorted_s(|run| if is_part { run.user_s * recorded_ratio } else { run.cpu_s() }),
        processor: native.processor.clone(),
        machines: described_by(&native.processor_id),
        recorded_ratio: is_part.then_some(recorded_ratio),
    })
}

/// The machines that describe a processor: built-in ones, and this host if it has that processor.
fn described_by(processor_id: &str) -> Vec<String> {
    let known = machine::BUILT_IN.iter().filter_map(|(name, _)| machine::built_in(name).ok());
    let own = (!processor_id.is_empty() && processor().0 == processor_id).then(|| host_machine::NAME.to_owned());
    known.filter(|machine| machine.is_cpu(processor_id)).map(|machine| machine.name).chain(own).collect()
}

/// The time as JSON.
pub fn document(time: &RunTime) -> Value {
    let (mut processor, mut recorded_ratio, mut why, mut runs_s) = (None, None, None, None);
    match time {
        RunTime::Given { .. } => {}
        RunTime::Measured { processor: name, recorded_ratio: ratio, runs_s: times, .. } => {
            (processor, recorded_ratio, runs_s) = (Some(name), *ratio, Some(times));
        }
        RunTime::Assumed { why: text } => why = Some(text),
    }
    json!({
        "cpu_s": time.cpu_s(),
        "runs_s": runs_s,
        "source": time.source(),
        "processor": processor,
        "recorded_ratio": recorded_ratio,
        "why": why,
    })
}

#[cfg(test)]
mod tests {
    use trace::{Notes, Window};

    use super::*;

    fn native(cpu_s: f64) -> NativeTime {
        let (processor_id, processor) = ("GenuineIntel/6/106".to_owned(), "a test".to_owned());
        let run = |user_s| NativeRun { user_s, system_s: 0.0 };
        NativeTime { runs: vec![run(cpu_s * 3.0), run(cpu_s), run(cpu_s / 2.0)], processor_id, processor }
    }

    fn noted(native: Native) -> Replayed {
        Replayed { notes: Some(Notes { native }), ..Replayed::default() }
    }

    fn why(header: &Header, replayed: &Replayed) -> String {
        measured(header, replayed, &[]).unwrap_err()
    }

    #[test]
    fn refuses_a_native_time_of_other_work() {
        let (header, measured) = (Header::of("a test"), noted(Native::Measured(native(1.0))));
        assert!(why(&header, &Replayed::default()).contains("no CPU time of a native run"));
        assert!(why(&header, &noted(Native::Unknown("a reason".to_owned()))).contains("native run: a reason"));
        assert!(why(&header, &Replayed { cut_off: true, ..measured.clone() }).contains("incomplete"));
        assert!(why(&header, &Replayed { accesses_only: true, ..measured.clone() }).contains("--accesses-only"));
        assert!(why(&header, &measured).contains("counts no instructions"));
        let window = Some(Window { skip_instructions: 5, record_instructions: None });
        let part = Header { window, ..header.clone() };
        assert_eq!((executed(&header, &measured, 7), executed(&part, &measured, 7)), (Some(7), None));
        let counted = Replayed { executed_instructions: Some(70), ..measured };
        assert_eq!(executed(&part, &counted, 7), Some(70));
    }

    #[test]
    fn the_time_of_a_part_is_scaled_and_an_impossible_one_refused() {
        let time = scaled(&native(2.0), 1_000_000_000, 4_000_000_000).unwrap();
        assert_eq!((time.cpu_s(), time.source()), (Some(0.5), "measured"));
        let RunTime::Measured { machines, recorded_ratio, .. } = time else { panic!() };
        // If the test runs on a host with this processor, `host` is in the list too.
        assert_eq!((machines[0].as_str(), recorded_ratio), ("ice-lake", Some(0.25)));
        let RunTime::Measured { recorded_ratio, .. } = scaled(&native(2.0), 9, 9).unwrap() else { panic!() };
        assert_eq!(recorded_ratio, None);
        assert!(scaled(&native(0.01), 1, 1_000_000_000).unwrap_err().contains("found their work done"));
        assert!(scaled(&native(0.0), 1, 1).is_err());
    }
}
