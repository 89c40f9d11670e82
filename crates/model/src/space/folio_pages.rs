//! The state of the pages of a folio.

/// The mapping state of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Number of mappings, in all processes.
    pub(super) count: u16,
    /// Exclusive to one process, so it may become writable without a fault (`PageAnonExclusive`,
    /// include/linux/page-flags.h). A fork clears this; a write fault that finds the page unshared sets it again.
    pub(super) is_exclusive: bool,
    /// Whether a process has stored to it; otherwise it holds zeros. Recorded only under policies with large folios.
    pub(super) is_stored_to: bool,
}

impl Page {
    /// A newly allocated page, mapped once.
    pub(super) const NEW: Page = Page { count: 1, is_exclusive: true, is_stored_to: false };
}

/// The pages of a folio. Most folios have one.
#[derive(Clone, Debug)]
pub(super) enum Pages {
    One(Page),
    Many(Box<[Page]>),
}

impl Pages {
    pub(super) fn all(&self) -> &[Page] {
        match self {
            Pages::One(page) => std::slice::from_ref(page),
            Pages::Many(pages) => pages,
        }
    }

    pub(super) fn all_mut(&mut self) -> &mut [Page] {
        match self {
            Pages::One(page) => std::slice::from_mut(page),
            Pages::Many(pages) => pages,
        }
    }
}
