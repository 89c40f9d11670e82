//! [`batches`] splits the mappings of a process into parts that are small enough to inspect at once.

use std::ops::Range;

use policy::inspect::VmaFacts;
use policy::size::PageSize;

/// Addresses of several mappings that are inspected in one call; the limit keeps the results in memory small.
const BATCH_BYTES: u64 = 1 << 30;
/// The most mappings in such a batch.
const BATCH_MAPPINGS: usize = 4096;
/// Splits the mappings into batches small enough to inspect at once, and a larger mapping into steps of at most `max_bytes` that
/// divide no window. Yields ranges of mapping indexes and of addresses.
pub fn batches(
    vmas: &[VmaFacts],
    max_bytes: u64,
    window: PageSize,
) -> impl Iterator<Item = (Range<usize>, Range<u64>)> + use<'_> {
    let (mut next, mut at) = (0, 0);
    std::iter::from_fn(move || {
        let (first, vma) = (next, vmas.get(next)?);
        let start = vma.start.max(at);
        let fits = |vma: &&VmaFacts| vma.end - start <= BATCH_BYTES;
        next += vmas[first..].iter().take(BATCH_MAPPINGS).take_while(fits).count();
        if next > first {
            return Some((first..next, start..vmas[next - 1].end));
        }
        let step = window.align_down(start.saturating_add(max_bytes)).min(vma.end);
        at = if step > start { step } else { vma.end };
        next += usize::from(at == vma.end);
        Some((first..first + 1, start..at))
    })
}

#[cfg(test)]
mod tests {
    use policy::census::VmaKind;
    use policy::inspect::VmaPart;

    use super::*;

    const G: u64 = 1 << 30;

    fn vma(start: u64, end: u64) -> VmaFacts {
        VmaFacts {
            start,
            end,
            kind: VmaKind::Anonymous,
            protection: 3,
            shared: false,
            device: (0, 0),
            inode: 0,
            offset: 0,
            name: String::new(),
            is_shmem: false,
            file_system: None,
            part: VmaPart::First,
            smaps_info: None,
        }
    }

    #[test]
    fn batches_have_every_address_once_and_end() {
        let vmas = [vma(0x1000, 0x2000), vma(0x2000, G), vma(G, 3 * G + 0x1000), vma(3 * G + 0x2000, 3 * G + 0x3000)];
        let of = |vmas, max_bytes| batches(vmas, max_bytes, PageSize::M2).collect::<Vec<_>>();
        let last = 3 * G..3 * G + 0x3000;
        assert_eq!(of(&vmas, G), [(0..2, 0x1000..G), (2..3, G..2 * G), (2..3, 2 * G..3 * G), (2..4, last)]);
        let last = 3 * G + 0x2000..3 * G + 0x3000;
        assert_eq!(of(&vmas, u64::MAX), [(0..2, 0x1000..G), (2..3, G..3 * G + 0x1000), (3..4, last)]);
        assert_eq!(of(&[], G), []);
        // A large address range must not use much memory, and the highest addresses must not cause an endless loop.
        assert_eq!(batches(&[vma(0x1000, 1 << 46)], G, PageSize::M2).count(), 1 << 16);
        assert_eq!(batches(&[vma(u64::MAX - 4 * G, u64::MAX)], G, PageSize::M2).last().unwrap().1.end, u64::MAX);
    }
}
