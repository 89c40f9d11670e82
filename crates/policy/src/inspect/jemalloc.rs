//! [`Jemalloc`] in a program or a library: it refuses base pages larger than those that it was built for (`--with-lg-page`).

use crate::size::PageSize;

/// jemalloc in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jemalloc {
    /// The path of the file.
    pub file: String,
    /// The base page size that it was built for; `None` where the file does not show it.
    pub built_for: Option<PageSize>,
}

impl Jemalloc {
    /// Whether it may refuse a base page size of some kernel.
    pub fn may_refuse(&self) -> bool {
        self.built_for.is_none_or(|built_for| built_for < PageSize::K64)
    }

    /// The refusal in one clause.
    pub fn describe(&self) -> String {
        let file = &self.file;
        match self.built_for {
            Some(built_for) => {
                format!("jemalloc in {file} was built for base pages of {built_for}: it refuses larger ones")
            }
            None => format!(
                "jemalloc in {file} refuses base pages larger than those that it was built for; the file does not show which"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_64k_refuse_none() {
        let of = |built_for| Jemalloc { file: "/a".into(), built_for };
        assert!([None, Some(PageSize::K4), Some(PageSize::K16)].map(of).iter().all(Jemalloc::may_refuse));
        assert!(!of(Some(PageSize::K64)).may_refuse());
        assert_eq!(
            of(Some(PageSize::K4)).describe(),
            "jemalloc in /a was built for base pages of 4K: it refuses larger ones"
        );
        assert!(of(None).describe().ends_with("the file does not show which"));
    }
}
