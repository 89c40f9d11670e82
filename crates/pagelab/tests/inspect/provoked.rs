//! A program whose memory has small pages for a single cause ([`Provoked`]), and the output of `inspect` for it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::common::{Bench, Running, Runs};

/// The program, which holds the memory until this is dropped.
pub struct Provoked {
    pub bench: Bench,
    pub running: Running,
    pub address: u64,
}

/// The exit code of the program if the kernel refused a call, which is not a failure of the test.
const REFUSED: i32 = 77;

impl Provoked {
    /// Starts the program for this cause. If this kernel does not allow it, reports a skip and returns `None`.
    pub fn start(cause: &str) -> Option<Provoked> {
        Provoked::with(cause, None)
    }

    /// Like [`Provoked::start`], but for a cause that needs a file.
    pub fn with(cause: &str, file: Option<&Path>) -> Option<Provoked> {
        Provoked::mended(cause, file, &[])
    }

    /// Like [`Provoked::with`], but with these environment variables. `MEND` contains the changes of the program's source
    /// that a remedy demands.
    pub fn mended(cause: &str, file: Option<&Path>, environment: &[(String, String)]) -> Option<Provoked> {
        let mut command = Command::new(compiled());
        command.arg(cause).args(file).envs(environment.iter().cloned());
        Provoked::by(Bench::new(), command, cause)
    }

    /// Like [`Provoked::with`], but in a mount namespace of its own, with a file of this size on a tmpfs that is mounted
    /// there.
    pub fn on_tmpfs(cause: &str, mount_point: &Path, options: &str, bytes: u64) -> Option<Provoked> {
        let script =
            "mount -t tmpfs -o \"$3\" tmpfs \"$1\" && truncate -s \"$2\" \"$1/file\" && exec \"$4\" \"$5\" \"$1/file\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(mount_point).arg(bytes.to_string()).arg(options);
        command.arg(compiled()).arg(cause);
        Provoked::by(Bench::new(), command, cause)
    }

    fn by(bench: Bench, mut command: Command, cause: &str) -> Option<Provoked> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = command.begin();
        let mut line = String::new();
        BufReader::new(running.stdout()).read_line(&mut line).unwrap();
        match line.trim().parse() {
            Ok(address) => Some(Provoked { bench, running, address }),
            Err(_) => {
                assert_eq!(running.wait().code(), Some(REFUSED));
                testing::skip(format!("a kernel that can provoke {cause}"));
                None
            }
        }
    }

    pub fn pid(&self) -> String {
        self.running.id().to_string()
    }

    /// The process in the output of `inspect`.
    pub fn inspected(&self) -> Value {
        let ran = self.bench.pagelab(&["inspect", &self.pid(), "--json"]).ran();
        assert_eq!(ran.code, Some(0), "{ran}");
        let process = ran.json()["processes"][0].take();
        sums_agree(&process);
        process
    }

    /// The provoked memory in the output of `inspect`.
    pub fn region(&self) -> Value {
        region_at(&self.inspected(), self.address)
    }
}

/// Checks that the causes of all regions add up to the memory that could be larger.
pub fn sums_agree(process: &Value) {
    let mut all = 0;
    for region in process["regions"].as_array().unwrap() {
        let causes = region["causes"].as_array().unwrap();
        let winnable = causes.iter().filter(|one| one["winnable"] == true);
        let sum: u64 = winnable.map(|one| one["bytes"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), region["could_be_larger_bytes"].as_u64(), "{region:#}");
        all += sum;
    }
    assert_eq!(Some(all), process["could_be_larger_bytes"].as_u64(), "{process:#}");
}

/// The path of the program, which is compiled once for each test program.
pub fn compiled() -> &'static Path {
    static COMPILED: OnceLock<(Bench, PathBuf)> = OnceLock::new();
    let (_, compiled) = COMPILED.get_or_init(|| {
        let bench = Bench::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/provoke.c");
        let compiled = bench.path("provoke");
        let status =
            Command::new("gcc").args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&compiled).status().expect("gcc");
        assert!(status.success());
        (bench, compiled)
    });
    compiled
}

/// The region that contains an address.
pub fn region_at(process: &Value, address: u64) -> Value {
    let regions = process["regions"].as_array().unwrap();
    let holds =
        |region: &&Value| (region["start"].as_u64().unwrap()..region["end"].as_u64().unwrap()).contains(&address);
    regions.iter().find(holds).unwrap_or_else(|| panic!("nothing at {address:#x} in {process:#}")).clone()
}

/// The causes of a region. Each has its code, its bytes, the codes of causes that cannot be distinguished from it, and its
/// evidence as one text.
pub fn causes(region: &Value) -> Vec<(String, u64, Vec<String>, String)> {
    let code = |cause: &Value| cause["code"].as_str().unwrap().to_string();
    let causes = region["causes"].as_array().unwrap().iter().map(|one| {
        let or = one["or"].as_array().unwrap().iter().map(code).collect();
        let evidence =
            one["evidence"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>();
        (code(&one["cause"]), one["bytes"].as_u64().unwrap(), or, evidence.join("; "))
    });
    causes.collect()
}
