//! Calls that map memory and that a [`Witness`](crate::Witness) sees after they are made. [`watches`] says which of them stop.

use std::io;

use host::maps;
use policy::call::madv;

use super::call_context::Findings;
use super::filter::{Condition, Watch};
use super::paused::{PauseError, Paused};
use super::ptrace::{self, Tid};
use super::registers::is_error;
use super::stopped::call_of;
use super::witness::{Caller, MappingCall, ObservedMappings};

/// The most bytes of a stack that are read.
const MAX_STACK_BYTES: u64 = 64 << 10;

/// The calls that stop for a witness.
pub fn watches(observed: ObservedMappings) -> Vec<Watch> {
    let populating = [madv::POPULATE_READ, madv::POPULATE_WRITE];
    let populating = populating.map(|advice| Watch::new(libc::SYS_madvise, [Condition::Equals32(2, advice as u32)]));
    let moving_or_locking = [libc::SYS_mremap, libc::SYS_mlock, libc::SYS_mlock2].map(|number| Watch::new(number, []));
    let without_faults = populating.into_iter().chain(moving_or_locking);
    match observed {
        ObservedMappings::None => Vec::new(),
        ObservedMappings::WithoutFaults => {
            let flags = [libc::MAP_POPULATE, libc::MAP_LOCKED];
            let mapping = flags.map(|flag| Watch::new(libc::SYS_mmap, [Condition::Has(3, flag as u32)]));
            without_faults.chain(mapping).collect()
        }
        ObservedMappings::All => {
            let mapping = [libc::SYS_mmap, libc::SYS_brk].map(|number| Watch::new(number, []));
            // Generated code becomes executable.
            let executable = Watch::new(libc::SYS_mprotect, [Condition::Has(2, libc::PROT_EXEC as u32)]);
            without_faults.chain(mapping).chain([executable]).collect()
        }
    }
}

/// Lets the task make its call, reports it, and resumes the task.
pub fn report(
    findings: &mut Findings,
    mut paused: Paused,
    process: Tid,
    report: impl FnOnce(MappingCall),
) -> Result<(), PauseError> {
    let caller = caller(&paused);
    let result = paused.original_call()?;
    findings.record_request(&paused, result);
    if let Some(call) = call_of(paused.number(), paused.arguments()).filter(|_| !is_error(result)) {
        report(MappingCall { task: paused.tid(), process, call, result: result as u64, caller });
    }
    paused.finish(result)
}

fn caller(paused: &Paused) -> Caller {
    let caller = paused.caller();
    // Without its stack only the function that made the call is known.
    let stack_bytes = stack_bytes(paused.tid(), caller.stack).unwrap_or_default();
    Caller { stack_bytes, ..caller }
}

/// The memory from the stack pointer to the end of its mapping.
fn stack_bytes(tid: Tid, stack: u64) -> io::Result<Vec<u8>> {
    let Some(vma) = maps::at(tid, stack)? else { return Ok(Vec::new()) };
    let mut bytes = vec![0; (vma.end - stack).min(MAX_STACK_BYTES) as usize];
    ptrace::read_memory(tid, stack, &mut bytes)?;
    Ok(bytes)
}
