//! Serves the calls that lock, name and query memory, or set its NUMA policy. Ranges are in base pages; only NUMA policies are widened
//! to pages of the pool.

use super::{CallServer, Served, Step, or_fail};

impl CallServer<'_> {
    /// Serves mlock. The kernel does not mark hugetlb VMAs as locked, because their pages always stay in memory. So the views record the
    /// lock.
    pub(super) async fn lock(&mut self, start: u64, bytes: u64) -> Served {
        let Some((start, end)) = self.base_pages_of_backed(start, bytes) else { return Ok(None) };
        let result = self.original_call().await;
        if result == 0 {
            self.views.lock(start, end);
        }
        Ok(Some(self.or_enomem_for_hole(start, end, result)))
    }

    pub(super) async fn unlock(&mut self, start: u64, bytes: u64) -> Served {
        let Some((start, end)) = self.base_pages_of_backed(start, bytes) else { return Ok(None) };
        let result = self.original_call().await;
        // Also on failure: on ENOMEM the kernel has unlocked what is before the hole.
        self.views.unlock(start, end);
        Ok(Some(self.or_enomem_for_hole(start, end, result)))
    }

    /// Serves mincore and msync, which need a change only where the range has a hole: they then fail with ENOMEM.
    pub(super) async fn query(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes).filter(|end| self.views.has_hole(start, *end)) else {
            return Ok(None);
        };
        let result = self.original_call().await;
        Ok(Some(self.or_enomem_for_hole(start, end, result)))
    }

    /// The range widened to base pages; `None` if the pool backs no part of it.
    fn base_pages_of_backed(&self, start: u64, bytes: u64) -> Option<(u64, u64)> {
        let (start, end) = (self.mechanism.base.align_down(start), self.base_up(start.checked_add(bytes)?)?);
        (start < end && self.views.concerns(start, end)).then_some((start, end))
    }

    /// Serves PR_SET_VMA_ANON_NAME. The kernel refuses names for hugetlb pages, because they have a file. The program sees them as
    /// anonymous, so the call reports success for them.
    pub(super) async fn set_name(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes).filter(|end| self.views.concerns(start, *end)) else {
            return Ok(None);
        };
        // A call with zero bytes shows whether the kernel supports names, and whether this name is valid.
        or_fail(self.result(Step::OwnCallOn((start, 0))).await)?;
        let mut result = 0;
        for (s, e) in self.views.ordinary(start, end) {
            let here = self.result(Step::OwnCallOn((s, e - s))).await;
            // The first error is the answer.
            result = if result == 0 { here } else { result };
        }
        Ok(Some(self.or_enomem_for_hole(start, end, result)))
    }

    /// Serves mbind and set_mempolicy_home_node. On memory of the pool a NUMA policy applies to whole hugetlb pages, so memory that shares
    /// such a page with the range gets it too.
    pub(super) async fn bind(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        let mut result = 0;
        let size = self.size();
        let whole = self.views.backed_parts(start, end).into_iter().map(|(s, e)| super::views::outline(s, e, size));
        let parts: Vec<(u64, u64)> = whole.chain(self.views.ordinary(start, end)).collect();
        for (s, e) in parts {
            let here = self.result(Step::OwnCallOn((s, e - s))).await;
            // The first error is the answer.
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
    }
}
