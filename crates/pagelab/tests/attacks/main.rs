//! Tests that run the program on files that are almost valid. The program must end with a result or an error, in bounded time and
//! memory, and must not write content of the file to the terminal unescaped. `PAGELAB_TEST_TIMES=100` tries a hundred times as
//! many files.

#[path = "../common/mod.rs"]
mod common;

mod machines;
mod tables;
mod traces;

use std::fs;
use std::process::Command;

use common::{Bench, Ran, Runs, needs, program, wrap};

/// Limits of memory and time for a run, far above what any of these files needs. A run that does not end, or that takes all
/// memory, fails.
const LIMITS: [&str; 3] = ["--as=2147483648", "--cpu=60", "--core=0"];

/// Whether programs can be limited here.
fn can_attack() -> bool {
    needs(&[program("prlimit")])
}

/// A bench, with the name of the file that is changed.
struct Attack {
    bench: Bench,
    file: &'static str,
}

impl Attack {
    fn on(file: &'static str) -> Attack {
        Attack { bench: Bench::new(), file }
    }

    /// Runs the program on a file with this content. `what` describes the content in a failure message.
    fn with(&self, content: &[u8], what: &dyn std::fmt::Display, words: &[&str]) -> Ran {
        let file = self.bench.path(self.file);
        fs::write(&file, content).unwrap();
        let mut limited = Command::new("prlimit");
        limited.args(LIMITS);
        wrap(&mut limited, &self.bench.pagelab(words));
        let ran = limited.ran();
        let kept = || {
            let kept = std::env::temp_dir().join(format!("pagelab-attack-{}", self.file));
            fs::copy(&file, &kept).unwrap();
            format!("{what}: {words:?} on {}: {ran}", kept.display())
        };
        assert!(matches!(ran.code, Some(0..=4)), "{}", kept());
        assert!(!ran.stderr.contains("panicked"), "{}", kept());
        let shown = ran.stdout.chars().chain(ran.stderr.chars());
        assert!(shown.clone().all(|c| !c.is_control() || c == '\n' || c == '\t'), "it moves the cursor: {}", kept());
        ran
    }
}
