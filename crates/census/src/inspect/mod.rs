//! Inspecting a process: its regions, what maps them, and why not larger pages.
//!
//! What is read is read mapping by mapping, and only sums are kept, so that the memory that this takes does not grow with the
//! process. Nothing is changed. A running process changes meanwhile: it is looked at again where it has executed another program,
//! and what else changed is said in [`Inspection::partial`].

mod error;
mod identity;
mod look;
mod stacks;
mod status;
pub mod which;

use host::Host;
use policy::PageSizes;
use policy::inspect::{Inspection, Pool, Supply};
use policy::size::PageSize;

use crate::Observer;
pub use error::InspectError;
use identity::Identity;

/// What is looked at beside what always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// What is in each window of PMD size ([`policy::inspect::Region::windows`]).
    pub windows: bool,
}

/// How often a process that executes another program meanwhile is looked at.
const LOOKS: usize = 3;

/// Looks at processes of the running kernel.
pub struct Inspector {
    host: Host,
    observer: Observer,
    detail: Detail,
}

impl Inspector {
    /// An inspector that looks through `observer`, whose rights decide what is seen.
    pub fn new(host: Host, observer: Observer, detail: Detail) -> Inspector {
        Inspector { host, observer, detail }
    }

    /// The sizes of the kernel.
    pub fn page_sizes(&self) -> &PageSizes {
        self.host.page_sizes()
    }

    /// What the kernel could give now. It is the same for all processes of one look.
    ///
    /// # Errors
    /// Files that every kernel has cannot be read.
    pub fn supply(&self) -> Result<Supply, InspectError> {
        let state = self.host.state()?;
        let counters = self.host.counters()?;
        Ok(Supply {
            free_blocks_by_order: state.free_blocks_by_order,
            available_bytes: state.available_bytes,
            settings: state.settings,
            pools: self.host.page_sizes().hugetlb.iter().filter_map(|size| self.pool(*size)).collect(),
            counters: counters.iter().map(|(name, value)| (name.to_string(), value)).collect(),
        })
    }

    fn pool(&self, size: PageSize) -> Option<Pool> {
        let number = |file: &str| self.host.number(&host::hugetlb_file(size, file));
        let promised = number("resv_hugepages").unwrap_or(0);
        let surplus = number("surplus_hugepages").unwrap_or(0);
        Some(Pool {
            size,
            pages: number("nr_hugepages")?,
            free: number("free_hugepages")?.saturating_sub(promised),
            surplus_left: number("nr_overcommit_hugepages").unwrap_or(0).saturating_sub(surplus),
        })
    }

    /// Inspects a process.
    ///
    /// # Errors
    /// [`InspectError`]: there is no such process, it has no memory, or may not be looked at.
    pub fn process(&self, pid: u32, supply: &Supply) -> Result<Inspection, InspectError> {
        let mut looks = 0;
        loop {
            looks += 1;
            let before = Identity::of(pid)?;
            let mut inspection = look::look(&self.observer, &before, supply, self.detail)?;
            match Identity::of(pid) {
                Ok(after) if after.started_ticks != before.started_ticks => return Err(InspectError::Replaced { pid }),
                Ok(after) if !before.is_same_program(&after) && looks < LOOKS => continue,
                Ok(after) if !before.is_same_program(&after) => {
                    inspection.partial.push("it executed other programs meanwhile, again and again".into());
                }
                Ok(_) => {}
                Err(_) => inspection.partial.push("it ended meanwhile: what was read last may be missing".into()),
            }
            return Ok(inspection);
        }
    }
}
