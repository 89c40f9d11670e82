//! Parses requested mappings: `VA:PA:SIZE[:PERM]`.

use std::fmt;

use paging::{Attributes, Flags, Format, InputAddress, OutputAddress};

use super::number::{NumberError, parse_number};

/// A requested mapping. The meaning of its permission letters depends on the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The text, for messages.
    text: String,
    /// The first input address.
    pub va: InputAddress,
    /// The output address of `va`.
    pub pa: OutputAddress,
    /// The size in bytes.
    pub bytes: u64,
    letters: String,
    memory: Option<u8>,
    key: u8,
}

/// The mapping cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The text does not have three or four parts.
    #[error("expected VA:PA:SIZE or VA:PA:SIZE:PERM, found {0} parts between colons")]
    Parts(usize),
    #[error("{0}: {1}")]
    Number(&'static str, NumberError),
    #[error("there is no permission {0:?}; expected letters of rwxugboc")]
    Letter(char),
    #[error("expected m=INDEX or k=KEY after the letters, found {0:?}")]
    Option(String),
}

/// Help text that explains the permissions.
pub const HELP: &str = "\
Permissions (PERM), letters and then options after commas; default rw:
  r w x   read, write, execute; x is for the page's privilege level (on x86-64 also the kernel)
  u       user: EL0, U-mode, user mode
  g       global: of every address space
  b       guarded: indirect branches need a landing pad (arm64 BTI)
  o       old: not accessed yet. Otherwise leaves are marked accessed, so that the first access does not fault
  c       clean: not written yet. Otherwise writable leaves are marked dirty, where the format can
  m=N     memory type: x86-64 PAT index, arm64 AttrIndx, stage 2 MemAttr, RISC-V PBMT; the default
          is 0, and at stage 2 write-back (15)
  k=N     protection key: x86-64 key, arm64 POIndex (+poe)
as in rwxu, r, rwg,m=1 or rwu,k=3. Numbers are 0x40000000, 4096 or 2M.";

/// Parses a mapping.
pub fn parse_request(text: &str) -> Result<Request, RequestError> {
    let parts: Vec<&str> = text.split(':').collect();
    let ([va, pa, bytes], permissions) = match parts[..] {
        [va, pa, bytes] => ([va, pa, bytes], "rw"),
        [va, pa, bytes, permissions] => ([va, pa, bytes], permissions),
        _ => return Err(RequestError::Parts(parts.len())),
    };
    let number = |what, text| parse_number(text).map_err(|error| RequestError::Number(what, error));
    let mut options = permissions.split(',');
    let letters = options.next().unwrap_or_default();
    if let Some(wrong) = letters.chars().find(|letter| !"rwxugboc".contains(*letter)) {
        return Err(RequestError::Letter(wrong));
    }
    let mut request = Request {
        text: text.to_string(),
        va: InputAddress(number("VA", va)?),
        pa: OutputAddress(number("PA", pa)?),
        bytes: number("SIZE", bytes)?,
        letters: letters.to_string(),
        memory: None,
        key: 0,
    };
    for option in options {
        let wrong = || RequestError::Option(option.to_string());
        let (name, value) = option.split_once('=').ok_or_else(wrong)?;
        let value = parse_number(value).ok().and_then(|value| u8::try_from(value).ok()).ok_or_else(wrong)?;
        match name {
            "m" => request.memory = Some(value),
            "k" => request.key = value,
            _ => return Err(wrong()),
        }
    }
    Ok(request)
}

impl Request {
    /// The attributes of the mapping's leaves.
    pub fn attributes(&self, format: &impl Format) -> Attributes {
        let has = |letter| self.letters.contains(letter);
        let mut flags = Flags::empty();
        for (letter, flag) in
            [('r', Flags::READ), ('w', Flags::WRITE), ('u', Flags::USER), ('g', Flags::GLOBAL), ('b', Flags::GUARDED)]
        {
            flags.set(flag, has(letter));
        }
        flags.set(Flags::ACCESSED, !has('o'));
        if has('x') {
            flags |= format.execute(has('u'));
        }
        let memory = self.memory.unwrap_or(format.normal_memory());
        let attributes = Attributes { flags, memory, key: self.key };
        let dirty = Attributes { flags: flags | Flags::DIRTY, ..attributes };
        // `w` also sets the dirty flag, if the format has one.
        if has('w') && !has('c') && format.leaf(0, dirty, false).is_ok() { dirty } else { attributes }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paging::format::riscv::{RiscV, Stage};
    use paging::format::x86_64::X86_64;

    #[test]
    fn parts_letters_and_options_are_read() {
        let request = parse_request("0xffff888000000000:1G:2M:rwxg,m=3,k=1").unwrap();
        assert_eq!((request.va.0, request.pa.0, request.bytes), (0xffff_8880_0000_0000, 1 << 30, 2 << 20));
        let attributes = request.attributes(&X86_64::new(4, 52));
        assert_eq!((attributes.memory, attributes.key), (3, 1));
        let expected = Flags::READ | Flags::WRITE | Flags::KERNEL_EXECUTE | Flags::GLOBAL | Flags::STATE;
        assert_eq!(attributes.flags, expected);
    }

    #[test]
    fn state_bits_are_set_by_default() {
        let flags = |text: &str| parse_request(text).unwrap().attributes(&RiscV::new(3, Stage::Supervisor)).flags;
        assert_eq!(flags("0:0:4K"), Flags::READ | Flags::WRITE | Flags::STATE);
        assert_eq!(flags("0:0:4K:r"), Flags::READ | Flags::ACCESSED);
        assert_eq!(flags("0:0:4K:rwoc"), Flags::READ | Flags::WRITE);
    }

    #[test]
    fn refusals_say_what_was_expected() {
        for (text, part) in [
            ("0:0", "2 parts"),
            ("0:0:4K:rw:x", "5 parts"),
            ("ffff8880:0:4K", "VA: expected a number such as 0x40000000, 4096 or 2M, found \"ffff8880\"; hexadecimal"),
            ("0:x:4K", "PA: "),
            ("0:0:4Q", "SIZE: "),
            ("0:0:4K:rq", "'q'"),
            ("0:0:4K:rw,m", "\"m\""),
            ("0:0:4K:rw,m=300", "\"m=300\""),
            ("0:0:4K:rw,z=1", "\"z=1\""),
        ] {
            let message = parse_request(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
