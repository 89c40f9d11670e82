//! How the kernel was configured: /proc/config.gz, or the file that distributions keep in /boot.

use std::fs::{self, File};
use std::io::Read;

use flate2::read::GzDecoder;

use crate::host::Host;

/// A configuration is some hundred kilobytes; what is longer is none.
const GREATEST_BYTES: u64 = 8 << 20;

/// The kernel's configuration, where it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// The file that it was read from; absent where there is none.
    pub file: Option<String>,
    text: String,
}

impl KernelConfig {
    /// That of a host.
    pub fn read(host: &Host) -> KernelConfig {
        let packed = "/proc/config.gz".to_string();
        let release = host.value("/proc/sys/kernel/osrelease").unwrap_or_default();
        let plain = format!("/boot/config-{release}");
        match (unpacked(host, &packed), text(host, &plain)) {
            (Some(text), _) => KernelConfig { file: Some(packed), text },
            (None, Some(text)) => KernelConfig { file: Some(plain), text },
            (None, None) => KernelConfig { file: None, text: String::new() },
        }
    }

    /// The value of an option (`CONFIG_SECRETMEM`): `y`, `m`, a number; `n` where the file says that it is
    /// not set or does not know it; `None` where there is no file.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.file.as_ref()?;
        let value = |line| str::strip_prefix(line, option)?.strip_prefix('=');
        Some(self.text.lines().find_map(value).unwrap_or("n"))
    }
}

fn unpacked(host: &Host, path: &str) -> Option<String> {
    let file = File::open(host.root().join(path.trim_start_matches('/'))).ok()?;
    let mut text = String::new();
    GzDecoder::new(file).take(GREATEST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn text(host: &Host, path: &str) -> Option<String> {
    fs::read_to_string(host.root().join(path.trim_start_matches('/'))).ok()
}
