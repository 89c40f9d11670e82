//! Swap of a guest: a compressed disk in its memory (zram).
#![expect(clippy::disallowed_methods, reason = "a guest has no other user")]

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The modules that swap needs, for [`crate::existing_modules`]. Kernels before 6.12 compress by modules that nothing in a guest
/// loads on demand.
pub const MODULES: [&str; 3] = ["lzo", "lzo_rle", "zram"];
/// The device, and the file that decides its size.
const DEVICE: &str = "/dev/zram0";
const SIZE: &str = "/sys/block/zram0/disksize";
/// The directories in which distributions keep the programs.
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Why a guest has no swap.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    #[error("this kernel has no zram (CONFIG_ZRAM=y or =m, with the module next to the image)")]
    NoDevice,
    #[error("{SIZE}: {0}")]
    Size(#[source] io::Error),
    #[error("{program} cannot be run: {error}")]
    Program {
        program: &'static str,
        #[source]
        error: io::Error,
    },
    #[error("{program} ended with {status}: {message}")]
    Status { program: &'static str, status: std::process::ExitStatus, message: String },
}

/// Turns on swap of `bytes` bytes. Pages in it take memory of the guest, compressed.
///
/// # Errors
/// The kernel or the guest's files lack what it needs.
pub fn swap_on(bytes: u64) -> Result<(), SwapError> {
    if !Path::new(SIZE).exists() {
        return Err(SwapError::NoDevice);
    }
    fs::write(SIZE, bytes.to_string()).map_err(SwapError::Size)?;
    ["mkswap", "swapon"].into_iter().try_for_each(run)
}

fn run(program: &'static str) -> Result<(), SwapError> {
    let mut command = Command::new(program);
    command.arg(DEVICE).env("PATH", PATH).stdin(Stdio::null());
    let output = command.output().map_err(|error| SwapError::Program { program, error })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(SwapError::Status { program, status: output.status, message })
}
