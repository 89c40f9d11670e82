//! The guests' programs that are compared with the model: their names, their sources, and their input files.

use std::path::{Path, PathBuf};

/// The names of the programs, and their command lines in a guest.
pub const PROGRAMS: [(&str, &str); 11] = [
    ("nothing", "/programs/nothing"),
    ("advice", "/programs/advice"),
    ("holes", "/programs/holes"),
    ("kernel", "/programs/kernel"),
    ("layouts", "/programs/layouts"),
    ("parent_and_child", "/programs/parent_and_child"),
    ("mappings", "/programs/mappings 1"),
    ("toggles", "/programs/toggles 2000"),
    ("awk", "/bin/busybox awk -f /programs/hash.awk"),
    ("sort", "/bin/busybox sort /programs/lines"),
    ("bzip2", "/bin/busybox bzip2 -c /programs/lines"),
];

/// The source files of the programs that are compiled, sorted by name.
pub fn sources(root: &Path) -> Vec<PathBuf> {
    let places = ["xtask/src/guests/programs", "crates/pagelab/tests/programs", "crates/pagelab/tests/torture"];
    let compiled = PROGRAMS.iter().filter(|(name, words)| words.starts_with(&format!("/programs/{name}")));
    let of =
        |name: &str| places.iter().map(|place| root.join(place).join(format!("{name}.c"))).find(|one| one.is_file());
    compiled.filter_map(|(name, _)| of(name)).collect()
}

/// The number of lines for `sort` to sort. With 20,000 lines, the heap of sort ends just below a multiple of 64K under QEMU's
/// user emulation. On a kernel it would then be one folio larger, because glibc allocates another 1.4K there for the vDSO and
/// `rseq`, which QEMU 7.2 does not provide.
const LINES: u64 = 21_000;

/// The input files of the programs, by name: a script, and lines to sort.
pub fn inputs() -> [(&'static str, Vec<u8>); 3] {
    let hash = "BEGIN { for (i = 0; i < 20000; i++) of[i * 7 % 20011] = i \" \" i * i; print of[7] }\n";
    let line = |number: u64| format!("{:08x} of {number}\n", number.wrapping_mul(2_654_435_761) as u32);
    let lines: String = (0..LINES).map(line).collect();
    let list: String = PROGRAMS.iter().map(|(name, words)| format!("{name} {words}\n")).collect();
    [("hash.awk", hash.into()), ("lines", lines.into_bytes()), ("list", list.into_bytes())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_compiled_or_of_busybox() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let compiled: Vec<String> =
            sources(root).iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        for (name, words) in PROGRAMS {
            assert!(words.starts_with("/bin/busybox ") || compiled.contains(&name.to_owned()), "{name}");
        }
        let inputs = inputs();
        assert!(inputs.iter().all(|(_, content)| content.ends_with(b"\n")));
    }
}
