//! Lists what tables in a dump of physical memory map: `cargo run -p paging --example read_dump -- FORMAT FILE BASE ROOT`.
//!
//! FORMAT is a name such as x86-64, arm64-4k-48 or sv39. BASE is the physical address of the first byte of the file, ROOT that of the root
//! table, both in hexadecimal. `pagelab table build` writes such files, and so does QEMU's monitor (pmemsave).

use std::error::Error;

use paging::format::named::Named;
use paging::{Action, Arena, Format, Node, OutputAddress, Tables, Visitor, check, with_format};

/// Adjacent leaves of one size, which are printed as one line.
#[derive(Default)]
struct Leaves {
    /// The first input address, the size of each leaf, and their number.
    open: Option<(u64, u64, u64)>,
}

impl Leaves {
    fn close(&mut self) {
        if let Some((va, bytes, count)) = self.open.take() {
            println!("{va:#018x} +{:#x}: {count} x {}K", bytes * count, bytes >> 10);
        }
    }
}

impl Visitor for Leaves {
    fn leaf(&mut self, node: &Node) -> Action {
        match &mut self.open {
            Some((va, bytes, count)) if *bytes == node.bytes && *va + *bytes * *count == node.va.0 => *count += 1,
            _ => {
                self.close();
                self.open = Some((node.va.0, node.bytes, 1));
            }
        }
        Action::Continue
    }
}

fn list(format: impl Format, arena: Arena, root: OutputAddress) -> Result<(), Box<dyn Error>> {
    let tables = Tables::in_arena(format, arena, root);
    let mut leaves = Leaves::default();
    tables.walk_all(&mut leaves)?;
    leaves.close();
    let report = check::check(&tables);
    report.faults.iter().for_each(|fault| println!("{fault}"));
    println!("{} tables, {} bytes mapped, legal: {}", report.tables, report.mapped_bytes(), report.is_legal());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [format, file, base, root] = words.as_slice() else {
        return Err("expected FORMAT FILE BASE ROOT, such as arm64-4k-48 tables.img 0x40000000 0x40000000".into());
    };
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).map(OutputAddress);
    let arena = Arena::from_image(address(base)?, &std::fs::read(file)?)?;
    let (named, root) = (format.parse::<Named>()?, address(root)?);
    with_format!(named, format => list(format, arena, root))
}
