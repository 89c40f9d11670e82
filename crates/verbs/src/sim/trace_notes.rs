//! Notes on what a trace lacks, which every kind of simulation prints.

use trace::{Filter, Header};

use crate::trace_file;

/// A note on the parts of the program's run that are not in the trace.
pub fn parts(header: &Header) -> Option<String> {
    let left_out = trace_file::parts(header);
    (!left_out.is_empty()).then(|| {
        format!(
            "the trace is a part of the run; not in it: {}. Rates are for the recorded instructions. The first accesses \
             find other contents in TLBs and memory than in the run",
            left_out.join("; ")
        )
    })
}

/// A note on the meaning of figures of a filtered trace.
pub fn filtered(header: &Header) -> Option<String> {
    matches!(header.filter, Filter::Lru { .. }).then(|| {
        "the trace was filtered: misses are exact for the geometries shown; accesses and runs are those that \
         remain"
            .to_owned()
    })
}

/// A note that fetches and data share TLBs although the trace stores their runs separately.
pub fn shared(what: &str) -> String {
    format!(
        "{what} fetches and data share, but the trace stores their runs separately: conflicts between them within a run are not \
         simulated. Direct-mapped TLBs get far too few misses; from 64 entries on it hardly matters. Record with --lossless for \
         exact counts"
    )
}

/// Notes on parts of a trace, and of the traces of forked processes, that could not be used.
pub fn incomplete(cut_off: bool, children: &[String], damage: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if cut_off {
        notes.push("the trace was cut off: its end is missing".to_owned());
    }
    notes.extend(children.iter().map(|name| format!("{name}, of a forked process, was cut off: its end is missing")));
    if !damage.is_empty() {
        notes.push(format!("{} damaged parts of the trace were skipped", damage.len()));
    }
    notes
}
