//! Causes of a verdict in words.

use policy::cause::CauseShare;

use crate::text;

/// A cause in words: its description, its bytes followed by `of` (such as ` a run`), and its remedy.
pub fn cause_clause(share: &CauseShare, of: &str) -> String {
    with_remedy(share, of, policy::remedy::of_cause(&share.cause))
}

pub(super) fn with_remedy(share: &CauseShare, of: &str, remedy: Option<String>) -> String {
    let bytes = share.bytes.map(|bytes| format!(" ({}{of})", policy::size::format_bytes(bytes)));
    let remedy = remedy.map(|remedy| format!("; {}", text::printable(&remedy)));
    text::printable(&share.cause.describe()) + &bytes.unwrap_or_default() + &remedy.unwrap_or_default()
}
