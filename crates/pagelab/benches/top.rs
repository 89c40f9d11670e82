//! The cost of `pagelab top`: its share of one processor on a terminal, on a host with additional idle processes.
//!
//! ```text
//! cargo bench -p pagelab --bench top -- [--processes N] [--seconds S]
//! ```
//! The default is 200 processes of 20 MiB each (python3), for 60 seconds. `top` also inspects the other processes of the host. The
//! output is the CPU time of `top` from its start to its end, divided by that time.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tracer::child::ChildrenUsage;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |option: &str, usual: u32| -> Result<u32, Box<dyn Error>> {
        match words.iter().position(|word| word == option) {
            Some(at) => Ok(words.get(at + 1).ok_or("an option needs a number")?.parse()?),
            None => Ok(usual),
        }
    };
    share(Path::new(env!("CARGO_BIN_EXE_pagelab")), number("--processes", 200)?, number("--seconds", 60)?)?;
    Ok(())
}

/// Idle processes with memory, until they are dropped.
struct Idle(Vec<Child>);

impl Drop for Idle {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The share of one processor that `top` uses with this number of additional processes.
pub fn share(pagelab: &Path, processes: u32, seconds: u32) -> Result<f64, Box<dyn Error>> {
    let idle = || {
        let code = "import time; memory = bytearray(b'x') * (12 << 20); print(flush=True); time.sleep(86400)";
        Command::new("python3").args(["-c", code]).stdin(Stdio::null()).stdout(Stdio::null()).spawn()
    };
    let idle = Idle((0..processes).map(|_| idle()).collect::<Result<_, _>>()?);
    // They have started once they sleep.
    std::thread::sleep(Duration::from_secs(2 + u64::from(processes / 20)));
    let before = ChildrenUsage::now()?;
    let began = Instant::now();
    let line = format!("stty rows 40 cols 120; exec timeout -s TERM {seconds} {} top", pagelab.display());
    Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?
        .wait_with_output()?;
    let used = ChildrenUsage::now()?.since(&before);
    let share = (used.user_s + used.system_s) / began.elapsed().as_secs_f64();
    println!("top: {:.2} % of a processor beside {processes} processes, over {seconds} s", share * 100.0);
    drop(idle);
    Ok(share)
}
