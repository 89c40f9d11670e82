//! Parses keys as terminals send them: characters in UTF-8, and escape sequences (ECMA-48 and xterm's).

use super::browse::Key;

const ESCAPE: u8 = 0x1b;
/// A limit that is longer than any terminal's sequence for a key.
const MAX_SEQUENCE_BYTES: usize = 32;

/// The result of parsing the beginning of a sequence of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A key, and the number of its bytes; `None` if `top` does not use the key.
    Key(Option<Key>, usize),
    /// The beginning of a key: more bytes are needed.
    Incomplete,
}

/// Parses the first key in `bytes`, which must not be empty.
pub fn parse_first(bytes: &[u8]) -> Parsed {
    match bytes[0] {
        ESCAPE => parse_escape(bytes),
        b'\r' | b'\n' => Parsed::Key(Some(Key::Enter), 1),
        0x7f | 0x08 => Parsed::Key(Some(Key::Backspace), 1),
        0x03 => Parsed::Key(Some(Key::Interrupt), 1),
        0x1a => Parsed::Key(Some(Key::Suspend), 1),
        control if control < b' ' => Parsed::Key(None, 1),
        _ => character(bytes),
    }
}

/// Parses a character. A byte that is not UTF-8 is an unused key.
fn character(bytes: &[u8]) -> Parsed {
    let length = match bytes[0] {
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => 1,
    };
    let Some(encoded) = bytes.get(..length) else { return Parsed::Incomplete };
    match str::from_utf8(encoded).ok().and_then(|text| text.chars().next()) {
        Some(character) => Parsed::Key(Some(Key::Char(character)), length),
        None => Parsed::Key(None, 1),
    }
}

/// Parses the Escape key, or an escape sequence. A terminal sends a sequence in one piece, so an escape byte without more
/// bytes is the Escape key.
fn parse_escape(bytes: &[u8]) -> Parsed {
    match bytes.get(1) {
        None | Some(&ESCAPE) => Parsed::Key(Some(Key::Escape), 1),
        Some(b'[') => control_sequence(bytes),
        Some(b'O') => match bytes.get(2) {
            Some(last) => Parsed::Key(of_letter(*last), 3),
            None => Parsed::Incomplete,
        },
        // A key that was pressed together with Alt.
        Some(_) => match parse_first(&bytes[1..]) {
            Parsed::Key(_, length) => Parsed::Key(None, 1 + length),
            Parsed::Incomplete => Parsed::Incomplete,
        },
    }
}

/// Parses a control sequence: parameters from 0x20 to 0x3f, and a final byte. Function keys of the Linux console have `[` and
/// a letter.
fn control_sequence(bytes: &[u8]) -> Parsed {
    let parameters = bytes[2..].iter().take(MAX_SEQUENCE_BYTES).take_while(|byte| (0x20..0x40).contains(*byte)).count();
    let Some(last) = bytes.get(2 + parameters) else { return Parsed::Incomplete };
    let length = 3 + parameters;
    match last {
        b'[' if bytes.len() == length => Parsed::Incomplete,
        b'[' => Parsed::Key(None, length + 1),
        b'~' => Parsed::Key(of_number(&bytes[2..2 + parameters]), length),
        0x40..0x7f => Parsed::Key(of_letter(*last), length),
        // An invalid sequence is skipped as an unused key.
        _ => Parsed::Key(None, 2 + parameters),
    }
}

fn of_letter(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' => Key::Enter, // of the keypad
        _ => return None,
    })
}

/// Parses parameters: the first number is the key, the second one its modifiers.
fn of_number(parameters: &[u8]) -> Option<Key> {
    Some(match parameters.split(|byte| *byte == b';').next()? {
        b"1" | b"7" => Key::Home,
        b"4" | b"8" => Key::End,
        b"5" => Key::PageUp,
        b"6" => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses all keys in `bytes`, and returns them and the number of remaining bytes.
    fn all(mut bytes: &[u8]) -> (Vec<Option<Key>>, usize) {
        let mut keys = Vec::new();
        while !bytes.is_empty() {
            match parse_first(bytes) {
                Parsed::Key(key, length) => {
                    keys.push(key);
                    bytes = &bytes[length..];
                }
                Parsed::Incomplete => break,
            }
        }
        (keys, bytes.len())
    }

    #[test]
    fn keys_of_common_terminals_are_recognised() {
        for (sent, key) in [
            ("\x1b[A", Key::Up),
            ("\x1bOB", Key::Down),
            ("\x1b[1;5A", Key::Up),
            ("\x1b[5~", Key::PageUp),
            ("\x1b[6;2~", Key::PageDown),
            ("\x1b[H", Key::Home),
            ("\x1b[1~", Key::Home),
            ("\x1bOF", Key::End),
            ("\x1b[8~", Key::End),
            ("\r", Key::Enter),
            ("\x1b", Key::Escape),
            ("\x7f", Key::Backspace),
            ("\x03", Key::Interrupt),
            ("\x1a", Key::Suspend),
            ("q", Key::Char('q')),
            ("ß", Key::Char('ß')),
            ("𝄞", Key::Char('𝄞')),
        ] {
            assert_eq!(all(sent.as_bytes()), (vec![Some(key)], 0), "{sent:?}");
        }
    }

    #[test]
    fn a_key_without_a_meaning_is_consumed_whole() {
        for sent in ["\x1b[15~", "\x1b[[A", "\x1bq", "\x1bß", "\x1b[<0;10;10m", "\x01", "\t", "\x1b[200~"] {
            assert_eq!(all(sent.as_bytes()), (vec![None], 0), "{sent:?}");
        }
        assert_eq!(all(b"\xff\xc0q").0, [None, None, Some(Key::Char('q'))]);
    }

    #[test]
    fn several_keys_are_split_and_an_incomplete_one_is_kept() {
        let keys = [Key::Char('a'), Key::Up, Key::Escape, Key::Up].map(Some);
        assert_eq!(all("a\x1b[A\x1b\x1b[A\x1b[".as_bytes()), (keys.to_vec(), 2));
        for half in [&b"\x1b["[..], b"\x1b[1;", b"\x1bO", b"\xe2\x82", b"\x1b[["] {
            assert_eq!(parse_first(half), Parsed::Incomplete, "{half:?}");
        }
    }

    #[test]
    fn random_bytes_are_split_into_keys_without_a_panic() {
        const ALPHABET: [u8; 12] = [ESCAPE, b'[', b'O', b';', b'1', b'~', b'A', b'q', 0xc3, 0x9f, 0xf0, 0x03];
        let mut random = testing::Random::new();
        for _ in 0..20_000 {
            let length = random.below(24);
            let bytes: Vec<u8> = (0..length).map(|_| ALPHABET[random.below(ALPHABET.len() as u64) as usize]).collect();
            assert!(all(&bytes).1 <= 2 + MAX_SEQUENCE_BYTES, "{bytes:?}");
        }
    }
}
