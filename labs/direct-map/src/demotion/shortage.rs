//! Takes a page for which the kernel may temporarily have no memory.

use policy::size::format_bytes;

use super::available::READ_INTERVAL;
use super::secret::SecretError;

/// How often held memory is released for one page that the kernel cannot provide; if that does not help, the cause is not a
/// shortage of memory.
const MAX_SHORTAGES: u32 = 8;

/// Why no page was provided.
#[derive(Debug, thiserror::Error)]
pub(super) enum Shortage {
    #[error(transparent)]
    Refused(SecretError),
    #[error("{source}; freeing {} of held memory did not help", format_bytes(*freed_bytes))]
    StillShort { source: SecretError, freed_bytes: u64 },
}

/// Takes a page. Where the kernel has none, releases some memory, waits a little, and tries again.
pub(super) fn take_with_retries<T>(
    mut take: impl FnMut() -> Result<T, SecretError>,
    mut release: impl FnMut() -> u64,
) -> Result<T, Shortage> {
    let mut freed_bytes = 0;
    for _ in 0..MAX_SHORTAGES {
        match take() {
            Ok(taken) => return Ok(taken),
            Err(SecretError::NoPage { .. }) => {}
            Err(error) => return Err(Shortage::Refused(error)),
        }
        match release() {
            0 => break,
            freed => freed_bytes += freed,
        }
        std::thread::sleep(READ_INTERVAL);
    }
    take().map_err(|source| match freed_bytes {
        0 => Shortage::Refused(source),
        freed_bytes => Shortage::StillShort { source, freed_bytes },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_page_that_is_short_is_tried_again_as_long_as_something_can_go() {
        let no_page = || Err::<u64, _>(SecretError::NoPage { used_bytes: 8 << 20, limit_bytes: None });
        let (tries, freed) = (Cell::new(0), Cell::new(0));
        let count = |cell: &Cell<u64>| cell.replace(cell.get() + 1);
        let third = || if count(&tries) < 2 { no_page() } else { Ok(7) };
        assert_eq!(take_with_retries(third, || count(&freed) + 1).unwrap(), 7);
        assert_eq!((tries.get(), freed.get()), (3, 2));
        let alone = take_with_retries(no_page, || 0).unwrap_err().to_string();
        assert!(alone.contains("no free page") && !alone.contains("freeing"), "{alone}");
        let in_vain = take_with_retries(no_page, || 4 << 20).unwrap_err().to_string();
        assert!(in_vain.ends_with("freeing 32M of held memory did not help"), "{in_vain}");
        let other = || Err::<u64, _>(SecretError::Hidden);
        let refused = take_with_retries(other, || panic!("nothing goes for another error"));
        assert!(refused.unwrap_err().to_string().contains("CAP_SYS_ADMIN"));
    }
}
