//! [`Text`]: text of bounded length without allocation, for shared memory and for code that must not allocate.

/// Up to `N` - 1 bytes and a terminating zero byte.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Text<const N: usize> {
    length: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    pub const EMPTY: Text<N> = Text { length: 0, bytes: [0; N] };

    /// The text of `bytes`; `None` where they do not fit together with a terminating zero byte.
    pub fn new(bytes: &[u8]) -> Option<Text<N>> {
        let mut text = Text::EMPTY;
        text.push(bytes)?;
        Some(text)
    }

    /// Appends bytes; `None` where they do not fit.
    pub fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length.checked_add(bytes.len()).filter(|end| *end < N)?;
        self.bytes.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }

    /// The bytes without the terminating zero.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The text as a C string: a zero byte always follows it.
    pub fn as_c_str(&self) -> Option<&std::ffi::CStr> {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).ok()
    }

    /// The text as a string, with invalid UTF-8 replaced.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_room_for_the_zero_byte() {
        assert_eq!(Text::<4>::new(b"abc").unwrap().as_c_str().unwrap().to_bytes(), b"abc");
        assert!(Text::<4>::new(b"abcd").is_none());
        let mut text = Text::<8>::new(b"abc").unwrap();
        assert!(text.push(b"de").is_some() && text.push(b"fgh").is_none());
        assert_eq!(text.as_bytes(), b"abcde");
    }
}
