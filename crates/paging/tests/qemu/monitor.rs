//! Translates addresses with the monitor command `gva2gpa`.

use paging::{InputAddress, OutputAddress};

use crate::leniency::Answer;
use crate::machine::Machine;

/// The monitor's translations of `addresses`.
pub fn translations(machine: &mut Machine, addresses: &[InputAddress]) -> Vec<Answer> {
    let commands: Vec<String> = addresses.iter().map(|va| format!("gva2gpa {va:#x}")).collect();
    machine.gdb.monitor(&commands).iter().map(|text| answer(text.trim())).collect()
}

fn answer(text: &str) -> Answer {
    match text.strip_prefix("gpa: ") {
        Some(pa) => {
            let pa = u64::from_str_radix(pa.trim_start_matches("0x"), 16);
            let pa = pa.unwrap_or_else(|_| panic!("expected an address, found {text}"));
            Answer::Translated(Some(OutputAddress(pa)))
        }
        None => {
            assert_eq!(text, "Unmapped");
            Answer::Refused
        }
    }
}
