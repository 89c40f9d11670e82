//! The checks that run in guests ([`CHECKS`]). Their scripts in `checks` run in the guest. The expected results are computed
//! here, with code that is independent of pagelab.

pub mod boots;
pub mod capabilities;
mod contiguous;
mod counted;
mod inspect;
mod kvm;
mod lease;
mod mapped;
pub mod model;
mod policies;
mod reset;
pub mod sysroot;
mod torture;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::stage::{BootOutput, Stage};
use super::transcript::CheckOutput;

#[derive(Debug)]
pub struct Check {
    /// The name of the check and of its scripts.
    pub name: &'static str,
    /// What it checks, for the table.
    pub title: &'static str,
    /// For each boot in which the check runs, its script.
    pub scripts: &'static [(Stage, &'static str)],
    /// Computes the result from the output: a short summary of the observations, or the error.
    judge: fn(&CheckOutput) -> Result<String, String>,
}

/// All checks, in the order in which they run.
pub const CHECKS: [Check; 13] = [
    Check {
        name: "policies",
        title: "`doctor` and `list policies`: what is offered is what the kernel has",
        scripts: &[(Stage::Together, include_str!("../checks/policies.sh"))],
        judge: policies::judge,
    },
    Check {
        name: "mapped",
        title: "`exec` and `compare`: verdicts, and bytes by folio and leaf compared with smaps and kpageflags",
        scripts: &[(Stage::Together, include_str!("../checks/mapped.sh"))],
        judge: mapped::judge,
    },
    Check {
        name: "inspect",
        title: "`inspect`: what maps a program compared with smaps and kpageflags, and why it is not larger",
        scripts: &[(Stage::Together, include_str!("../checks/inspect.sh"))],
        judge: inspect::judge,
    },
    Check {
        name: "lease",
        title: "settings come back when their borrower is killed",
        scripts: &[(Stage::Together, include_str!("../checks/lease.sh"))],
        judge: lease::judge,
    },
    Check {
        name: "contiguous",
        title: "large pages are mapped by entries that say so (contiguous, NAPOT): page tables read from outside, and `table decode`",
        scripts: &[(Stage::Together, include_str!("../checks/contiguous.sh"))],
        judge: contiguous::judge,
    },
    Check {
        name: "kvm",
        title: "`kvm-dirty-log` on the guest's own KVM, with and without eager splitting",
        scripts: &[(Stage::Together, include_str!("../checks/kvm.sh"))],
        judge: kvm::judge,
    },
    Check {
        name: "torture",
        title: "the tracer's torture programs print what they print when they are left alone",
        scripts: &[(Stage::Together, include_str!("../checks/torture.sh"))],
        judge: torture::judge,
    },
    Check {
        name: sysroot::CHECK,
        title: "`compare --kernel --sysroot` on this machine, with the guest's kernel and pagelab: first touches, and instructions for times",
        scripts: &[(Stage::Together, include_str!("../checks/sysroot.sh"))],
        judge: sysroot::judge,
    },
    Check {
        name: "reset",
        title: "settings that were lent when the guest was reset: `restore` says that their journal is void",
        scripts: &[
            (Stage::Together, include_str!("../checks/reset.sh")),
            (Stage::AfterReset, include_str!("../checks/reset-after.sh")),
        ],
        judge: reset::judge,
    },
    Check {
        name: "counted",
        title: "`kvm-dirty-log` by a clock that counts instructions (`-icount`): phases are the same in every run",
        scripts: &[(Stage::Counted, include_str!("../checks/counted.sh"))],
        judge: counted::judge,
    },
    Check {
        name: "model",
        title: "`compare` of ten programs and `sim` of their recorded traces: faults, bytes as asked for, tables",
        scripts: &[(Stage::Fresh, include_str!("../checks/model.sh"))],
        judge: model::judge,
    },
    Check {
        name: "boots",
        title: "`study run direct-map` in a boot with leaves of 1G and in one without, their stores merged: arms, and no claim of an emulator's times",
        scripts: &[
            (Stage::WithGigabyte, include_str!("../checks/boots.sh")),
            (Stage::WithoutGigabyte, include_str!("../checks/boots.sh")),
        ],
        judge: boots::judge,
    },
    Check {
        name: capabilities::CHECK,
        title: "`capabilities` twice: each cell has an outcome, and both runs agree ([Pages by kernel](capabilities.md))",
        scripts: &[(Stage::Capabilities, include_str!("../checks/capabilities.sh"))],
        judge: capabilities::judge,
    },
];

/// Selects which checks are run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// Whether to run only the checks that need no other boot than the first.
    pub is_small: bool,
    /// Whether to run only the checks that work with a dynamically linked pagelab.
    pub is_dynamic: bool,
    /// Run only the check with this name.
    pub only: Option<&'static str>,
}

impl Scope {
    pub fn checks(self) -> impl Iterator<Item = &'static Check> {
        let is_first = |check: &Check| check.scripts.iter().all(|(stage, _)| *stage == Stage::Together);
        let is_wanted = move |check: &&Check| {
            (!self.is_small || is_first(check))
                && !(self.is_dynamic && check.name == sysroot::CHECK)
                && self.only.is_none_or(|name| name == check.name)
        };
        CHECKS.iter().filter(is_wanted)
    }

    /// Whether a selected check runs in this boot.
    pub fn has(self, stage: Stage) -> bool {
        self.checks().any(|check| check.script(stage).is_some())
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The check passed.
    Held {
        /// A short summary of the observations.
        seen: String,
        /// What is missing to run the parts that could not run.
        needs: Vec<String>,
    },
    /// The check failed, with this error.
    Failed(String),
    /// The check cannot run here, because this is missing.
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
    /// The script of the check in a boot; `None` if it has none there.
    pub fn script(&self, stage: Stage) -> Option<&'static str> {
        self.scripts.iter().find(|(of, _)| *of == stage).map(|(_, script)| *script)
    }

    /// The result of the check in a guest, computed from what its scripts printed in each boot. If they printed nothing, the
    /// result says why the check was not reached.
    pub fn outcome(&self, outputs: &[(Stage, BootOutput)]) -> Outcome {
        let mut part = CheckOutput { is_complete: true, ..CheckOutput::default() };
        for (stage, _) in self.scripts {
            let Some((_, output)) = outputs.iter().find(|(of, _)| of == stage) else { continue };
            let Some(found) = output.parts.iter().find(|part| part.check == self.name) else {
                return Outcome::Failed(format!("not reached: {}", output.unreached));
            };
            if !found.is_complete {
                let last = found.ran.last().map_or("its beginning", |ran| ran.name.as_str());
                return Outcome::Failed(format!("stopped after {last}: {}", output.unreached));
            }
            part.needs.extend(found.needs.iter().cloned());
            part.ran.extend(found.ran.iter().cloned());
        }
        if part.ran.is_empty() && !part.needs.is_empty() {
            return Outcome::Skipped(part.needs.join(", "));
        }
        match (self.judge)(&part) {
            Ok(seen) => Outcome::Held { seen, needs: part.needs },
            Err(why) => Outcome::Failed(why),
        }
    }
}

/// A size in the form that names of policies contain: 64k for 65536.
fn in_name(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes >> 10, "k");
    for larger in ["m", "g"] {
        if number >= 1024 && number.is_multiple_of(1024) {
            (number, unit) = (number >> 10, larger);
        }
    }
    format!("{number}{unit}")
}

/// The number that is the whole output of a command.
fn number(part: &CheckOutput, name: &str) -> Result<u64, String> {
    let text = part.output(name)?.trim();
    text.parse().map_err(|_| format!("{name}: expected a number, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::transcript::{CommandOutput, read};

    /// A command that succeeded and printed this output, for tests.
    pub fn ran(name: &str, output: &str) -> CommandOutput {
        CommandOutput { name: name.into(), output: output.into(), error: String::new(), code: Some(0) }
    }

    /// The output of a check with these commands, for tests.
    pub fn part(ran: Vec<CommandOutput>) -> CheckOutput {
        CheckOutput { check: "x".into(), ran, is_complete: true, ..CheckOutput::default() }
    }

    #[test]
    fn an_unfinished_check_has_failed() {
        let outputs = |why: &str| {
            let output = BootOutput { parts: read("@@ check policies\n@@ run page\n4096\n"), unreached: why.into() };
            [(Stage::Together, output)]
        };
        let policies = CHECKS[0].outcome(&outputs("no answer within 10 s"));
        assert_eq!(policies, Outcome::Failed("stopped after page: no answer within 10 s".into()));
        let mapped = CHECKS[1].outcome(&outputs("it panicked"));
        assert_eq!(mapped.to_string(), "failed: not reached: it panicked");
    }

    #[test]
    fn a_skipped_check_says_what_it_needs() {
        let output =
            BootOutput { parts: read("@@ check policies\n@@ needs a kernel\n@@ done\n"), unreached: String::new() };
        assert_eq!(CHECKS[0].outcome(&[(Stage::Together, output)]).to_string(), "skipped: needs a kernel");
    }

    #[test]
    fn sizes_are_named_as_policies_are() {
        assert_eq!([16 << 10, 1 << 20, 32 << 20, 1 << 30].map(in_name), ["16k", "1m", "32m", "1g"]);
    }
}
