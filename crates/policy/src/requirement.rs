//! [`Requirement`], such as `large>=95%`, and [`RequirementCheck`], which judges whether memory meets it, how much is missing,
//! and why.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::cause::Cause;
use crate::census::{Backing, Census, Folio, Mapping};
use crate::size::{PageSize, format_bytes, parse_bytes};

/// A requirement: `[SCOPE:]FIGURE>=AMOUNT` or `[SCOPE:]FIGURE<=AMOUNT`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requirement {
    /// The memory that it is about.
    pub scope: Scope,
    /// The figure of that memory.
    pub figure: Figure,
    /// On which side of the amount the figure has to be.
    pub bound: Bound,
    /// The amount.
    pub amount: Amount,
}

/// The memory that a requirement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Memory whose page size settings decide: anonymous, shared and hugetlb memory.
    Sized,
    /// `guest:`, guest memory: in a process with virtual machines, the regions of anonymous, shared or hugetlb memory of at least
    /// 16M that are not recognised as something else.
    Guest,
    /// `all:`, all resident memory, with files.
    All,
}

/// The figure that a requirement compares with an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// `large`: memory that page-table entries larger than base pages map. Folios that base-page entries map do not count.
    Large,
    /// A page size: memory in pages of at least this size. For PMD size and above, the size of the page-table entry counts;
    /// below that, the size of the folio, if the process maps the whole folio.
    Size(PageSize),
    /// `could-be-larger`: memory whose pages could be larger.
    CouldBeLarger,
}

/// On which side of the amount the figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
}

/// The amount with which a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A share of the memory in the scope: 0.95 is `95%`.
    Share(f64),
    /// A number of bytes.
    Bytes(u64),
}

/// The text is not a requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no requirement: {1}; expected [guest:|all:]FIGURE>=AMOUNT or <=AMOUNT, with `large` (page-table entries above the base \
     page), `could-be-larger` or a page size (below the PMD size: folios of it) as figure, and per cent or bytes as amount: large>=95%, \
     2M>=80%, guest:large>=95%, could-be-larger<=64M"
)]
pub struct RequirementError(String, String);

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Requirement, RequirementError> {
        let wrong = |why: String| RequirementError(text.to_owned(), why);
        let split =
            |operator: &str, bound: Bound| text.split_once(operator).map(|(figure, amount)| (figure, bound, amount));
        let (left, bound, amount) = split(">=", Bound::AtLeast)
            .or_else(|| split("<=", Bound::AtMost))
            .ok_or_else(|| wrong("it has neither >= nor <=".to_owned()))?;
        let (scope, figure) = match left.trim().split_once(':') {
            None => (Scope::Sized, left.trim()),
            Some(("guest", figure)) => (Scope::Guest, figure),
            Some(("all", figure)) => (Scope::All, figure),
            Some((other, _)) => return Err(wrong(format!("{other:?} is no scope"))),
        };
        let figure = match figure {
            "large" => Figure::Large,
            "could-be-larger" => Figure::CouldBeLarger,
            size => Figure::Size(size.parse().map_err(|_| wrong(format!("{size:?} is no figure")))?),
        };
        let amount = amount.trim();
        let amount = match amount.strip_suffix('%').map(|percent| percent.trim_end().parse::<f64>()) {
            Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => Amount::Share(percent / 100.0),
            Some(_) => return Err(wrong(format!("{amount:?} is not between 0% and 100%"))),
            None => Amount::Bytes(parse_bytes(amount).map_err(|error| wrong(error.to_string()))?),
        };
        Ok(Requirement { scope, figure, bound, amount })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scope {
            Scope::Sized => "",
            Scope::Guest => "guest:",
            Scope::All => "all:",
        })?;
        match self.figure {
            Figure::Large => f.write_str("large")?,
            Figure::CouldBeLarger => f.write_str("could-be-larger")?,
            Figure::Size(size) => write!(f, "{size}")?,
        }
        f.write_str(if self.bound == Bound::AtLeast { ">=" } else { "<=" })?;
        match self.amount {
            // At most six decimals: 0.95 times 100 is not exactly 95.
            Amount::Share(share) => write!(f, "{}%", (share * 1e8).round() / 1e6),
            Amount::Bytes(bytes) => {
                // `format_bytes` may round; a rounded text is not used.
                let text = Some(format_bytes(bytes)).filter(|text| parse_bytes(text) == Ok(bytes));
                f.write_str(&text.unwrap_or_else(|| bytes.to_string()))
            }
        }
    }
}

/// The memory of processes, added up for one requirement.
#[derive(Clone, Debug)]
pub struct RequirementCheck {
    requirement: Requirement,
    /// The value of the figure.
    bytes: u64,
    /// Memory in the scope.
    of_bytes: u64,
    /// Memory that may or may not count, because its folios are not visible.
    hidden_bytes: u64,
    /// Why memory in the scope is not larger.
    causes: BTreeMap<Cause, u64>,
    /// Why the figure is not known.
    why_unknown: Option<String>,
}

/// Whether a requirement is met.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The requirement.
    pub requirement: Requirement,
    /// `None` where that is not known.
    pub is_met: Option<bool>,
    /// The value of the figure.
    pub bytes: u64,
    /// Memory in the scope.
    pub of_bytes: u64,
    /// Bytes by which the figure misses the amount.
    pub off_by_bytes: u64,
    /// Why memory in the scope is not larger, with the bytes of each cause, largest first.
    pub causes: Vec<(Cause, u64)>,
    /// Why `is_met` is not known.
    pub why_unknown: Option<String>,
}

impl Requirement {
    /// Whether a mapping has the size that the figure asks for; false for `could-be-larger`, which is not about sizes.
    fn has_size(&self, mapping: &Mapping, base_bytes: u64) -> bool {
        match self.figure {
            Figure::Large => mapping.leaf.bytes() > base_bytes,
            Figure::Size(size) if !self.needs_folios(base_bytes) => mapping.leaf >= size,
            Figure::Size(size) => mapping.effective() >= size,
            Figure::CouldBeLarger => false,
        }
    }

    /// Whether the requirement is about a size below that of a PMD leaf, which only folios can have.
    fn needs_folios(&self, base_bytes: u64) -> bool {
        // Table entries have 8 bytes, and a table fills a page.
        matches!(self.figure, Figure::Size(size) if size.bytes() < base_bytes * base_bytes / 8)
    }
}

impl Scope {
    fn has_mapping(self, mapping: &Mapping) -> bool {
        match self {
            Scope::Sized => !matches!(mapping.backing, Backing::File | Backing::Zero),
            Scope::Guest | Scope::All => mapping.backing != Backing::Zero,
        }
    }
}

/// A share of 1 in millionths of a per cent.
const WHOLE: u128 = 100_000_000;

impl RequirementCheck {
    /// A check without memory.
    pub fn new(requirement: Requirement) -> RequirementCheck {
        RequirementCheck {
            requirement,
            bytes: 0,
            of_bytes: 0,
            hidden_bytes: 0,
            causes: BTreeMap::new(),
            why_unknown: None,
        }
    }

    /// Adds the memory of a census that is in the scope, and returns its bytes.
    pub fn add_census(&mut self, census: &Census, base_bytes: u64) -> u64 {
        let Requirement { scope, .. } = self.requirement;
        let before_bytes = self.of_bytes;
        for (mapping, bytes) in census.rows().filter(|(mapping, _)| scope.has_mapping(mapping)) {
            self.of_bytes += bytes;
            if self.requirement.has_size(mapping, base_bytes) {
                self.bytes += bytes;
            } else if self.requirement.needs_folios(base_bytes) && mapping.folio == Folio::Unknown {
                self.hidden_bytes += bytes;
            }
        }
        self.of_bytes - before_bytes
    }

    /// Adds bytes to the figure.
    pub fn add_to_figure(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Adds a reason why memory in the scope is not larger.
    pub fn add_cause(&mut self, cause: &Cause, bytes: u64) {
        *self.causes.entry(cause.clone()).or_default() += bytes;
    }

    /// The requirement that the check judges by.
    pub fn requirement(&self) -> &Requirement {
        &self.requirement
    }

    /// Records that part of the memory was not inspected.
    pub fn mark_incomplete(&mut self, why: &str) {
        self.why_unknown.get_or_insert_with(|| why.to_owned());
    }

    /// Judges the memory of all processes that were added.
    pub fn judge(self) -> Judgement {
        let Requirement { scope, bound, amount, figure } = self.requirement;
        let limit_bytes = match amount {
            Amount::Bytes(bytes) => bytes,
            Amount::Share(share) => {
                // In millionths of a per cent, so that 55 % of 200M is exactly that.
                let parts = u128::from(self.of_bytes) * (share * WHOLE as f64).round() as u128;
                (if bound == Bound::AtLeast { parts.div_ceil(WHOLE) } else { parts / WHOLE }) as u64
            }
        };
        let off_by_bytes = |bytes: u64| match bound {
            Bound::AtLeast => limit_bytes.saturating_sub(bytes),
            Bound::AtMost => bytes.saturating_sub(limit_bytes),
        };
        // Hidden folios may or may not have the size.
        let is_met = [self.bytes, self.bytes + self.hidden_bytes].map(|bytes| off_by_bytes(bytes) == 0);
        let why_unknown = match self.why_unknown {
            None if self.of_bytes == 0 && scope == Scope::Guest => {
                Some("no memory of a virtual machine was found".to_owned())
            }
            None if self.of_bytes == 0 => Some("there is no such memory".to_owned()),
            None if is_met[0] != is_met[1] => Some("folios are visible only to root".to_owned()),
            why => why,
        };
        // The causes say why memory is not larger. They explain too little large memory, and too much memory that could be
        // larger.
        let is_explained = (bound == Bound::AtLeast) != (figure == Figure::CouldBeLarger);
        let mut causes: Vec<(Cause, u64)> = self.causes.into_iter().filter(|_| is_explained).collect();
        causes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Judgement {
            requirement: self.requirement,
            is_met: why_unknown.is_none().then_some(is_met[0]),
            bytes: self.bytes,
            of_bytes: self.of_bytes,
            off_by_bytes: off_by_bytes(self.bytes),
            causes,
            why_unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Requirement {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn requirements_are_printed_as_they_are_written() {
        for text in ["large>=95%", "2M>=80%", "could-be-larger<=64M", "guest:large>=99.5%", "all:64K<=0%", "1G>=2G"] {
            assert_eq!(parsed(text).to_string(), text);
        }
        assert_eq!(parsed(" large >= 95 % ").to_string(), "large>=95%");
        assert_eq!(parsed("2048k<=1GiB").to_string(), "2M<=1G");
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        for (text, why) in [
            ("large", "neither >= nor <="),
            ("large>95%", "neither >= nor <="),
            ("huge>=95%", "\"huge\" is no figure"),
            ("3M>=95%", "\"3M\" is no figure"),
            ("host:large>=95%", "\"host\" is no scope"),
            ("large>=101%", "not between 0% and 100%"),
            ("large>=NaN%", "not between 0% and 100%"),
            ("large>=-1", "-1"),
            (">=1%", "\"\" is no figure"),
            ("large>=", "\"\""),
        ] {
            let error = text.parse::<Requirement>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    /// The judgement of a check after it was given this memory.
    fn check(text: &str, bytes: u64, of_bytes: u64, hidden_bytes: u64) -> Judgement {
        RequirementCheck { bytes, of_bytes, hidden_bytes, ..RequirementCheck::new(parsed(text)) }.judge()
    }

    #[test]
    fn a_share_is_met_to_the_byte() {
        assert_eq!(check("large>=95%", 95, 100, 0).is_met, Some(true));
        let missed = check("large>=95%", 94, 100, 0);
        assert_eq!((missed.is_met, missed.off_by_bytes), (Some(false), 1));
        assert_eq!(check("large>=95%", 961, 1010, 0).is_met, Some(true), "95 % of 1010 is 959.5");
        assert_eq!(check("could-be-larger<=50%", 505, 1010, 0).is_met, Some(true));
        for percent in 1..=100u64 {
            let of_bytes = 100 << 20;
            let bytes = of_bytes / 100 * percent;
            for bound in [">=", "<="] {
                let judged = check(&format!("large{bound}{percent}%"), bytes, of_bytes, 0);
                assert_eq!((judged.is_met, judged.off_by_bytes), (Some(true), 0), "{bound} {percent}");
            }
        }
        let exceeded = check("could-be-larger<=4K", 8192, 1 << 20, 0);
        assert_eq!((exceeded.is_met, exceeded.off_by_bytes), (Some(false), 4096));
    }

    #[test]
    fn hidden_folios_make_a_check_unknown_only_where_they_decide() {
        assert_eq!(check("64K>=50%", 40, 100, 20).is_met, None);
        assert_eq!(check("64K>=50%", 50, 100, 20).is_met, Some(true));
        assert_eq!(check("64K>=70%", 40, 100, 20).is_met, Some(false));
        assert_eq!(check("64K<=50%", 40, 100, 20).is_met, None);
    }

    #[test]
    fn no_memory_meets_nothing() {
        assert_eq!(check("guest:large>=0%", 0, 0, 0).is_met, None);
        let mut unseen = RequirementCheck::new(parsed("large>=0%"));
        unseen.mark_incomplete("one process could not be inspected");
        assert_eq!(unseen.judge().why_unknown.as_deref(), Some("one process could not be inspected"));
    }
}
