//! `pagelab trace check`: checks a trace for damage.

use serde_json::json;
use trace::Block;

use super::{Damages, Shown, named, open};
use crate::failure::Failure;
use crate::output::print;
use crate::table::describe::count;

/// Runs `pagelab trace check`.
pub fn run(arguments: &Shown) -> Result<(), Failure> {
    let mut reader = open(&arguments.file)?;
    let mut damages = Damages::default();
    let mut sound = 0u64;
    while let Some(block) = reader.next_block().map_err(|error| named(&arguments.file, error))? {
        match block {
            Block::Damaged(damage) => damages.add(damage),
            Block::Runs { .. } | Block::Events { .. } | Block::Timestamps(_) => sound += 1,
        }
    }
    let whole = reader.is_whole();
    if arguments.json {
        let document = json!({
            "schema": "pagelab.trace-check/1",
            "sound_blocks": sound,
            "whole": whole,
            "damages": damages.documents(),
            "damages_left_out": damages.others,
        });
        print(&format!("{document:#}"), true)?;
    } else {
        print(&text(&damages, sound, whole), false)?;
    }
    let path = arguments.file.display();
    match (damages.count(), whole) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure::Faults(format!("{path}: the end is missing; what was read before it can be used"))),
        (number, _) => {
            Err(Failure::Faults(format!("{path}: {}; the parts between them can be used", damaged_places(number))))
        }
    }
}

fn text(damages: &Damages, sound: u64, whole: bool) -> String {
    let end = if whole { "the index is there" } else { "there is no index at the end" };
    let sound = count(sound, "sound block");
    let last = format!("{sound}, {}; {end}", damaged_places(damages.count()));
    damages.lines().chain([last]).collect::<Vec<_>>().join("\n")
}

fn damaged_places(number: u64) -> String {
    count(number, "damaged place")
}
