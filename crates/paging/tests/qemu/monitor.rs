//! The monitor's translation of an address, `gva2gpa`.

use crate::leniency::Answer;
use crate::machine::Machine;

/// Where the monitor says that `addresses` lead.
pub fn translations(machine: &mut Machine, addresses: &[u64]) -> Vec<Answer> {
    let commands: Vec<String> = addresses.iter().map(|va| format!("gva2gpa {va:#x}")).collect();
    machine.gdb.monitor(&commands).iter().map(|text| answer(text.trim())).collect()
}

fn answer(text: &str) -> Answer {
    match text.strip_prefix("gpa: ") {
        Some(pa) => {
            let pa = u64::from_str_radix(pa.trim_start_matches("0x"), 16);
            Answer::Translated(Some(pa.unwrap_or_else(|_| panic!("expected an address, found {text}"))))
        }
        None => {
            assert_eq!(text, "Unmapped");
            Answer::Refused
        }
    }
}
