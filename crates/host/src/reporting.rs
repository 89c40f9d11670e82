//! Free memory that a guest reports to its hypervisor, which then takes it away (mm/page_reporting.c).
//!
//! The driver of a balloon device reports free blocks (virtio 1.2, "Free Page Reporting"), in Linux those of at least a certain order:
//! by default the order of huge pages. A host that takes their memory must fault it in again when the guest uses them. So the first
//! touch of a large page often faults in the host; that of a base page, which is mostly made of recently used memory, rarely does.
//!
//! Whether anything is reported depends on the device, not on the order: the parameter page_reporting_order exists without a device
//! (`MAX_ORDER` until Linux 6.1, and -1 since), it stays when the device is removed, and root can set it at any time.

use policy::size::PageSize;

use super::Host;
use super::absent;
use super::read::HostError;

/// The smallest order that is reported, since Linux 5.14.
const ORDER: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
const VIRTIO: &str = "/sys/bus/virtio/devices";
/// The virtio device id of a balloon.
const BALLOON: u64 = 5;
/// VIRTIO_BALLOON_F_REPORTING (include/uapi/linux/virtio_balloon.h).
const REPORTING: usize = 5;
/// VIRTIO_CONFIG_S_DRIVER_OK: a driver uses the device (include/uapi/linux/virtio_config.h).
const DRIVER_OK: u64 = 4;
/// A directory with the attributes of Hyper-V's balloon driver, and one link per device, named by its GUID.
const HYPERV: &str = "/sys/bus/vmbus/drivers/hv_balloon";

/// The size of the smallest free block that is reported; `None` if nothing is reported. `orders`: how many orders of free blocks the
/// allocator has (columns of /proc/buddyinfo).
pub fn smallest_block(host: &Host, orders: usize) -> Result<Option<PageSize>, HostError> {
    let has_virtio = has_reporting_balloon(host)?;
    if !has_virtio && !has_hyperv_balloon(host)? {
        return Ok(None);
    }
    // Without the parameter, Linux before 5.14, whether Hyper-V's driver reports is not visible: before 5.13 it never does.
    let Some(order) = host.value(ORDER)? else { return Ok(host.page_sizes.pmd.filter(|_| has_virtio)) };
    // Hyper-V's driver sets the order only where the hypervisor accepts reports. -1 is not an order.
    let order = order.parse().ok().filter(|order: &u64| *order < orders as u64);
    Ok(order.and_then(|order| PageSize::new(host.page_sizes.base.bytes() << order).ok()))
}

/// Whether there is a balloon in use whose driver has negotiated the feature. The text of the features has one digit per feature.
fn has_reporting_balloon(host: &Host) -> Result<bool, HostError> {
    let number = |text: String| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    for device in absent::names(&host.root, VIRTIO)? {
        let value = |file: &str| host.value(&format!("{VIRTIO}/{device}/{file}"));
        if value("device")?.and_then(number) == Some(BALLOON)
            && value("status")?.and_then(number).is_some_and(|status| status & DRIVER_OK != 0)
            && value("features")?.is_some_and(|features| features.as_bytes().get(REPORTING) == Some(&b'1'))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_hyperv_balloon(host: &Host) -> Result<bool, HostError> {
    let is_guid = |name: &String| name.len() == 36 && name.matches('-').count() == 4;
    Ok(absent::names(&host.root, HYPERV)?.iter().any(is_guid))
}
