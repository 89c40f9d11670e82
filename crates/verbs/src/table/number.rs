//! Parses numbers on command lines.

use policy::size::parse_bytes;

/// The text is not an accepted number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("expected a number such as 0x40000000, 4096 or 2M, found {0:?}")]
    Syntax(String),
    /// The text has hexadecimal digits without `0x`, in a place where decimal numbers are possible.
    #[error("expected a number such as 0x40000000, 4096 or 2M, found {0:?}; hexadecimal begins with 0x")]
    BareHexadecimal(String),
    #[error("expected an entry in hexadecimal, such as 0x8000000012345067 or 12345067, found {0:?}")]
    NotHexadecimal(String),
    /// The number does not fit in 64 bits.
    #[error("the number {0:?} does not fit in 64 bits")]
    TooLarge(String),
}

/// Parses `0x40000000`, `4096` or `2M`. Suffixes are binary; `_` between hexadecimal digits is ignored.
pub fn parse_number(text: &str) -> Result<u64, NumberError> {
    if let Some(digits) = hexadecimal(text) {
        return parse_digits(digits, text);
    }
    if !text.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return Err(NumberError::Syntax(text.to_string()));
    }
    parse_bytes(text).map_err(|error| match error {
        policy::size::SizeError::TooLarge(_) => NumberError::TooLarge(text.to_string()),
        _ if is_hexadecimal(text) => NumberError::BareHexadecimal(text.to_string()),
        _ => NumberError::Syntax(text.to_string()),
    })
}

/// Parses an entry or an address as kernels print them: hexadecimal, with or without `0x`.
pub fn parse_hexadecimal(text: &str) -> Result<u64, NumberError> {
    let digits = hexadecimal(text).unwrap_or(text);
    if is_hexadecimal(digits) {
        return parse_digits(digits, text);
    }
    Err(NumberError::NotHexadecimal(text.to_string()))
}

fn hexadecimal(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

fn is_hexadecimal(digits: &str) -> bool {
    digits.starts_with(|c: char| c.is_ascii_hexdigit()) && digits.chars().all(|c| c.is_ascii_hexdigit() || c == '_')
}

fn parse_digits(digits: &str, text: &str) -> Result<u64, NumberError> {
    if !is_hexadecimal(digits) {
        return Err(NumberError::Syntax(text.to_string()));
    }
    u64::from_str_radix(&digits.replace('_', ""), 16).map_err(|_| NumberError::TooLarge(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_hexadecimal_with_a_prefix_and_decimal_without() {
        for (text, number) in [
            ("0x40000000", 1 << 30),
            ("0Xffff_8880_0000_0000", 0xffff_8880_0000_0000),
            ("4096", 4096),
            ("2M", 2 << 20),
            ("0", 0),
        ] {
            assert_eq!(parse_number(text), Ok(number), "{text}");
        }
        assert!(matches!(parse_number("ffff8880"), Err(NumberError::BareHexadecimal(_))));
        assert!(matches!(parse_number("0x1ffffffffffffffff"), Err(NumberError::TooLarge(_))));
        assert!(matches!(parse_number("99999999999999999999"), Err(NumberError::TooLarge(_))));
        for text in ["", "0x", "0x_1", "-1", "0xg", "3X", "+1", "0x+1", "٣"] {
            assert!(matches!(parse_number(text), Err(NumberError::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn entries_are_hexadecimal_as_kernels_print_them() {
        for (text, number) in
            [("100e067", 0x100e067), ("10", 0x10), ("0x10", 0x10), ("8000000012345067", 0x8000000012345067)]
        {
            assert_eq!(parse_hexadecimal(text), Ok(number), "{text}");
        }
        for text in ["", "0x", "pte", "1G", "-1", "+1"] {
            assert!(parse_hexadecimal(text).is_err(), "{text}");
        }
        assert!(matches!(parse_hexadecimal("11111111111111111"), Err(NumberError::TooLarge(_))));
    }
}
