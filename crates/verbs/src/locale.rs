//! Reduces text to the characters that the locale supports.

use std::borrow::Cow;

/// The text, reduced to ASCII if the locale has no other characters (`LC_ALL=C`).
pub fn fit_to_locale(text: &str) -> Cow<'_, str> {
    if has_unicode() { Cow::Borrowed(text) } else { results::ascii(text) }
}

/// Whether the locale has characters beyond ASCII.
pub fn has_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    is_utf8(locale.as_deref())
}

/// Whether a locale uses UTF-8. If no locale is set, UTF-8 is assumed, as systemd does.
fn is_utf8(locale: Option<&str>) -> bool {
    locale.is_none_or(|name| {
        let name = name.to_ascii_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::is_utf8;

    #[test]
    fn only_a_locale_that_names_another_charset_lacks_utf8() {
        assert!([None, Some("C.UTF-8"), Some("de_DE.utf8"), Some("en_US.UTF-8@euro")].into_iter().all(is_utf8));
        assert!(!["C", "POSIX", "de_DE", "en_US.ISO-8859-1"].into_iter().any(|name| is_utf8(Some(name))));
    }
}
