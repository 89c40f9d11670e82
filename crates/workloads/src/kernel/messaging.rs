//! `sched-messaging`: a group of senders and receivers in which each sender writes to each receiver, like one group of hackbench
//! with threads (`hackbench -g 1 -T`, `perf bench sched messaging -g 1 -t`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use super::{Completed, KernelError, Load, join, refused, spawn};
use crate::random::mix;

/// Messages from one sender to one receiver in a second.
pub const PER_SECOND: u64 = 600;
/// Number of senders and of receivers, and size of a message in bytes; both as in hackbench.
const GROUP: u64 = 20;
const MESSAGE_BYTES: usize = 100;

/// Sends `operations` messages from each sender to each receiver.
pub fn run(Load { operations: rounds, seed }: Load) -> Result<Completed, KernelError> {
    let pairs: Vec<(UnixStream, UnixStream)> =
        (0..GROUP).map(|_| UnixStream::pair()).collect::<Result<_, _>>().map_err(refused("socketpair"))?;
    let (outs, ins): (Vec<UnixStream>, Vec<UnixStream>) = pairs.into_iter().unzip();
    let words: Vec<u8> = (0..GROUP).map(|sender| mix(seed ^ sender) as u8).collect();
    let of_a_round: u64 = words.iter().map(|word| u64::from(*word) * MESSAGE_BYTES as u64).sum();
    let expected = of_a_round.wrapping_mul(rounds * GROUP);
    let messages = rounds * GROUP * GROUP;
    Completed::of(messages, expected, || {
        thread::scope(|scope| {
            // The receivers read until the other ends are closed: by the senders, or by this thread if it could not start them.
            let outs = Arc::new(outs);
            let receive = |socket| spawn(scope, || sum_until_end(socket));
            let receivers = ins.into_iter().map(receive).collect::<Result<Vec<_>, _>>()?;
            let send = |word: &u8| {
                let (outs, message) = (Arc::clone(&outs), [*word; MESSAGE_BYTES]);
                spawn(scope, move || send_all(&outs, &message, rounds))
            };
            let senders = words.iter().map(send).collect::<Result<Vec<_>, _>>()?;
            drop(outs);
            senders.into_iter().try_for_each(|sender| join(sender.join()))?;
            receivers.into_iter().try_fold(0u64, |sum, receiver| Ok(sum.wrapping_add(join(receiver.join())?)))
        })
    })
}

fn send_all(outs: &[UnixStream], message: &[u8], rounds: u64) -> Result<(), KernelError> {
    for _ in 0..rounds {
        for mut socket in outs {
            socket.write_all(message).map_err(refused("write to a socket"))?;
        }
    }
    Ok(())
}

/// The sum of all bytes until end of file.
fn sum_until_end(mut socket: UnixStream) -> Result<u64, KernelError> {
    let mut message = [0; MESSAGE_BYTES];
    let mut sum = 0u64;
    loop {
        match socket.read(&mut message).map_err(refused("read from a socket"))? {
            0 => return Ok(sum),
            bytes => sum = message[..bytes].iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte))),
        }
    }
}
