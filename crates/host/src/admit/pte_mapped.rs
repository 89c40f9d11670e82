//! `+pte-mapped`: large pages without their leaves.

use policy::Granularity;
use policy::Unsupported;

use crate::Host;

/// The mechanism for large pages of this granularity.
///
/// # Errors
/// Pages of this granularity have no leaves that can be split, or pagelab cannot split these leaves.
pub fn means(granularity: Granularity, host: &Host) -> Result<&'static str, Unsupported> {
    match granularity {
        Granularity::Mthp(size) if host.machine()?.arch == "x86_64" => Err(Unsupported {
            reason: format!("x86-64 has no leaf of {size}: base-page entries map such folios anyway"),
            remedy: "leave out +pte-mapped: the entries are the same without it".into(),
        }),
        Granularity::Mthp(size) => Err(Unsupported {
            reason: format!("pagelab does not clear the contiguous bit in the entries of folios of {size}"),
            remedy: "+pte-mapped with thp".into(),
        }),
        Granularity::Hugetlb(_) => Err(Unsupported {
            reason: "the kernel never maps a hugetlb page by base-page entries".into(),
            remedy: "+pte-mapped with thp".into(),
        }),
        _ => Ok("PMD leaves split every 10 ms (MADV_DONTDUMP of a part, and back)"),
    }
}
