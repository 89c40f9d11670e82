//! Serves the calls that lock, name and query parts of memory, at the granularity of base pages.

use super::{CallServer, Served, Step, or_fail};

impl CallServer<'_> {
    /// Serves mlock. Hugetlb pages always stay in memory, which is the purpose of a lock, but the kernel does not record the
    /// lock for them.
    pub(super) async fn lock(&mut self, start: u64, bytes: u64) -> Served {
        let Some((start, end)) = self.touched_by(start, bytes) else { return Ok(None) };
        let result = self.original_call().await;
        if result == 0 {
            self.views.lock(start, end);
        }
        Ok(Some(self.unless_hole(start, end, result)))
    }

    pub(super) async fn unlock(&mut self, start: u64, bytes: u64) -> Served {
        let Some((start, end)) = self.touched_by(start, bytes) else { return Ok(None) };
        let result = self.original_call().await;
        self.views.unlock(start, end);
        Ok(Some(self.unless_hole(start, end, result)))
    }

    /// Serves the calls that also show whether memory is mapped (mincore, msync).
    pub(super) async fn query(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes).filter(|end| self.views.has_hole(start, *end)) else {
            return Ok(None);
        };
        let result = self.original_call().await;
        Ok(Some(self.unless_hole(start, end, result)))
    }

    /// The base pages that a range touches; `None` if none of them is backed by the pool.
    fn touched_by(&self, start: u64, bytes: u64) -> Option<(u64, u64)> {
        let (start, end) = (self.mechanism.base.align_down(start), self.base_up(start.checked_add(bytes)?)?);
        (start < end && self.views.concerns(start, end)).then_some((start, end))
    }

    /// Serves PR_SET_VMA_ANON_NAME. The kernel names only memory without a file. Hugetlb pages have a file, but not from the
    /// program's point of view, so the call reports success for them.
    pub(super) async fn name(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes).filter(|end| self.views.concerns(start, *end)) else {
            return Ok(None);
        };
        // A call with zero bytes shows whether the kernel supports names, and whether this name is valid.
        or_fail(self.result(Step::OwnCallOn((start, 0))).await)?;
        let mut result = 0;
        for (s, e) in self.views.ordinary(start, end) {
            let here = self.result(Step::OwnCallOn((s, e - s))).await;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(self.unless_hole(start, end, result)))
    }

    /// Serves mbind and set_mempolicy_home_node. A NUMA policy applies to whole pages, so memory that shares a page with the
    /// range gets it too.
    pub(super) async fn on_whole_pages(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        let mut result = 0;
        let size = self.size();
        let whole = self.views.backed_parts(start, end).into_iter().map(|(s, e)| super::views::outline(s, e, size));
        let parts: Vec<(u64, u64)> = whole.chain(self.views.ordinary(start, end)).collect();
        for (s, e) in parts {
            let here = self.result(Step::OwnCallOn((s, e - s))).await;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
    }
}
