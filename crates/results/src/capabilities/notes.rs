//! The notes below a table of capabilities ([`Notes`]): reasons, each with a letter.

use nix::errno::Errno;
use policy::capability::{Cell, Matrix, Outcome, Refusal};
use policy::cause::Cause;

/// Reasons, in the order in which cells first refer to them.
#[derive(Debug, Default)]
pub struct Notes(Vec<String>);

impl Notes {
    /// The letter of a reason: `a` to `z`, then `aa`.
    pub fn letter(&mut self, reason: String) -> String {
        let at = self.0.iter().position(|known| *known == reason).unwrap_or_else(|| {
            self.0.push(reason);
            self.0.len() - 1
        });
        letter(at)
    }

    /// The reasons with their letters.
    pub fn lettered(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().enumerate().map(|(at, reason)| (letter(at), reason.as_str()))
    }
}

fn letter(at: usize) -> String {
    let own = char::from(b'a' + (at % 26) as u8);
    if at < 26 { own.to_string() } else { format!("{}{own}", letter(at / 26 - 1)) }
}

/// A cell in a few characters.
pub fn short(matrix: &Matrix, cell: &Cell, notes: &mut Notes) -> String {
    let text = match &cell.outcome {
        Outcome::Large { leaf, .. } if *leaf > cell.size => leaf.to_string(),
        Outcome::Large { leaf, .. } if *leaf == cell.size => "leaf".to_owned(),
        Outcome::Large { folio: Some(folio), .. } if *folio > cell.size => format!("f{folio}"),
        Outcome::Large { .. } => "folio".to_owned(),
        Outcome::FolioOnly { .. } => "part".to_owned(),
        Outcome::Refused { .. } => format!("no {}", notes.letter(reason_of(&cell.outcome).unwrap_or_default())),
        Outcome::NotAvailable { reason } => format!("- {}", notes.letter(reason.clone())),
        Outcome::Unknown { reason } => format!("? {}", notes.letter(reason.clone())),
    };
    debug_assert!(cell.size >= matrix.base, "{cell:?}");
    if cell.depends_on_free_memory { format!("{text}*") } else { text }
}

/// Why memory did not get the size; `None` if it did.
pub fn reason_of(outcome: &Outcome) -> Option<String> {
    let (cause, refusal, setting, large_ratio) = match outcome {
        Outcome::Large { .. } | Outcome::FolioOnly { .. } => return None,
        Outcome::NotAvailable { reason } | Outcome::Unknown { reason } => return Some(reason.clone()),
        Outcome::Refused { cause, refusal, setting, large_ratio } => (cause, refusal, setting, large_ratio),
    };
    let mut text = match refusal {
        // The cause of a refused call already contains the call's error number.
        Some(Refusal { call, errno: Some(errno) }) if matches!(cause, Cause::AdviceRefused { .. }) => {
            format!("{call}: {}", Errno::from_raw(*errno).desc())
        }
        Some(refusal) => format!("{}; {}", cause.describe(), refusal.call),
        None => cause.describe(),
    };
    if let Some(setting) = setting {
        text.push_str(&format!("; echo {} > {}", setting.value, setting.path));
    }
    if *large_ratio > 0.0 {
        text.push_str(&format!("; {:.0} % of the memory has the size", large_ratio * 100.0));
    }
    Some(text)
}
