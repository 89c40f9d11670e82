//! A trace for tests of simulations ([`Traced`]).
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::common::{Bench, Ran, Runs};

/// A program in lackey's text format that writes 1024 pages twice.
pub fn lackey() -> String {
    let mut text = String::new();
    for step in 0..2048 {
        writeln!(text, "I  04001000,4\n S {:x},8", 0x1000_0000 + step % 1024 * 4096).unwrap();
    }
    text
}

/// The trace of that program in a bench.
pub struct Traced {
    pub bench: Bench,
    pub file: String,
}

impl Traced {
    pub fn new() -> Traced {
        let bench = Bench::new();
        let (text, file) = (bench.path("lackey"), bench.path("a.trace").display().to_string());
        fs::write(&text, lackey()).unwrap();
        let imported =
            bench.pagelab(&["trace", "import", "--from", "lackey", "-o", &file, &text.display().to_string()]).ran();
        assert_eq!(imported.code, Some(0), "{}", imported.stderr);
        Traced { bench, file }
    }

    pub fn sim(&self, arguments: &[&str]) -> Ran {
        self.bench.pagelab(&[&["sim", &self.file], arguments].concat()).ran()
    }

    pub fn sweep(&self, arguments: &[&str]) -> Ran {
        self.bench.pagelab(&[&["sim", "sweep", &self.file], arguments].concat()).ran()
    }

    /// Runs a simulation with a Linux file that contains these lines.
    pub fn under(&self, linux: &str, arguments: &[&str]) -> Ran {
        let file = self.bench.word("linux.toml");
        fs::write(&file, format!("schema = \"pagelab.linux/1\"\n{linux}\n")).unwrap();
        self.sim(&[&["--linux", &file], arguments].concat())
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.sim(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }
}
