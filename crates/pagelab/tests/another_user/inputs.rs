//! Tests of inputs of a workload that root runs as another user: links that this user plants among the inputs do not lead
//! root anywhere.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A study with one workload of the user `nobody`, whose input is a file made by a script.
const STUDY: &str = r#"
schema = "pagelab.study/1"
name = "planted"
question = "Does root follow it?"
policies = ["default", "base"]
[sizes.standard]
blocks = 2
min_blocks = 1
[[suite]]
name = "planted"
"#;

const SUITE: &str = r#"
schema = "pagelab.suite/1"
name = "planted"
about = "what tests are run with"
[sizes.standard]
parameters = { lines = 3 }
[[input]]
name = "numbers"
output = "numbers"
command = ["sh", "-s", "{lines}"]
script = '''
SCRIPT
'''
[[workload]]
name = "reader"
user = "nobody"
command = ["sh", "WORKLOAD", "{numbers}"]
input = "{numbers}"
"#;

/// The study, a cache that only root can change, and a directory with a precious file that only root can access.
struct Case {
    bench: Bench,
    cache: TempDir,
    precious: TempDir,
}

impl Case {
    /// `script` makes the input, and `workload` is run with the input's path. In both, `PRECIOUS` is replaced by the path of
    /// root's precious file.
    fn new(script: &str, workload: &str) -> Option<Case> {
        if !needs(&[root(), program("setpriv")]) {
            return None;
        }
        let cache = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let case = Case { bench: Bench::new(), cache, precious: tempfile::tempdir().unwrap() };
        fs::write(case.file(), "precious").unwrap();
        fs::set_permissions(case.file(), Permissions::from_mode(0o600)).unwrap();
        let filled = |text: &str| text.replace("PRECIOUS", &case.file().display().to_string());
        let workload = case.bench.script("workload", &filled(workload));
        fs::create_dir(case.bench.path("suites")).unwrap();
        let suite = SUITE.replace("SCRIPT", &filled(script)).replace("WORKLOAD", &workload);
        fs::write(case.bench.path("suites/planted.toml"), suite).unwrap();
        fs::write(case.bench.path("planted.toml"), STUDY).unwrap();
        Some(case)
    }

    fn file(&self) -> PathBuf {
        self.precious.path().join("file")
    }

    fn study(&self, verb: &str) -> Command {
        let words = ["study", verb, &self.bench.word("planted.toml"), "--store", &self.bench.store()];
        let mut study = self.bench.pagelab(&words);
        study.env("XDG_CACHE_HOME", self.cache.path());
        study
    }

    /// Runs the study again with more blocks, so that there is something left to run.
    fn again(&self, blocks: u32) -> Ran {
        let study = STUDY.replace("blocks = 2", &format!("blocks = {blocks}"));
        fs::write(self.bench.path("planted.toml"), study).unwrap();
        self.study("run").ran()
    }

    /// Root's directory, which contains the directory of the input.
    fn inputs(&self) -> PathBuf {
        self.cache.path().join("pagelab/inputs")
    }

    /// The directory that the user `nobody` owns.
    fn directory(&self) -> PathBuf {
        let entries = fs::read_dir(self.inputs()).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.is_dir()).unwrap()
    }

    /// Whether root's precious file is unchanged, and still the only file in its directory.
    fn is_untouched(&self) -> bool {
        fs::read_to_string(self.file()).unwrap() == "precious"
            && fs::read_dir(self.precious.path()).unwrap().count() == 1
    }

    /// Runs a shell as `nobody` in the input's directory. `$hash` is the only name in that directory.
    fn as_nobody(&self, text: &str) {
        let mut planting = Command::new("sh");
        planting.args(["-ec", &format!("hash=$(ls); {text}")]).current_dir(self.directory());
        planting.as_nobody().ran().assert_exit(0, &[]);
    }
}

#[test]
fn a_reason_is_not_written_through_a_link_that_the_making_of_an_input_plants() {
    let script = "for place in .. ../numbers-*-nobody; do ln -s PRECIOUS $place/why-not-made; done\n\
                  for place in ../numbers-*-nobody; do ln -s PRECIOUS $place.why-not-made; done\nexit 3";
    let Some(case) = Case::new(script, "cat") else { return };
    // The second time, the links that the first run has planted exist from the start.
    for _ in 0..2 {
        case.study("run").ran().assert_exit(1, &["the input numbers cannot be made"]);
        assert!(case.is_untouched());
    }
    let status = case.study("status").ran();
    status.assert_stdout(&["the input numbers cannot be made: its command failed (exit status 3)"]);
}

#[test]
fn root_gives_away_no_file_behind_a_link_in_an_input() {
    let workload = "cat >> $1.seen; rm -f $1; ln -s PRECIOUS $1";
    let Some(case) = Case::new("seq $1", workload) else { return };
    let ran = case.study("run").ran();
    ran.assert_exit(1, &["belongs to user 65534", "links of other users are not followed"]);
    let content = case.directory().join(fs::read_dir(case.directory()).unwrap().next().unwrap().unwrap().file_name());
    assert_eq!(fs::read_to_string(content.join("numbers.seen")).unwrap(), "1\n2\n3\n");
    assert!(case.is_untouched());
}

#[test]
fn links_and_fifos_planted_in_a_made_input_are_not_opened() {
    let Some(case) = Case::new("seq $1", "true") else { return };
    case.study("run").ran().assert_exit(0, &["the input numbers has the hash"]);
    // If the copy for a trial is a link, the link is removed and its target stays. A FIFO in the input's directory is not part
    // of its content.
    case.as_nobody(&format!("ln -s {} $hash.trial; mkfifo $hash/pipe", case.precious.path().display()));
    case.again(3).assert_exit(0, &[]);
    assert!(case.is_untouched());
    assert_eq!(fs::read_dir(case.directory()).unwrap().count(), 1, "the copy is gone");
    let link = format!("rm $hash/numbers; ln -s {} $hash/numbers", case.file().display());
    for planted in ["rm $hash/numbers; mkfifo $hash/numbers", &link] {
        case.as_nobody(planted);
        case.again(4).assert_exit(1, &["has changed since it was made", "remove that directory"]);
    }
    case.as_nobody("mv $hash x; ln -s x $hash");
    case.again(4).assert_exit(1, &["Not a directory"]);
    assert!(case.is_untouched());
}

#[test]
fn the_directory_of_inputs_is_one_that_only_root_can_change() {
    let Some(case) = Case::new("seq $1", "true") else { return };
    fs::set_permissions(case.cache.path(), Permissions::from_mode(0o777)).unwrap();
    case.study("run").ran().assert_exit(1, &["another user can change what is at", "pagelab/inputs", "XDG_CACHE_HOME"]);
    fs::set_permissions(case.cache.path(), Permissions::from_mode(0o755)).unwrap();
    case.study("run").ran().assert_exit(0, &[]);
}
