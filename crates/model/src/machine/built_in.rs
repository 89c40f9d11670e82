//! The built-in machines.

use super::error::MachineError;
use super::read::read;
use super::shape::Machine;

/// The built-in machine files: name and text.
pub const BUILT_IN: [(&str, &str); 17] = [
    ("cascade-lake", include_str!("../../../../machines/cascade-lake.toml")),
    ("ice-lake", include_str!("../../../../machines/ice-lake.toml")),
    ("sapphire-rapids", include_str!("../../../../machines/sapphire-rapids.toml")),
    ("zen-2", include_str!("../../../../machines/zen-2.toml")),
    ("zen-3", include_str!("../../../../machines/zen-3.toml")),
    ("zen-4", include_str!("../../../../machines/zen-4.toml")),
    ("zen-5", include_str!("../../../../machines/zen-5.toml")),
    ("cortex-a53", include_str!("../../../../machines/cortex-a53.toml")),
    ("cortex-a57", include_str!("../../../../machines/cortex-a57.toml")),
    ("neoverse-n1", include_str!("../../../../machines/neoverse-n1.toml")),
    ("neoverse-n2", include_str!("../../../../machines/neoverse-n2.toml")),
    ("neoverse-v1", include_str!("../../../../machines/neoverse-v1.toml")),
    ("neoverse-v2", include_str!("../../../../machines/neoverse-v2.toml")),
    ("apple-m1", include_str!("../../../../machines/apple-m1.toml")),
    ("sifive-u74", include_str!("../../../../machines/sifive-u74.toml")),
    ("sifive-p550", include_str!("../../../../machines/sifive-p550.toml")),
    ("rva23", include_str!("../../../../machines/rva23.toml")),
];

/// The built-in machine of this name.
pub fn built_in(name: &str) -> Result<Machine, MachineError> {
    read(&format!("machines/{name}.toml"), built_in_file(name)?)
}

/// The text of the built-in machine file of this name.
pub fn built_in_file(name: &str) -> Result<&'static str, MachineError> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| unknown(name))
}

/// Names of architectures and makers, each with a machine to suggest.
const OTHER_NAMES: [(&str, &str); 10] = [
    ("aarch64", "neoverse-n1"),
    ("amd", "zen-4"),
    ("arm", "neoverse-n1"),
    ("arm64", "neoverse-n1"),
    ("intel", "sapphire-rapids"),
    ("riscv", "rva23"),
    ("riscv64", "rva23"),
    ("x86", "sapphire-rapids"),
    ("x86-64", "sapphire-rapids"),
    ("x86_64", "sapphire-rapids"),
];

fn unknown(name: &str) -> MachineError {
    let lower = name.to_ascii_lowercase();
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == lower).map(|(_, machine)| *machine);
    let distance = |known: &&str| strsim::damerau_levenshtein(&lower, known);
    let by_spelling = || BUILT_IN.iter().map(|(known, _)| *known).min_by_key(distance);
    MachineError::Unknown { name: name.to_owned(), nearest: other.or_else(by_spelling).unwrap_or_default() }
}
