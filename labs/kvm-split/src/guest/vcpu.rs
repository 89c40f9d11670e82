//! Timed passes of vCPUs over the guest's memory.

use std::io;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use kvm_ioctls::{VcpuExit, VcpuFd};

use super::program::Pass;
use super::{KvmError, RandomWrites, calls, processor};

/// The access of a pass to every page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the first word of the page.
    Read,
    /// Writes this value to the first word of the page.
    Write(u64),
    /// Draws a number for the page; depending on it, writes the value or reads.
    Drawn(u64, RandomWrites),
}

/// The time from the first start to the last end of concurrent work.
fn span(times: &[(Instant, Instant)]) -> Duration {
    let begin = times.iter().map(|(begin, _)| *begin).min();
    let end = times.iter().map(|(_, end)| *end).max();
    begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin)
}

/// Runs each vCPU through its pass, all at the same time, each on a thread of its own. The returned time is from the first
/// start to the last end; threads and registers are prepared before it.
pub fn run(vcpus: &mut [VcpuFd], passes: &[Pass]) -> Result<Duration, KvmError> {
    let ready = |vcpu: &mut VcpuFd, pass: &Pass| {
        settle(vcpu)?;
        vcpu.set_kvm_immediate_exit(0);
        processor::set(vcpu, pass)
    };
    at_once(vcpus, passes, thread, ready, |index, vcpu, pass| until_doorbell(index, vcpu, pass.doorbell))
}

/// Makes KVM map the memory that each pass would touch (KVM_PRE_FAULT_MEMORY), all at the same time.
pub fn pre_fault(vcpus: &mut [VcpuFd], passes: &[Pass]) -> Result<Duration, KvmError> {
    let work = |_: usize, vcpu: &mut VcpuFd, pass: &Pass| {
        let done = calls::pre_fault(vcpu, pass.first, pass.end - pass.first);
        done.map_err(|error| KvmError::refused("KVM_PRE_FAULT_MEMORY", error))
    };
    at_once(vcpus, passes, thread, |_, _| Ok(()), work)
}

fn thread(vcpu: usize) -> Builder {
    Builder::new().name(format!("vcpu {vcpu}"))
}

/// Prepares all vCPUs, then runs and times the work on all of them at once. No vCPU begins unless all have a thread.
fn at_once<Vcpu: Send>(
    vcpus: &mut [Vcpu],
    passes: &[Pass],
    thread: impl Fn(usize) -> Builder,
    ready: impl Fn(&mut Vcpu, &Pass) -> Result<(), KvmError> + Sync,
    work: impl Fn(usize, &mut Vcpu, &Pass) -> Result<(), KvmError> + Sync,
) -> Result<Duration, KvmError> {
    let start = Barrier::new(vcpus.len());
    let one = |index: usize, vcpu: &mut Vcpu, pass: &Pass| {
        let is_ready = ready(vcpu, pass);
        // A vCPU that is not ready enters the barrier too, because the others wait there.
        start.wait();
        is_ready?;
        let begin = Instant::now();
        work(index, vcpu, pass)?;
        Ok((begin, Instant::now()))
    };
    let times: Result<Vec<(Instant, Instant)>, KvmError> = std::thread::scope(|scope| {
        let spawn = |(index, (vcpu, pass))| {
            let (go, may_start) = channel::<()>();
            let one = &one;
            let body = move || may_start.recv().ok().map(|()| one(index, vcpu, pass));
            let spawned = thread(index).spawn_scoped(scope, body);
            let refused = |error| KvmError::refused(format!("the thread of vCPU {index}"), error);
            spawned.map(|thread| (go, thread)).map_err(refused)
        };
        // If a thread cannot be created, the waiting threads see their channel closed, and end.
        let threads = vcpus.iter_mut().zip(passes).enumerate().map(spawn).collect::<Result<Vec<_>, KvmError>>()?;
        threads.iter().for_each(|(go, _)| go.send(()).expect("the thread waits for it"));
        let joined = threads.into_iter().map(|(_, thread)| thread.join().expect("a vCPU's thread does not panic"));
        joined.map(|times| times.expect("every thread was started")).collect()
    });
    times.map(|times| span(&times))
}

/// Lets KVM finish the store to the doorbell that ended the last pass; until then registers must not be set.
fn settle(vcpu: &mut VcpuFd) -> Result<(), KvmError> {
    vcpu.set_kvm_immediate_exit(1);
    match vcpu.run() {
        Err(error) if error.errno() == libc::EINTR => Ok(()),
        Err(error) => Err(KvmError::refused("KVM_RUN", io::Error::from_raw_os_error(error.errno()))),
        // An exit that was still pending, with which the next run would have begun.
        Ok(_) => Ok(()),
    }
}

fn until_doorbell(index: usize, vcpu: &mut VcpuFd, doorbell: u64) -> Result<(), KvmError> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::MmioWrite(address, _)) if address == doorbell => return Ok(()),
            Ok(VcpuExit::Intr) => {}
            Ok(exit) => return Err(KvmError::Guest { vcpu: index, exit: format!("{exit:?}") }),
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {}
            Err(error) => {
                let source = io::Error::from_raw_os_error(error.errno());
                return Err(KvmError::refused(format!("KVM_RUN of vCPU {index}"), source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reaches_from_the_first_begin_to_the_last_end() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        assert_eq!(span(&[(at(2), at(5)), (at(1), at(3))]), Duration::from_millis(4));
        assert_eq!(span(&[]), Duration::ZERO);
    }

    #[test]
    fn a_thread_that_cannot_be_created_is_an_error_before_anything_runs() {
        let pass = Pass { entry: 0, first: 0, end: 0, stride: 0, value: 0, doorbell: 0, state: 0, write_threshold: 0 };
        let mut vcpus = [0; 3];
        let mut pass_over = |stack_bytes: [usize; 3]| {
            let thread = |index: usize| Builder::new().stack_size(stack_bytes[index]);
            let work = |index, vcpu: &mut usize, _: &Pass| {
                *vcpu += index + 1;
                Ok(())
            };
            at_once(&mut vcpus, &[pass; 3], thread, |_, _| Ok(()), work).map(|_| vcpus)
        };
        let refused = pass_over([1 << 16, 1 << 16, 1 << 50]).unwrap_err().to_string();
        assert!(refused.contains("the thread of vCPU 2: ") && refused.contains("; "), "{refused}");
        assert_eq!(pass_over([1 << 16; 3]).unwrap(), [1, 2, 3], "the first time none of them ran");
    }
}
