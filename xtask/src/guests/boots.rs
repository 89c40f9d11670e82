//! The boots of a guest ([`Boots`]): one for most checks, which ends with a reset; one after the reset; one whose clock counts
//! instructions; one whose memory has not been used; two with different leaf sizes in the direct map; and one with disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::Scope;
use super::disks;
use super::initrd::Programs;
use super::machine::{self, Board, Boot, End};
use super::merged;
use super::stage::{BootOutput, Stage};
use super::transcript::{self, CheckOutput};

/// What all boots of a guest have in common.
#[derive(Debug)]
pub struct Boots<'a> {
    pub name: &'a str,
    /// The machine of the guest.
    pub board: &'static Board,
    /// The kernel image.
    pub kernel: &'a Path,
    /// The guest's memory in QEMU's syntax, if it is not the default of each boot.
    pub memory: Option<&'a str>,
    /// The programs and files in the guest's initial file system.
    pub programs: &'a Programs,
    /// The directory of the logs.
    pub logs: &'a Path,
    /// The timeout of one boot.
    pub limit: Duration,
    /// The checks that are run.
    pub scope: Scope,
}

impl Boots<'_> {
    /// Boots the guest as often as the checks need, and returns what it printed in each boot.
    pub fn run(&self) -> Result<Vec<(Stage, BootOutput)>, String> {
        let mut all: Vec<(Stage, BootOutput)> = Vec::new();
        for stage in Stage::ALL.into_iter().filter(|stage| self.scope.has(*stage)) {
            let output = match (skipped_part(self.board, stage, &all), self.kept(stage, &all)) {
                (Some(part), _) => BootOutput { parts: vec![part], unreached: String::new() },
                (None, Ok(kept)) => self.boot(stage, &kept)?,
                (None, Err(unreached)) => BootOutput { parts: Vec::new(), unreached },
            };
            all.push((stage, output));
        }
        Ok(all)
    }

    /// Reads from the logs of earlier boots what the guest printed in each boot.
    pub fn read(&self) -> Result<Vec<(Stage, BootOutput)>, String> {
        let mut all: Vec<(Stage, BootOutput)> = Vec::new();
        for stage in Stage::ALL.into_iter().filter(|stage| self.scope.has(*stage)) {
            let output = match skipped_part(self.board, stage, &all) {
                Some(part) => BootOutput { parts: vec![part], unreached: String::new() },
                None => {
                    let log = self.log(stage);
                    let console = fs::read(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
                    let console = String::from_utf8_lossy(&console);
                    let unreached = format!("{} ends with {:?}", log.display(), machine::last_line(&console));
                    BootOutput { parts: transcript::read(&console), unreached }
                }
            };
            all.push((stage, output));
        }
        Ok(all)
    }

    /// The path of the log of a boot.
    pub fn log(&self, stage: Stage) -> PathBuf {
        self.logs.join(format!("{}.{}.log", self.name, stage.name()))
    }

    /// Additional files for the initial file system of a boot; an error says why the boot is left out.
    fn kept(&self, stage: Stage, before: &[(Stage, BootOutput)]) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
        match stage {
            Stage::Together if self.scope.is_small => Ok(vec![("checks/small", Vec::new())]),
            Stage::AfterReset => {
                let parts = before.iter().flat_map(|(_, output)| &output.parts);
                let journal = parts.filter_map(|part| part.output("journal").ok()).next();
                let journal = journal.ok_or("the boot before it left no journal")?;
                Ok(vec![("var/lib/pagelab/lease.jsonl", (journal.trim_end().to_owned() + "\n").into_bytes())])
            }
            Stage::WithGigabyte | Stage::WithoutGigabyte => {
                Ok(vec![("checks/direct-map.toml", merged::study().into_bytes())])
            }
            Stage::Together | Stage::Counted | Stage::Fresh | Stage::Capabilities => Ok(Vec::new()),
        }
    }

    fn boot(&self, stage: Stage, kept: &[(&str, Vec<u8>)]) -> Result<BootOutput, String> {
        let scripts: Vec<(&str, &str)> =
            self.scope.checks().filter_map(|check| Some((check.name, check.script(stage)?))).collect();
        let files: Vec<(&str, &[u8])> = kept.iter().map(|(name, content)| (*name, content.as_slice())).collect();
        let (modules, images) = match stage {
            Stage::Capabilities => (disks::modules(self.kernel)?, disks::images(self.logs)?),
            _ => Default::default(),
        };
        let files: Vec<(&str, &[u8])> = files
            .into_iter()
            .chain(modules.iter().map(|(name, content)| (name.as_str(), content.as_slice())))
            .collect();
        let initrd = self.logs.join(format!("{}.initrd", self.name));
        fs::write(&initrd, self.programs.initrd(&scripts, &files))
            .map_err(|error| format!("cannot write {}: {error}", initrd.display()))?;
        println!("==> {}, {}: {}", self.name, stage.name(), self.board.program.0);
        let (log, limit) = (self.log(stage), self.limit);
        let counts = stage == Stage::Counted;
        let boot = Boot {
            board: self.board,
            kernel: self.kernel,
            initrd: &initrd,
            log,
            limit,
            counts,
            arguments: stage.arguments(),
            disks: &images,
            memory: self.memory.unwrap_or(stage.memory()),
        };
        let (console, end) = machine::run(&boot)?;
        let log_name = format!("{}.{}.log", self.name, stage.name());
        let unreached = match end {
            End::TooSlow => format!("timed out after {} s; see {log_name}", limit.as_secs()),
            End::Off => format!("the guest ended with {:?}; see {log_name}", machine::last_line(&console)),
        };
        Ok(BootOutput { parts: transcript::read(&console), unreached })
    }
}

/// The output in place of a boot that is not made, which says what it needs; `None` if the boot is made. Boots with different
/// direct maps are left out if the architecture's kernel has no option for them. The boot that counts instructions is left out if
/// the first boot found no KVM in the guest, or none that works.
fn skipped_part(board: &Board, stage: Stage, before: &[(Stage, BootOutput)]) -> Option<CheckOutput> {
    if matches!(stage, Stage::WithGigabyte | Stage::WithoutGigabyte) && board.architecture != "amd64" {
        let needs = "x86-64, where `nogbpages` makes a boot without leaves of 1G".to_owned();
        let needs = Vec::from_iter((stage == Stage::WithGigabyte).then_some(needs));
        return Some(CheckOutput { check: "boots".to_owned(), needs, ran: Vec::new(), is_complete: true });
    }
    let mut parts = before.iter().flat_map(|(_, output)| &output.parts);
    let kvm = parts.find(|part| stage == Stage::Counted && part.check == "kvm")?;
    let needs = match kvm.ran.iter().all(|ran| ran.code == Some(0)) {
        true if kvm.ran.is_empty() => kvm.needs.clone(),
        true => return None,
        false => vec!["that the check `kvm` passes".to_owned()],
    };
    Some(CheckOutput { check: "counted".to_owned(), needs, ran: Vec::new(), is_complete: kvm.is_complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boots<'a>(programs: &'a Programs) -> Boots<'a> {
        Boots {
            name: "x",
            board: Board::of("arm64", None).unwrap(),
            kernel: Path::new("/nowhere"),
            memory: None,
            programs,
            logs: Path::new("/nowhere"),
            limit: Duration::from_secs(1),
            scope: Scope::default(),
        }
    }

    #[test]
    fn a_boot_after_a_reset_finds_the_journal_that_was_left() {
        let programs = Programs::default();
        let boots = boots(&programs);
        let outputs = |console: &str| {
            [(Stage::Together, BootOutput { parts: transcript::read(console), unreached: String::new() })]
        };
        let left = outputs("@@ check reset\n@@ run journal\n{\"a\":1}\n{}\n\n@@ said\n\n@@ ran 0\n@@ done\n@@ reset\n");
        let kept = boots.kept(Stage::AfterReset, &left).unwrap();
        assert_eq!(kept, [("var/lib/pagelab/lease.jsonl", b"{\"a\":1}\n{}\n".to_vec())]);
        assert!(boots.kept(Stage::AfterReset, &outputs("")).unwrap_err().contains("no journal"));
        assert!(boots.kept(Stage::Counted, &left).unwrap().is_empty());
    }

    #[test]
    fn reads_outputs_again_from_logs() {
        let scratch = crate::cache::tests::Scratch::new("judged");
        let programs = Programs::default();
        let scope = Scope { only: Some("model"), ..Scope::default() };
        let boots = Boots { logs: &scratch.0, scope, ..boots(&programs) };
        assert!(boots.read().unwrap_err().contains("x.fresh.log"));
        fs::write(boots.log(Stage::Fresh), "@@ check model\n@@ run page\n4096\n@@ ran 0\n").unwrap();
        let outputs = boots.read().unwrap();
        assert_eq!(
            (outputs.len(), outputs[0].0, outputs[0].1.parts[0].output("page").unwrap()),
            (1, Stage::Fresh, "4096\n")
        );
        assert!(outputs[0].1.unreached.contains("ends with \"@@ ran 0\""));
    }

    #[test]
    fn skips_boots_for_what_the_first_one_lacked() {
        let outputs = |console: &str| {
            [(Stage::Together, BootOutput { parts: transcript::read(console), unreached: String::new() })]
        };
        let without = outputs("@@ check kvm\n@@ needs /dev/kvm\n@@ done\n");
        let board = Board::of("arm64", None).unwrap();
        let skipped_part = |stage, before: &[(Stage, BootOutput)]| skipped_part(board, stage, before);
        let boots: Vec<CheckOutput> = [Stage::WithGigabyte, Stage::WithoutGigabyte]
            .into_iter()
            .filter_map(|stage| skipped_part(stage, &[]))
            .collect();
        assert_eq!((boots.len(), boots[0].needs.len(), boots[1].needs.len()), (2, 1, 0), "reported once");
        let part = skipped_part(Stage::Counted, &without).unwrap();
        assert_eq!((part.check.as_str(), part.needs, part.is_complete), ("counted", vec!["/dev/kvm".to_owned()], true));
        assert_eq!(skipped_part(Stage::AfterReset, &without), None);
        assert_eq!(skipped_part(Stage::Counted, &outputs("@@ check kvm\n@@ run x\n@@ ran 0\n@@ done\n")), None);
        let failed = skipped_part(Stage::Counted, &outputs("@@ check kvm\n@@ run x\n@@ ran 137\n@@ done\n")).unwrap();
        assert_eq!(failed.needs, ["that the check `kvm` passes"]);
    }
}
