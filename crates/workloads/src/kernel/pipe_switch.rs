//! `pipe-switch`: two threads pass a byte back and forth, so each round is two context switches.

use std::io::{Read, Write, pipe};
use std::thread;

use super::{Completed, KernelError, Load, join, refused, spawn};

/// Operations in a second.
pub const PER_SECOND: u64 = 100_000;

/// Passes the byte back and forth `operations` times.
pub fn run(Load { operations, .. }: Load) -> Result<Completed, KernelError> {
    let (mut there_out, mut there_in) = pipe().map_err(refused("pipe"))?;
    let (mut back_out, mut back_in) = pipe().map_err(refused("pipe"))?;
    let expected = (0..operations).fold(0, |sum: u64, round| sum.wrapping_add(u64::from(answer(round as u8))));
    Completed::of(operations, expected, || {
        thread::scope(|scope| {
            // The thread ends when the other end of its pipe is closed.
            let echo = spawn(scope, move || {
                let mut byte = [0];
                while there_out.read(&mut byte).map_err(refused("read from a pipe"))? == 1 {
                    back_in.write_all(&[answer(byte[0])]).map_err(refused("write to a pipe"))?;
                }
                Ok(())
            })?;
            let mut sum = 0u64;
            for round in 0..operations {
                let mut byte = [round as u8];
                there_in.write_all(&byte).map_err(refused("write to a pipe"))?;
                back_out.read_exact(&mut byte).map_err(refused("read from a pipe"))?;
                sum = sum.wrapping_add(u64::from(byte[0]));
            }
            drop(there_in);
            join(echo.join())?;
            Ok(sum)
        })
    })
}

fn answer(byte: u8) -> u8 {
    byte.wrapping_mul(31).wrapping_add(7)
}
