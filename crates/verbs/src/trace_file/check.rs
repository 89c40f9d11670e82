//! `pagelab trace check`: checks a trace for damage.

use serde_json::json;
use trace::Block;

use super::{Damages, FileArguments, about, open};
use crate::failure::Failure;
use crate::output::print;
use crate::table::describe::count;

/// Runs `pagelab trace check`.
pub fn run(arguments: &FileArguments) -> Result<(), Failure> {
    let mut reader = open(&arguments.file)?;
    let mut damages = Damages::default();
    let mut intact = 0u64;
    while let Some(block) = reader.next_block().map_err(|error| about(&arguments.file, error))? {
        match block {
            Block::Damaged(damage) => damages.add(damage),
            Block::Runs { .. } | Block::Events { .. } | Block::Timestamps(_) => intact += 1,
        }
    }
    let is_complete = reader.is_whole();
    if arguments.json {
        let document = json!({
            "schema": "pagelab.trace-check/1",
            "sound_blocks": intact,
            "whole": is_complete,
            "damages": damages.documents(),
            "damages_left_out": damages.others,
        });
        print(&format!("{document:#}"), true)?;
    } else {
        print(&text(&damages, intact, is_complete), false)?;
    }
    let path = arguments.file.display();
    match (damages.count(), is_complete) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure::Faults(format!("{path}: the end is missing; the part before it can be used"))),
        (number, _) => {
            Err(Failure::Faults(format!("{path}: {}; the parts between them can be used", damaged_places(number))))
        }
    }
}

fn text(damages: &Damages, intact: u64, is_complete: bool) -> String {
    let end = if is_complete { "the index is present" } else { "the index at the end is missing" };
    let intact = count(intact, "intact block");
    let last = format!("{intact}, {}; {end}", damaged_places(damages.count()));
    damages.lines().chain([last]).collect::<Vec<_>>().join("\n")
}

fn damaged_places(number: u64) -> String {
    count(number, "damaged place")
}
