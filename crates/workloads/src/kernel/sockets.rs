//! `unix-socket` and `tcp-loopback`: blocks are sent through a connection with one thread at each end, and each block is
//! answered.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use super::{Completed, KernelError, Load, join, refused, spawn};
use crate::random::mix;

/// Blocks in a second through Unix sockets.
pub const UNIX_PER_SECOND: u64 = 25_000;
/// Blocks in a second through TCP.
pub const TCP_PER_SECOND: u64 = 15_000;
const BLOCK_BYTES: usize = 16 << 10;

/// Sends `load.operations` blocks through a pair of Unix sockets.
pub fn unix(load: Load) -> Result<Completed, KernelError> {
    let (near, far) = UnixStream::pair().map_err(refused("socketpair"))?;
    exchange(load, near, far)
}

/// Sends `load.operations` blocks through a TCP connection over the loopback device.
pub fn tcp(load: Load) -> Result<Completed, KernelError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused("bind to the loopback device"))?;
    let address = listener.local_addr().map_err(refused("getsockname"))?;
    let near = TcpStream::connect(address).map_err(refused("connect over the loopback device"))?;
    let (far, _) = listener.accept().map_err(refused("accept"))?;
    for end in [&near, &far] {
        end.set_nodelay(true).map_err(refused("setsockopt(TCP_NODELAY)"))?;
    }
    exchange(load, near, far)
}

/// Sends blocks from `near`; `far` answers each with the sum of its words.
fn exchange<S: Read + Write + Send>(load: Load, near: S, mut far: S) -> Result<Completed, KernelError> {
    let Load { operations, seed } = load;
    let words = (BLOCK_BYTES / 8) as u64;
    let start = |block: u64| mix(seed ^ block);
    // The words of a block are consecutive numbers.
    let expected = (0..operations).fold(0u64, |sum, block| {
        sum.wrapping_add(start(block).wrapping_mul(words).wrapping_add(words * (words - 1) / 2))
    });
    Completed::of(operations, expected, || {
        thread::scope(|scope| {
            // Each end waits for the other, and is closed when its thread ends, even with an error.
            let mut near = near;
            let answering = spawn(scope, move || {
                let mut block = vec![0; BLOCK_BYTES];
                for _ in 0..operations {
                    far.read_exact(&mut block).map_err(refused("read from a socket"))?;
                    let (numbers, _) = block.as_chunks::<8>();
                    let sum = numbers.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
                    far.write_all(&sum.to_ne_bytes()).map_err(refused("write to a socket"))?;
                }
                Ok(())
            })?;
            let mut block = vec![0; BLOCK_BYTES];
            let mut total = 0u64;
            for number in 0..operations {
                let (numbers, _) = block.as_chunks_mut::<8>();
                for (word, value) in numbers.iter_mut().zip(0u64..) {
                    *word = start(number).wrapping_add(value).to_ne_bytes();
                }
                near.write_all(&block).map_err(refused("write to a socket"))?;
                let mut sum = [0; 8];
                near.read_exact(&mut sum).map_err(refused("read from a socket"))?;
                total = total.wrapping_add(u64::from_ne_bytes(sum));
            }
            join(answering.join())?;
            Ok(total)
        })
    })
}
