//! The notes below a table: reasons, each with a letter.

use nix::errno::Errno;
use policy::capability::{Cell, Matrix, Outcome, Refusal};
use policy::cause::Cause;

/// Reasons in the order in which cells first name them.
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

    /// One line for each reason.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().enumerate().map(|(at, reason)| format!("{}  {reason}", letter(at)))
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
        Outcome::Refused { .. } => format!("no {}", notes.letter(reason(&cell.outcome))),
        Outcome::NotAvailable { reason } => format!("- {}", notes.letter(reason.clone())),
        Outcome::Unknown { reason } => format!("? {}", notes.letter(reason.clone())),
    };
    debug_assert!(cell.size >= matrix.base, "{cell:?}");
    if cell.depends_on_free_memory { format!("{text}*") } else { text }
}

fn reason(outcome: &Outcome) -> String {
    let Outcome::Refused { cause, refusal, setting, large_ratio } = outcome else { return String::new() };
    let mut text = match refusal {
        // The cause of a refused call repeats its error number.
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
    text
}
