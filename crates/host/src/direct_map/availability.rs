//! [`Availability`]: whether this boot has leaves of a size, can still be given them, or how to get them.

use policy::Unsupported;
use policy::size::{PageSize, format_bytes};
use policy::verdict::Verdict;

use super::features::{Boot, SecretMemory, has_gigabyte_leaves, secretmem_by_files};
use super::{Leaves, leaves};
use crate::Host;

/// Whether this boot's direct map has leaves of one size, or how to get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// At least nine tenths of the direct map ([`Verdict::HELD`]) are in leaves of that size.
    Now,
    /// `pagelab direct-map demote` can split larger leaves; this lasts until reboot.
    ByDemotion(Unsupported),
    /// Another boot is needed.
    OtherBoot(Unsupported),
    /// pagelab cannot determine whether the size is available.
    Unknown(Unsupported),
}

impl Availability {
    /// `Ok` where the boot has the size now; otherwise the reason and the remedy.
    pub fn admitted(self) -> Result<(), Unsupported> {
        match self {
            Availability::Now => Ok(()),
            Availability::ByDemotion(why) | Availability::OtherBoot(why) | Availability::Unknown(why) => Err(why),
        }
    }
}

/// The availability of every leaf size that this kernel's direct map can have, smallest first.
pub fn availabilities(host: &Host) -> Vec<(PageSize, Availability)> {
    host.page_sizes().direct_map_leaves().into_iter().map(|leaf| (leaf, availability(leaf, host))).collect()
}

/// Whether this boot has direct-map leaves of this size.
pub fn availability(leaf: PageSize, host: &Host) -> Availability {
    let possible = host.page_sizes().direct_map_leaves();
    if !possible.contains(&leaf) {
        let names: Vec<String> = possible.iter().map(PageSize::to_string).collect();
        return Availability::OtherBoot(Unsupported {
            reason: format!("page tables of this kernel have no leaves of {leaf}"),
            remedy: format!("one of {}", names.join(", ")),
        });
    }
    let leaves = match leaves(host) {
        Ok(leaves) => leaves,
        Err(why) => return Availability::Unknown(why),
    };
    if leaves.ratio(leaf) >= Verdict::HELD {
        return Availability::Now;
    }
    let boot = match Boot::of(host) {
        Ok(boot) => boot,
        Err(error) => return Availability::Unknown(error.into()),
    };
    let reason = reason(&leaves, leaf);
    match demotable(&leaves, leaf, host, &boot) {
        Ok(()) => Availability::ByDemotion(Unsupported { reason, remedy: demote_or_boot(leaf, host, &boot) }),
        Err(but) => {
            let reason = but.map_or(reason.clone(), |but| format!("{reason}; {but}"));
            Availability::OtherBoot(Unsupported { reason, remedy: boot_remedy(leaf, host, &boot) })
        }
    }
}

fn reason(leaves: &Leaves, leaf: PageSize) -> String {
    let bytes: Vec<String> =
        leaves.bytes.iter().map(|(leaf, bytes)| format!("{} in {leaf}", format_bytes(*bytes))).collect();
    let twice = leaves.counted_twice_bytes().map(|bytes| format!(", {} of that twice", format_bytes(bytes)));
    format!(
        "{} of the direct map of this boot is in leaves of {leaf} ({} counted{}), and {:.0} % are needed",
        leaves.share(leaf),
        bytes.join(", "),
        twice.unwrap_or_default(),
        Verdict::HELD * 100.0
    )
}

/// Whether larger leaves exist that can be split; the error contains the obstacle, if there is one.
fn demotable(leaves: &Leaves, leaf: PageSize, host: &Host, boot: &Boot) -> Result<(), Option<String>> {
    let smaller = leaves.below(leaf) as f64 / leaves.total_bytes().max(1) as f64;
    if leaves.above(leaf) == 0 || smaller > 1.0 - Verdict::HELD {
        return Err(None);
    }
    match secretmem_by_files(host, boot) {
        SecretMemory::Missing(reason) => Err(Some(format!("memfd_secret: {reason}"))),
        SecretMemory::Available | SecretMemory::Unknown(_) => Ok(()),
    }
}

fn demote_or_boot(leaf: PageSize, host: &Host, boot: &Boot) -> String {
    let name = leaf.to_string().to_ascii_lowercase();
    let command = format!("as root: pagelab direct-map demote --to {name} (the whole host, until reboot)");
    format!("{command}; or {}", boot_remedy(leaf, host, boot))
}

/// How to boot with leaves of this size.
fn boot_remedy(leaf: PageSize, host: &Host, boot: &Boot) -> String {
    let sizes = host.page_sizes().direct_map_leaves();
    match sizes.iter().position(|size| *size == leaf) {
        Some(0) if boot.is_arm() => {
            "boot with rodata=full (processors with BBML2 keep blocks all the same: then debug_pagealloc=on)".into()
        }
        Some(0) => "boot with debug_pagealloc=on (CONFIG_DEBUG_PAGEALLOC), which has costs of its own".into(),
        Some(1) if boot.is_x86() && boot.forbids_gigabytes() => format!("reboot{}", without(boot, false)),
        Some(1) if boot.is_x86() => format!("boot with nogbpages{}", without(boot, false)),
        Some(1) => format!("boot so that blocks are used{}", without(boot, false)),
        // If it is not known whether the processor has 1G leaves, the longer answer is given.
        _ if boot.is_x86() && matches!(has_gigabyte_leaves(host), Ok(Some(false))) => {
            "another processor (or a virtual machine that is shown pdpe1gb): this one has no 1G leaves".into()
        }
        _ => format!(
            "reboot{}; memory below 4G and at the ends of nodes never gets such leaves, so it takes a large machine",
            without(boot, true)
        ),
    }
}

/// The options of this boot that prevent large leaves.
fn without(boot: &Boot, gigabytes: bool) -> String {
    let mut against = Vec::new();
    if boot.debugs_page_allocation() {
        against.push("debug_pagealloc");
    }
    if boot.is_arm() && boot.option("rodata") == Some("full") {
        against.push("rodata=full");
    }
    if gigabytes && boot.forbids_gigabytes() {
        against.push("nogbpages");
    }
    if against.is_empty() { String::new() } else { format!(" without {}", against.join(" and without ")) }
}
