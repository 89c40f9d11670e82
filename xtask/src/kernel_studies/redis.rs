//! Records Redis for the model ([`record`]): the server of the guests' system runs on this machine, while the system's client
//! sends requests to it. Both run under QEMU's user-mode emulation.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::is_in_path;

/// The file name of the trace, by which the study refers to it.
pub const TRACE: &str = "redis.trace";
/// The port that the server listens on.
const PORT: &str = "17398";
/// The timeout for the server to start, and also for it to exit.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The arguments of the client in each benchmark, the same as in the study's workload.
const BENCHMARKS: [&[&str]; 2] = [
    &["-c", "4", "-n", "4000", "-r", "20000", "-d", "100", "-t", "set", "-q"],
    &["-c", "4", "-n", "4000", "-r", "20000", "-t", "get", "-q"],
];

/// Records the server and writes the trace into a directory.
pub fn record(programs: &Path, system: &Path, place: &Path) -> Result<(), String> {
    if !is_in_path("qemu-aarch64") {
        return Err("needs qemu-aarch64; apt-get install qemu-user".to_owned());
    }
    let mut record = Command::new(programs.join("pagelab"));
    record.current_dir(place).args(["record", "--no-native-run", "--output", TRACE, "--plugin"]);
    record.arg(programs.join("libpagelab_qemu_plugin.so")).arg("--sysroot").arg(system).arg("--");
    record.arg(system.join("usr/bin/redis-server")).args(["--port", PORT, "--save", "", "--appendonly", "no"]);
    // When the server starts, it tests for a copy-on-write bug of old arm64 kernels, and under QEMU's emulation that test
    // fails. The bug does not matter here, because nothing is saved.
    record.args(["--ignore-warnings", "ARM64-COW-BUG"]);
    let mut server = Server(record.stdout(Stdio::null()).spawn().map_err(|error| format!("pagelab record: {error}"))?);
    server.until("redis-server does not start", || client(system, "redis-cli", &["ping"]).is_ok())?;
    BENCHMARKS.iter().try_for_each(|words| client(system, "redis-benchmark", words))?;
    // The server shuts down without answering, so this error is ignored.
    let _ = client(system, "redis-cli", &["shutdown", "nosave"]);
    let status = server.0.wait().map_err(|error| format!("pagelab record: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("pagelab record of redis-server: {status}")) }
}

/// The running recorder, with the server in it. Both are killed when this is dropped.
struct Server(Child);

impl Server {
    fn until(&mut self, what: &str, condition: impl Fn() -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !condition() {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("{what}: {status}"));
            }
            if start.elapsed() > TIMEOUT {
                return Err(format!("{what} within {} s", TIMEOUT.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client program of the system on this machine.
fn client(system: &Path, program: &str, words: &[&str]) -> Result<(), String> {
    let mut client = Command::new("qemu-aarch64");
    client.arg("-L").arg(system).arg(system.join("usr/bin").join(program)).args(["-p", PORT]).args(words);
    let output = client.output().map_err(|error| format!("qemu-aarch64: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
