//! Parses QEMU's translation statistics: `info jit` of its monitor (`dump_exec_info`, accel/tcg).

use super::error::BootError;

/// Statistics over all regions. If the buffer was flushed, only since the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jit {
    /// Bytes of translated code.
    pub code_bytes: u64,
    /// The number of translation blocks.
    pub translations: u64,
    /// How often the buffer was full and was flushed.
    pub flushes: u64,
}

impl Jit {
    /// Parses the monitor's answer.
    pub fn parse(text: &str) -> Result<Jit, BootError> {
        let number = |name: &'static str| {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(name))?.trim();
            value.split(['/', ' ']).next()?.parse::<u64>().ok()
        };
        let wanted = |name| number(name).ok_or(BootError::Monitor { expected: name, found: text.to_string() });
        Ok(Jit {
            code_bytes: wanted("gen code size")?,
            translations: wanted("TB count")?,
            flushes: wanted("TB flush count")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_qemu_7_2_is_read() {
        let text = "Translation buffer state:\r\ngen code size       30044851/1071120384\r\nTB count            52267\r\n\
                    TB avg target size  21 max=2048 bytes\r\n\r\nStatistics:\r\nTB flush count      3\r\n";
        let jit = Jit::parse(text).unwrap();
        assert_eq!(jit, Jit { code_bytes: 30_044_851, translations: 52_267, flushes: 3 });
        let error = Jit::parse("TB count 5\n").unwrap_err().to_string();
        assert!(error.contains("expected gen code size"), "{error}");
    }
}
