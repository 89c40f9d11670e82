//! The cost of `pagelab metrics`: processor time of a look at control groups full of processes. Needs root and gcc.
//!
//! ```text
//! cargo bench -p pagelab --bench metrics -- [--groups N] [--processes N] [--looks N]
//! ```
//! The default is 10 groups with 50 processes each, of 20 MiB in 100 mappings. `metrics` also looks at the other processes of the host.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BYTES: u64 = 20 << 20;
const MAPPINGS: u64 = 100;

/// A control group with processes, until it is dropped.
struct Group {
    directory: PathBuf,
    processes: Vec<Child>,
}

impl Group {
    fn new(number: u64, processes: u64, planted: &Path) -> Result<Group, Box<dyn Error>> {
        let name = format!("pagelab-bench-metrics-{}-{number}", std::process::id());
        let is_made = |place: &&str| fs::create_dir(Path::new(place).join(&name)).is_ok();
        let place = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].into_iter().find(is_made);
        let directory = Path::new(place.ok_or("expected control groups that root can make, found none")?).join(&name);
        let mut group = Group { directory, processes: Vec::new() };
        for _ in 0..processes {
            group.processes.push(group.plant(planted)?);
        }
        Ok(group)
    }

    fn plant(&self, planted: &Path) -> std::io::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.directory.join("cgroup.procs")).arg(planted);
        command.args([0, BYTES, 0, MAPPINGS, 0].map(|number| number.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir(&self.directory);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |option: &str, usual: u64| -> Result<u64, Box<dyn Error>> {
        match words.iter().position(|word| word == option) {
            Some(at) => Ok(words.get(at + 1).ok_or("an option needs a number")?.parse()?),
            None => Ok(usual),
        }
    };
    let (groups, processes) = (number("--groups", 10)?, number("--processes", 50)?);
    let planted = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/planted.c");
    if !Command::new("gcc").args(["-O1", "-o"]).arg(&planted).arg(source).status()?.success() {
        return Err("expected gcc to compile planted.c, and it failed".into());
    }
    let all: Vec<Group> = (1..=groups).map(|at| Group::new(at, processes, &planted)).collect::<Result<_, _>>()?;
    // They have touched their memory once they sleep.
    std::thread::sleep(Duration::from_secs(5 + groups * processes / 50));
    for option in [None, Some("--sizes")] {
        let mut costs_s = Vec::new();
        for _ in 0..number("--looks", 9)?.max(1) {
            costs_s.push(cost_s(option)?);
        }
        costs_s.sort_by(f64::total_cmp);
        let (least_s, median_s) = (costs_s[0], costs_s[costs_s.len() / 2]);
        println!(
            "metrics {}: {median_s:.2} s of processor time for a look (least {least_s:.2} s): once a minute {:.2} % of a processor",
            option.unwrap_or_default(),
            median_s / 60.0 * 100.0
        );
    }
    drop(all);
    Ok(())
}

/// Processor time of a look, as `metrics` reports it.
fn cost_s(option: Option<&str>) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(env!("CARGO_BIN_EXE_pagelab")).args(["metrics", "--json"]).args(option).output()?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    Ok(document["cost_s"].as_f64().ok_or("expected the cost of a look in the document, found none")?)
}
