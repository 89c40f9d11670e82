//! Tests with captured trees that are damaged at random. Each tree must be inspected or refused, in bounded memory and
//! time.
//!
//! The seed is printed, and `PAGELAB_TEST_SEED=N` repeats the test with it. `PAGELAB_TORTURE=full` makes many more
//! trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use testing::Random;

use super::golden;
use super::hostile_captures::{OUTSIDE, limited, outside};
use crate::common::{Bench, Runs};

const CASES: [&str; 4] = ["x86_64-6.18-guard", "x86_64-5.10-sums", "aarch64-64k-6.12-db", "aarch64-16k-6.12-guard"];

/// The commands that run on a damaged tree.
const ASKED: [&[&str]; 5] = [
    &["inspect", "--root", "tree", "100"],
    &["inspect", "--root", "tree", "100", "--regions"],
    &["inspect", "--root", "tree", "100", "--json"],
    &["inspect", "--root", "tree", "100", "--html", "map.html"],
    &["direct-map", "status", "--root", "tree"],
];

/// Numbers with which the test replaces numbers in files.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "63",
    "4095",
    "4294967296",
    "9007199254740993",
    "72057594037927936",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "999999999999999999999999999999",
];
const ADDRESSES: [&str; 10] = [
    "0",
    "1",
    "1000",
    "7ffffffff000",
    "fffffffffff000",
    "100000000000000",
    "8000000000000000",
    "ffffffffffe00000",
    "fffffffffffff000",
    "ffffffffffffffff",
];

/// A tree, and the damage done to it so far.
struct Damaged {
    root: PathBuf,
    /// The directory in which replaced files are kept.
    aside: PathBuf,
    /// The damage in order: the name of the file in the tree, and a description.
    done: Vec<(PathBuf, String)>,
}

impl Damaged {
    /// Replaces a file or directory by what `put` makes.
    fn replace(&mut self, name: &Path, what: String, put: impl FnOnce(&Path)) {
        let path = self.root.join(name);
        fs::rename(&path, self.aside.join(self.done.len().to_string())).unwrap();
        put(&path);
        self.done.push((name.to_owned(), what));
    }

    /// Restores everything.
    fn restore(&mut self) {
        while let Some((name, _)) = self.done.pop() {
            let path = self.root.join(&name);
            match fs::symlink_metadata(&path) {
                Ok(there) if there.is_dir() => fs::remove_dir_all(&path).unwrap(),
                Ok(_) => fs::remove_file(&path).unwrap(),
                Err(_) => {}
            }
            fs::rename(self.aside.join(self.done.len().to_string()), path).unwrap();
        }
    }

    /// Damages one file or directory of the tree.
    fn damage(&mut self, names: &[PathBuf], random: &mut Random) {
        let name: &PathBuf = chosen(names, random);
        let path = self.root.join(name);
        // The name may have disappeared, if its directory was replaced.
        let Ok(there) = fs::symlink_metadata(&path) else { return };
        // A file that was made large is not damaged again, because that takes longer than all other damage.
        if there.is_file() && there.len() < 1 << 20 && random.below(4) > 0 {
            let mut bytes = fs::read(&path).unwrap();
            let what = damage_content(&mut bytes, random);
            self.replace(name, what, |path| fs::write(path, bytes).unwrap());
        } else {
            let other: &PathBuf = chosen(names, random);
            self.replace_kind(name, other, random);
        }
    }

    fn replace_kind(&mut self, name: &Path, other: &Path, random: &mut Random) {
        let outside = self.aside.join(OUTSIDE);
        let links = ["/dev/zero".into(), outside, name.file_name().unwrap().into(), up(name).join(other), "..".into()];
        match random.below(9) {
            0 => self.replace(name, "removed".into(), |_| ()),
            1 => self.replace(name, "a FIFO".into(), |path| mkfifo(path, Mode::S_IRWXU).unwrap()),
            2 => self.replace(name, "a directory".into(), |path| fs::create_dir(path).unwrap()),
            3 => self.replace(name, "2G of nothing".into(), |path| {
                fs::File::create(path).unwrap().set_len(2 << 30).unwrap();
            }),
            at => {
                let target = &links[at as usize - 4];
                self.replace(name, format!("a link to {target:?}"), |path| symlink(target, path).unwrap());
            }
        }
    }
}

/// The relative path from the directory that contains a name to the root of the tree.
fn up(name: &Path) -> PathBuf {
    name.components().skip(1).map(|_| "..").collect()
}

fn chosen<'a, T>(all: &'a [T], random: &mut Random) -> &'a T {
    &all[random.below(all.len() as u64) as usize]
}

/// Damages a text, and returns a description.
fn damage_content(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if bytes.is_empty() {
        bytes.extend_from_slice(b"0\n");
        return "a line added".into();
    }
    let (one, other) = (random.below(lines.len() as u64) as usize, random.below(lines.len() as u64) as usize);
    match random.below(8) {
        0 => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            format!("a bit of byte {at}")
        }
        1 => {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            format!("cut at {}", bytes.len())
        }
        2 => {
            *bytes = [&lines[..one], &lines[one + 1..]].concat().concat();
            format!("line {one} removed")
        }
        3 => {
            *bytes = [&lines[..one], &lines[other..=other], &lines[one..]].concat().concat();
            format!("line {other} again before line {one}")
        }
        4 => {
            let mut lines = lines;
            lines.swap(one, other);
            *bytes = lines.concat();
            format!("lines {one} and {other} swapped")
        }
        5 => number(bytes, u8::is_ascii_digit, &NUMBERS, random),
        6 => number(bytes, u8::is_ascii_hexdigit, &ADDRESSES, random),
        _ => {
            let at = random.below(bytes.len() as u64) as usize;
            let count = [1, 3, 5000, 100_000][random.below(4) as usize];
            bytes.splice(at..at, (0..count).map(|_| random.below(256) as u8).collect::<Vec<u8>>());
            format!("{count} random bytes at {at}")
        }
    }
}

/// Replaces one number by another.
fn number(bytes: &mut Vec<u8>, is_digit: fn(&u8) -> bool, numbers: &[&str], random: &mut Random) -> String {
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|at| is_digit(&bytes[*at]) && (*at == 0 || !is_digit(&bytes[at - 1]))).collect();
    if starts.is_empty() {
        return "nothing".into();
    }
    let (start, new) = (*chosen(&starts, random), *chosen(numbers, random));
    let digits = bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
    bytes.splice(start..start + digits, new.bytes());
    format!("{new} at {start}")
}

/// Every file and directory below the root. Those of the process are returned separately.
fn names(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut found, mut next) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(root).unwrap().to_owned());
            if path.is_dir() {
                next.push(path);
            }
        }
    }
    found.sort();
    found.into_iter().partition(|name| name.starts_with("proc/100"))
}

#[test]
fn damaged_captures_are_inspected_or_refused() {
    let trees = if std::env::var_os("PAGELAB_TORTURE").is_some_and(|size| size == "full") { 1000 } else { 25 };
    let mut random = Random::new();
    for case in CASES {
        let bench = Bench::new();
        let root = golden::tree(&bench, case);
        outside(&bench);
        let (of_process, of_system) = names(&root);
        let mut damaged = Damaged { root, aside: bench.path(""), done: Vec::new() };
        for tree in 0..trees {
            for _ in 0..=random.below(3) {
                let names = if random.below(4) > 0 { &of_process } else { &of_system };
                damaged.damage(names, &mut random);
            }
            let asked = ASKED[tree % ASKED.len()];
            let ran = limited(&bench.pagelab(asked)).ran();
            let is_well = matches!(ran.code, Some(0 | 2)) && !ran.stderr.contains("panicked");
            assert!(is_well, "{case}, tree {tree}, {asked:?} of {:?}: {ran}", damaged.done);
            let tells = [&ran.stdout, &ran.stderr].iter().any(|text| text.contains(OUTSIDE));
            assert!(!tells, "{case}, tree {tree}, {asked:?} of {:?}: a file outside is shown: {ran}", damaged.done);
            damaged.restore();
        }
    }
}
