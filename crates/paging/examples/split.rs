//! Shows a table before and after a block is split: `cargo run -p paging --example split`.
//!
//! The example maps 4M of virtual memory as arm64 Linux would with a 4K granule. It splits one block into pages, as
//! mprotect of a part would. It clears the contiguous bit of one group of 64K, as a change of one of its pages would.
//! Then it asks the checker whether hardware could walk the result.

use paging::check::check;
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::{Attributes, Error, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};

fn main() -> Result<(), Error> {
    let format = Arm64Stage1::new(Granule::K4, 48);
    let mut tables = Tables::new(format, OutputAddress(0x4000_0000), 1 << 20)?;
    let va = InputAddress(0xffff_8000_0000);
    let attributes = Attributes::new(Flags::READ | Flags::WRITE | Flags::ACCESSED);
    let pa = OutputAddress(0x8000_0000);
    tables.map(&Mapping { va, pa, bytes: 4 << 20, attributes, sizes: Sizes::BEST })?;
    report("mapped", &tables)?;

    tables.split(va)?;
    report("one block split", &tables)?;

    tables.unfold(va)?;
    report("a group of sixteen pages unfolded", &tables)?;

    let found = tables.translate(InputAddress(va.0 + 0x1234))?;
    println!(
        "{:#x} is at {:#x}, by an entry of {}",
        va.0 + 0x1234,
        found.pa.0,
        tables.format().level_name(found.level)
    );
    println!("legal: {}", check(&tables).is_legal());
    Ok(())
}

fn report(what: &str, tables: &Tables<Arm64Stage1>) -> Result<(), Error> {
    let census = tables.census()?;
    println!("{what}: {} bytes of tables", census.table_bytes);
    for (size, bytes) in &census.mapped_bytes {
        println!("  {}K by leaves of {}K in groups of {}K", bytes >> 10, size.leaf_bytes >> 10, size.group_bytes >> 10);
    }
    Ok(())
}
