//! Tests of files on hugetlbfs: which files and processes have the pages of a pool.

use std::fs;

use super::pools::Pages;
use crate::common::*;

/// A script that makes three files on a hugetlbfs of its own: one that no process has open, one that a process maps and has
/// closed, and one that a process has open. Then it runs pagelab with each line of its third argument.
const DRIVER: &str = "\
import mmap, os, subprocess, sys
where, pagelab, calls = sys.argv[1:4]
def make(name):
    file = os.open(os.path.join(where, name), os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(file, 4 << 20)
    pages = mmap.mmap(file, 4 << 20, mmap.MAP_SHARED)
    pages[0] = 1
    return file, pages
os.mkdir(os.path.join(where, 'below'))
file, pages = make('below/left\x1b[2J')
pages.close(); os.close(file)
ready, mapped = os.pipe(); ends, over = os.pipe()
child = os.fork()
if not child:
    os.close(over)
    file, pages = make('mapped'); os.close(file)
    os.write(mapped, b'.'); os.read(ends, 1); os._exit(0)
os.read(ready, 1)
opened, pages = make('open'); pages.close()
print(child, os.getpid(), flush=True)
for call in calls.split('\\n'):
    subprocess.run([pagelab] + call.split())
";

#[test]
fn files_are_listed_with_their_holders_or_without_any() {
    if !needs(&[root(), program("unshare"), program("python3")]) {
        return;
    }
    let Some(_pages) = Pages::more(8) else { return };
    let bench = Bench::new();
    fs::create_dir(bench.path("huge")).unwrap();
    let run = |calls: &str| {
        let script = "mount -t hugetlbfs -o pagesize=2M none \"$0\" && exec python3 -c \"$1\" \"$0\" \"$2\" \"$3\"";
        let mut unshared = std::process::Command::new("unshare");
        unshared.args(["--mount", "sh", "-c", script, &bench.word("huge"), DRIVER, &bench.word("pagelab"), calls]);
        unshared.env("HOME", bench.path("")).current_dir(bench.path("")).ran()
    };
    let ran = run("doctor --json\ninspect --all --sizes --json");
    let (pids, documents) = ran.stdout.split_once('\n').unwrap_or_else(|| panic!("{ran}"));
    let pids: Vec<u64> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let mut documents = serde_json::Deserializer::from_str(documents).into_iter::<serde_json::Value>();
    for _ in 0..2 {
        let document = documents.next().unwrap_or_else(|| panic!("{ran}")).unwrap();
        let all = &document["hugetlb_files"];
        assert_eq!(all["is_cut"], false, "{all:#}");
        let expected = [("below/left\u{1b}[2J", vec![]), ("mapped", vec![pids[0]]), ("open", vec![pids[1]])];
        let files: Vec<_> = all["files"].as_array().unwrap().iter().collect();
        let own: Vec<_> = files.into_iter().filter(|file| file["path"].as_str().unwrap().contains("/huge/")).collect();
        assert_eq!(own.len(), expected.len(), "{all:#}");
        for (file, (name, holders)) in own.iter().zip(expected) {
            assert_eq!(file["path"], bench.word(&format!("huge/{name}")), "{all:#}");
            assert_eq!(file["holders"], serde_json::json!(holders), "{file:#}");
            assert_eq!((&file["bytes"], &file["length_bytes"]), (&(2 << 20).into(), &(4 << 20).into()), "{file:#}");
            assert_eq!(file["page_bytes"], 2 << 20);
        }
    }
    fs::remove_dir_all(bench.path("huge")).unwrap();
    fs::create_dir(bench.path("huge")).unwrap();
    let ran = run("doctor\ninspect --all --sizes");
    let listed = ["3 files hold 6M", "left\\x1b[2J", "keeps its pages until it is removed: rm FILE"];
    ran.assert_stdout(&listed);
    assert_eq!(ran.stdout.matches("3 files hold 6M").count(), 2, "{ran}");
    let without = bench.pagelab(&["doctor"]).ran();
    assert!(!without.stdout.contains("/huge/"), "{without}");
}
