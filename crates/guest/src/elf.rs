//! Fields of a program's ELF header.

/// The machine that a program is for (e_machine of a 64-bit little-endian ELF file; System V ABI, chapter 4). `None` if the
/// program is not such a file.
pub fn machine(program: &[u8]) -> Option<u16> {
    let field = program.get(18..20).filter(|_| program.starts_with(b"\x7fELF\x02"))?;
    Some(u16::from_le_bytes([field[0], field[1]]))
}

/// The loader that a program names (PT_INTERP of a 64-bit little-endian ELF file; System V ABI, chapter 5). `None` if the program
/// is static.
pub fn loader(program: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let index = |number: u64| usize::try_from(number).ok();
    let (first, size, count) = (index(number(32, 8)?)?, index(number(54, 2)?)?, index(number(56, 2)?)?);
    let header = (0..count).map(|header| first + header * size).find(|at| number(*at, 4) == Some(PT_INTERP))?;
    let (from, bytes) = (index(number(header + 8, 8)?)?, index(number(header + 32, 8)?)?);
    let text = program.get(from..from.checked_add(bytes)?)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
}
