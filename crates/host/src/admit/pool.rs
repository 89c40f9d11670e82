//! Hugetlb pools: how many pages they have, and how to get more.

use std::fmt::Display;

use policy::size::PageSize;
use study::comparison::Unsupported;

use crate::{Host, HostError, hugetlb_file};

use super::{Lowering, Privilege, Setting, Terms, list};

/// How much of the available memory a policy may turn into surplus pages where the program's need is not given: three quarters,
/// so that the rest of the system keeps running.
const SURPLUS_QUARTERS: u64 = 3;
/// How much of it is put into a pool whose pages must be allocated in advance: one quarter, because the rest of the system lacks
/// it whether or not the program uses it.
const POOL_QUARTERS: u64 = 1;

/// A pool; all fields are in pages.
struct Pool {
    /// Pages that stay, free or not.
    persistent: u64,
    /// Pages that are neither used nor reserved.
    unclaimed: u64,
    /// Surplus pages that may still be allocated on demand.
    headroom: u64,
}

impl Pool {
    fn read(size: PageSize, host: &Host) -> Result<Pool, HostError> {
        let number = |file: &str| host.required_number(&hugetlb_file(size, file));
        let surplus = number("surplus_hugepages")?;
        Ok(Pool {
            persistent: number("nr_hugepages")?.saturating_sub(surplus),
            unclaimed: number("free_hugepages")?.saturating_sub(number("resv_hugepages")?),
            headroom: number("nr_overcommit_hugepages")?.saturating_sub(surplus),
        })
    }

    fn can_give(&self) -> u64 {
        self.unclaimed.saturating_add(self.headroom)
    }
}

/// The lowering for hugetlb pages of `size`.
pub fn hugetlb(size: PageSize, host: &Host, terms: &Terms) -> Result<Lowering, Unsupported> {
    let sizes = &host.page_sizes().hugetlb;
    if !sizes.contains(&size) {
        let (reason, remedy) = if sizes.is_empty() {
            ("this kernel has no hugetlb pools".into(), "a kernel with CONFIG_HUGETLBFS=y".into())
        } else {
            (format!("this kernel has no pool of {size} pages"), format!("one of {}", list(sizes)))
        };
        return Err(Unsupported { reason, remedy });
    }
    let pool = Pool::read(size, host)?;
    let pages = terms.pool_bytes.map(|bytes| bytes.div_ceil(size.bytes()).max(1));
    if pages.is_some_and(|pages| pool.can_give() >= pages) || (pages.is_none() && pool.unclaimed > 0) {
        return Ok(as_it_is(size, &pool));
    }
    match (pages, terms.privilege) {
        (None, Privilege::User) if pool.headroom > 0 => Ok(as_it_is(size, &pool)),
        (_, Privilege::User) => Err(too_small(size, &pool, pages)),
        (Some(pages), Privilege::Root) => Ok(grown(size, &pool, pages)),
        (None, Privilege::Root) => on_demand(size, &pool, host),
    }
}

/// The refusal when the kernel provided `got` of `asked` pages for the pool of `size`.
pub fn not_granted(size: PageSize, asked: u64, got: u64) -> Unsupported {
    Unsupported {
        reason: format!("the kernel found contiguous memory for {got} of {asked} pages of {size}"),
        remedy: format!(
            "free memory, then echo 1 > /proc/sys/vm/compact_memory, and try again; surest is to reserve them at \
             boot: {}",
            boot_option(size, asked)
        ),
    }
}

/// The kernel command line option that makes a pool (Documentation/admin-guide/mm/hugetlbpage.rst).
pub fn boot_option(size: PageSize, pages: impl Display) -> String {
    format!("hugepagesz={size} hugepages={pages}")
}

/// Whether the kernel can do it only shows when it tries.
const IF_FOUND: &str = "if the kernel finds contiguous memory for them";

fn as_it_is(size: PageSize, pool: &Pool) -> Lowering {
    let (unclaimed, headroom) = (pool.unclaimed, pool.headroom);
    let note = format!("the pool of {size} pages can give {unclaimed} free ones and {headroom} on demand, no more");
    Lowering { mechanism: means(size, "from the pool as it is"), settings: Vec::new(), notes: vec![note] }
}

fn grown(size: PageSize, pool: &Pool, pages: u64) -> Lowering {
    let target = pool.persistent.saturating_add(pages.saturating_sub(pool.unclaimed));
    let settings = vec![Setting::new(hugetlb_file(size, "nr_hugepages"), target)];
    Lowering {
        mechanism: means(size, &format!("from a pool grown to {target} pages")),
        settings,
        notes: vec![IF_FOUND.into()],
    }
}

/// The lowering where the program's need is not given. Pages up to the buddy allocator's largest order are allocated when they
/// are mapped (surplus pages). The kernel does not allocate larger ones that way (`nr_overcommit_hugepages_store`, mm/hugetlb.c),
/// so they are put into the pool in advance.
fn on_demand(size: PageSize, pool: &Pool, host: &Host) -> Result<Lowering, Unsupported> {
    let state = host.state().map_err(|error| Unsupported {
        reason: error.to_string(),
        remedy: "say how much the program needs: --hugetlb-pool SIZE".into(),
    })?;
    let orders = state.free_blocks_by_order.len() as u32;
    if size.order(host.page_sizes().base) >= orders {
        let note = "the pool takes a quarter of the available memory; --hugetlb-pool SIZE says how much it shall be";
        return match state.available_bytes / 4 * POOL_QUARTERS / size.bytes() {
            0 => Err(too_little_memory(size, state.available_bytes)),
            pages => Ok(Lowering { notes: vec![note.into(), IF_FOUND.into()], ..grown(size, pool, pages) }),
        };
    }
    let surplus = state.available_bytes / 4 * SURPLUS_QUARTERS / size.bytes();
    if surplus == 0 {
        return Err(too_little_memory(size, state.available_bytes));
    }
    let settings = vec![Setting::new(hugetlb_file(size, "nr_overcommit_hugepages"), surplus)];
    let note = "pages are taken from free memory when they are mapped, which is part of the time measured; \
                --hugetlb-pool SIZE makes them beforehand";
    let mechanism = means(size, &format!("made on demand, up to {surplus}"));
    Ok(Lowering { mechanism, settings, notes: vec![note.into()] })
}

fn means(size: PageSize, from: &str) -> String {
    format!("anonymous mmap rewritten to MAP_HUGETLB with {size} pages, {from}")
}

fn too_small(size: PageSize, pool: &Pool, pages: Option<u64>) -> Unsupported {
    let (can, wanted) = (pool.can_give(), pages.unwrap_or(1));
    let target = pool.persistent.saturating_add(wanted.saturating_sub(pool.unclaimed));
    let count = pages.map_or("N".to_string(), |_| target.to_string());
    let needs = pages.map_or(String::new(), |pages| format!(", {pages} are needed"));
    let path = hugetlb_file(size, "nr_hugepages");
    Unsupported {
        reason: format!("the pool of {size} pages can give {can}{needs}; only root can make it larger"),
        remedy: format!(
            "run pagelab as root, which puts it back afterwards; or, as root: echo {count} > {path}; or at boot: {}",
            boot_option(size, &count)
        ),
    }
}

fn too_little_memory(size: PageSize, available: u64) -> Unsupported {
    let available = policy::size::format_bytes(available);
    Unsupported {
        reason: format!("{available} of memory are available, too little for a pool of {size} pages"),
        remedy: format!("free memory, or reserve the pages at boot: {}", boot_option(size, 1)),
    }
}
