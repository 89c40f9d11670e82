//! Hugetlb pools: how many pages they have, and how to get more.

use std::fmt::Display;

use policy::Unsupported;
use policy::hugetlb::{HugetlbLimit, HugetlbLimits};
use policy::inspect::Pool;
use policy::size::PageSize;

use crate::{Host, KernelVersion, hugetlb_file};

use super::{Lowering, Privilege, Setting, Terms, list};

/// Quarters of the available memory that a policy may turn into surplus pages if the user did not specify the program's need. The
/// rest keeps the system running.
const SURPLUS_QUARTERS: u64 = 3;
/// Quarters of the available memory put into a pool whose pages must be allocated in advance: one, because the rest of the system
/// lacks that memory whether or not the program uses it.
const POOL_QUARTERS: u64 = 1;

/// The version since which pages can be populated without a risk of SIGBUS under a limit on pages in use
/// (madvise(MADV_POPULATE_WRITE)).
const SAFE_UNDER_LIMITS: KernelVersion = super::POPULATE_WRITE;

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
    let limits = host.hugetlb_limits(size)?;
    usable(size, &limits, host)?;
    let pool = host.pool(size)?;
    let room = limits.room_pages();
    let pages = terms.pool_bytes.map(|bytes| bytes.div_ceil(size.bytes()).max(1).min(room));
    let lowering = if pages.is_some_and(|pages| pool.available() >= pages) || (pages.is_none() && pool.free > 0) {
        from_unchanged_pool(&pool)
    } else {
        match (pages, terms.privilege) {
            (None, Privilege::User) if pool.surplus_left > 0 => from_unchanged_pool(&pool),
            (_, Privilege::User) => return Err(too_small(&pool, pages)),
            (Some(pages), Privilege::Root) => from_enlarged_pool(&pool, pages),
            (None, Privilege::Root) => on_demand(&pool, room, host)?,
        }
    };
    let notes = lowering.notes.into_iter().chain(limited(&limits)).collect();
    Ok(Lowering { notes, ..lowering })
}

/// Checks that the control groups have room for a page, and that a page beyond their limits would not kill the program.
fn usable(size: PageSize, limits: &HugetlbLimits, host: &Host) -> Result<(), Unsupported> {
    if let Some(limit) = limits.tightest().filter(|_| limits.room_pages() == 0) {
        let HugetlbLimit { file, unlimited, .. } = limit;
        return Err(Unsupported {
            reason: format!("the control group of pagelab has no room for a page of {size}: {}", limit.describe()),
            remedy: format!(
                "as root, outside a container: echo {unlimited} > {file}; or run pagelab in another control group"
            ),
        });
    }
    match host.kernel_version()? {
        Some(version) if limits.may_refuse_faults() && version < SAFE_UNDER_LIMITS => Err(Unsupported {
            reason: format!(
                "control groups may limit pages of {size}, and before Linux {SAFE_UNDER_LIMITS} a page beyond the limit cannot be \
                 asked for without a risk of SIGBUS; this is {version}"
            ),
            remedy: "run pagelab in a control group without hugetlb limits".into(),
        }),
        _ => Ok(()),
    }
}

/// What limits of control groups change, as a note.
fn limited(limits: &HugetlbLimits) -> Option<String> {
    let why = match limits.tightest() {
        Some(limit) => limit.describe(),
        None if limits.may_be_hidden => {
            "control groups that are not visible in this namespace may limit the pages".to_string()
        }
        None => return None,
    };
    let populated =
        "pages are taken when memory is mapped, not when it is touched; mappings beyond that are ordinary memory";
    Some(format!("{why}: {}", if limits.may_refuse_faults() { populated } else { "memory beyond it is ordinary" }))
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

/// A condition for texts: whether the kernel finds memory for the pages cannot be predicted.
const IF_FOUND: &str = "if the kernel finds contiguous memory for them";

fn from_unchanged_pool(pool: &Pool) -> Lowering {
    let Pool { size, free, surplus_left, .. } = pool;
    let note = format!("the pool of {size} pages has {free} free pages and can add at most {surplus_left} on demand");
    Lowering { mechanism: means(*size, "from the pool as it is"), settings: Vec::new(), notes: vec![note] }
}

fn from_enlarged_pool(pool: &Pool, pages: u64) -> Lowering {
    let target = enlarged_count(pool, pages);
    let settings = vec![Setting::new(hugetlb_file(pool.size, "nr_hugepages"), target)];
    Lowering {
        mechanism: means(pool.size, &format!("from a pool grown to {target} pages")),
        settings,
        notes: vec![IF_FOUND.into()],
    }
}

/// The number of configured pages with which the pool has `pages` free pages.
fn enlarged_count(pool: &Pool, pages: u64) -> u64 {
    pool.pages.saturating_sub(pool.surplus).saturating_add(pages.saturating_sub(pool.free))
}

/// The lowering if the user did not specify the program's need. Pages up to the buddy allocator's largest order are allocated when they
/// are mapped (surplus pages). The kernel does not allocate larger ones that way (`nr_overcommit_hugepages_store`, mm/hugetlb.c),
/// so they are put into the pool in advance.
fn on_demand(pool: &Pool, room: u64, host: &Host) -> Result<Lowering, Unsupported> {
    let state = host.state().map_err(|error| Unsupported {
        reason: error.to_string(),
        remedy: "say how much the program needs: --hugetlb-pool SIZE".into(),
    })?;
    let orders = state.free_blocks_by_order.len() as u32;
    let size = pool.size;
    if size.order(host.page_sizes().base) >= orders {
        let note = "the pool takes a quarter of the available memory; --hugetlb-pool SIZE sets another size";
        return match state.available_bytes / 4 * POOL_QUARTERS / size.bytes() {
            0 => Err(too_little_memory(size, state.available_bytes)),
            pages => {
                Ok(Lowering { notes: vec![note.into(), IF_FOUND.into()], ..from_enlarged_pool(pool, pages.min(room)) })
            }
        };
    }
    let surplus = state.available_bytes / 4 * SURPLUS_QUARTERS / size.bytes();
    if surplus == 0 {
        return Err(too_little_memory(size, state.available_bytes));
    }
    let surplus = surplus.min(room);
    let settings = vec![Setting::new(hugetlb_file(size, "nr_overcommit_hugepages"), surplus)];
    let note = "pages are taken from free memory when they are mapped, which is part of the time measured; \
                --hugetlb-pool SIZE makes them beforehand";
    let mechanism = means(size, &format!("made on demand, up to {surplus}"));
    Ok(Lowering { mechanism, settings, notes: vec![note.into()] })
}

fn means(size: PageSize, from: &str) -> String {
    format!("anonymous mmap rewritten to MAP_HUGETLB with {size} pages, {from}")
}

fn too_small(pool: &Pool, pages: Option<u64>) -> Unsupported {
    let (size, can) = (pool.size, pool.available());
    let target = enlarged_count(pool, pages.unwrap_or(1));
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
