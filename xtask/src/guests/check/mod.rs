//! The checks: what runs in the guest is a script of `checks`, what is right is said here, and shares no code with pagelab.

mod contiguous;
mod kvm;
mod lease;
mod mapped;
mod policies;
mod torture;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::transcript::Part;

/// A check.
#[derive(Debug)]
pub struct Check {
    /// Its name, and its script's.
    pub name: &'static str,
    /// What it finds out.
    pub title: &'static str,
    /// What runs in the guest.
    pub script: &'static str,
    /// What comes of it: a few words of what was seen, or what is wrong.
    judge: fn(&Part) -> Result<String, String>,
}

/// All of them, in the order in which they run.
pub const CHECKS: [Check; 6] = [
    Check {
        name: "policies",
        title: "`doctor` and `list policies`: what is offered is what the kernel has",
        script: include_str!("../checks/policies.sh"),
        judge: policies::judge,
    },
    Check {
        name: "mapped",
        title: "`exec` and `compare`: verdicts, and bytes by folio and leaf beside smaps and kpageflags",
        script: include_str!("../checks/mapped.sh"),
        judge: mapped::judge,
    },
    Check {
        name: "lease",
        title: "settings come back when their borrower is killed",
        script: include_str!("../checks/lease.sh"),
        judge: lease::judge,
    },
    Check {
        name: "contiguous",
        title: "folios of 64K are mapped by entries that say so: page tables read from outside, and `table decode`",
        script: include_str!("../checks/contiguous.sh"),
        judge: contiguous::judge,
    },
    Check {
        name: "kvm",
        title: "`kvm-dirty-log` on the guest's own KVM, with and without eager splitting",
        script: include_str!("../checks/kvm.sh"),
        judge: kvm::judge,
    },
    Check {
        name: "torture",
        title: "the tracer's torture programs print what they print when they are left alone",
        script: include_str!("../checks/torture.sh"),
        judge: torture::judge,
    },
];

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It holds; what was seen, and what of it could not run.
    Held {
        /// In a few words.
        seen: String,
        /// What parts of it need that is not there.
        needs: Vec<String>,
    },
    /// It does not; what is wrong.
    Failed(String),
    /// It cannot run here; what it needs.
    Skipped(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Held { seen, needs } if needs.is_empty() => write!(f, "held: {seen}"),
            Outcome::Held { seen, needs } => write!(f, "held: {seen}; skipped: needs {}", needs.join(", ")),
            Outcome::Failed(why) => write!(f, "failed: {why}"),
            Outcome::Skipped(what) => write!(f, "skipped: needs {what}"),
        }
    }
}

impl Check {
    /// What came of it in a guest. One of which the guest said nothing is not reached, for this reason.
    pub fn outcome(&self, parts: &[Part], unreached: &str) -> Outcome {
        let Some(part) = parts.iter().find(|part| part.check == self.name) else {
            return Outcome::Failed(format!("not reached: {unreached}"));
        };
        if !part.is_whole {
            let last = part.ran.last().map_or("its beginning", |ran| ran.name.as_str());
            return Outcome::Failed(format!("went no further than {last}: {unreached}"));
        }
        if part.ran.is_empty() && !part.needs.is_empty() {
            return Outcome::Skipped(part.needs.join(", "));
        }
        match (self.judge)(part) {
            Ok(seen) => Outcome::Held { seen, needs: part.needs.clone() },
            Err(why) => Outcome::Failed(why),
        }
    }
}

/// A size as policies are named by it: 65536 is 64k.
fn in_name(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes >> 10, "k");
    for larger in ["m", "g"] {
        if number >= 1024 && number.is_multiple_of(1024) {
            (number, unit) = (number >> 10, larger);
        }
    }
    format!("{number}{unit}")
}

/// The number that a command said, and nothing else.
fn number(part: &Part, name: &str) -> Result<u64, String> {
    let text = part.output(name)?.trim();
    text.parse().map_err(|_| format!("{name}: expected a number, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::transcript::{Ran, read};

    /// A command that said this.
    pub fn ran(name: &str, output: &str) -> Ran {
        Ran { name: name.into(), output: output.into(), error: String::new(), code: Some(0) }
    }

    /// A part in which these commands ran.
    pub fn part(ran: Vec<Ran>) -> Part {
        Part { check: "x".into(), ran, is_whole: true, ..Part::default() }
    }

    #[test]
    fn what_did_not_come_to_its_end_has_failed() {
        let parts = read("@@ check policies\n@@ run page\n4096\n");
        let policies = CHECKS[0].outcome(&parts, "no answer within 10 s");
        assert_eq!(policies, Outcome::Failed("went no further than page: no answer within 10 s".into()));
        let mapped = CHECKS[1].outcome(&parts, "it panicked");
        assert_eq!(mapped.to_string(), "failed: not reached: it panicked");
    }

    #[test]
    fn what_cannot_run_says_what_it_needs() {
        let parts = read("@@ check policies\n@@ needs a kernel\n@@ done\n");
        assert_eq!(CHECKS[0].outcome(&parts, "").to_string(), "skipped: needs a kernel");
    }

    #[test]
    fn sizes_are_named_as_policies_are() {
        assert_eq!([16 << 10, 1 << 20, 32 << 20, 1 << 30].map(in_name), ["16k", "1m", "32m", "1g"]);
    }
}
