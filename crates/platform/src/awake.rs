//! [`Awake`]: keeps processors awake while something is measured.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use host::IDLE_LATENCY;

/// A request to the kernel: while it is held, idle processors poll instead of sleeping.
///
/// It ends when its file is closed, however the process ends (PM QoS, the kernel's Documentation/power/pm_qos_interface.rst), so
/// nothing has to be restored.
#[derive(Debug)]
pub struct Awake {
    _request: File,
}

/// The kernel refused the request.
#[derive(Debug, thiserror::Error)]
#[error("--awake: expected to open {IDLE_LATENCY} for writing, found: {source}; {remedy}")]
pub struct AwakeError {
    source: io::Error,
    remedy: &'static str,
}

impl Awake {
    /// Requests wake-ups without delay. Needs root and a kernel with processor idling.
    #[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
    pub fn hold() -> Result<Awake, AwakeError> {
        let mut request = OpenOptions::new().write(true).open(IDLE_LATENCY).map_err(|source| AwakeError {
            remedy: match source.kind() {
                io::ErrorKind::PermissionDenied => "run pagelab as root, or leave --awake out",
                _ => "a kernel with CONFIG_CPU_IDLE has it; leave --awake out",
            },
            source,
        })?;
        // The limit in microseconds, as a binary number of 32 bits (kernel/power/qos.c, cpu_latency_qos_write).
        let written = request.write_all(&0i32.to_ne_bytes());
        written.map_err(|source| AwakeError { source, remedy: "leave --awake out" })?;
        Ok(Awake { _request: request })
    }
}
