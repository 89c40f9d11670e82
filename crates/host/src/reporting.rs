//! Free memory that a hypervisor is told of, so that it can take it (mm/page_reporting.c).
//!
//! A balloon device reports free blocks from an order on (virtio 1.2, 5.5.6.6 "Free Page Reporting"), which is that of
//! huge pages unless somebody chose another. A host that takes their memory must fault it in again when the guest uses
//! them: large pages are made of such blocks, base pages mostly of what was used a moment ago.

use policy::size::PageSize;

use super::Host;
use super::absent;
use super::read::HostError;

/// The order, since Linux 5.14. It is set when a device begins to report; before that it is -1.
const ORDER: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
const VIRTIO: &str = "/sys/bus/virtio/devices";
/// The number of a balloon among virtio devices.
const BALLOON: u64 = 5;
/// VIRTIO_BALLOON_F_REPORTING (include/uapi/linux/virtio_balloon.h).
const REPORTING: usize = 5;
/// No order is as large: the kernel's largest is 10 with 4K pages, and 13 with others (include/linux/mmzone.h).
const NO_ORDER: u64 = 20;

/// The smallest free block that is reported; `None` where nobody reports.
///
/// # Errors
/// What says so is there, and cannot be read.
pub fn smallest_block(host: &Host) -> Result<Option<PageSize>, HostError> {
    let Some(order) = host.value(ORDER)? else {
        let reports = has_reporting_balloon(host)?;
        return Ok(host.page_sizes.pmd.filter(|_| reports));
    };
    // -1 is no order.
    let order = order.parse().ok().filter(|order: &u64| *order < NO_ORDER);
    Ok(order.and_then(|order| PageSize::new(host.page_sizes.base.bytes() << order).ok()))
}

/// Before the order could be seen: a balloon that has agreed on the feature. The text has a digit for each.
fn has_reporting_balloon(host: &Host) -> Result<bool, HostError> {
    let number = |text: String| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    for device in absent::names(&host.root, VIRTIO)? {
        let value = |file: &str| host.value(&format!("{VIRTIO}/{device}/{file}"));
        if value("device")?.and_then(number) == Some(BALLOON)
            && value("features")?.is_some_and(|features| features.as_bytes().get(REPORTING) == Some(&b'1'))
        {
            return Ok(true);
        }
    }
    Ok(false)
}
