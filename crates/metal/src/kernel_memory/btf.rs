//! Where the fields of the kernel's structures are: BTF, the kernel's description of its own types.
//!
//! Format: Documentation/bpf/btf.rst. The kernel's own is `/sys/kernel/btf/vmlinux` (CONFIG_DEBUG_INFO_BTF).

use std::ops::Range;

/// The magic number, the version, the flags and the length of the header, which is all of it that is known.
const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
/// A type begins with its name, its kind, and its size or another type.
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;

/// What is wrong with a description, or is not in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It is none, or a later one.
    #[error("expected BTF, version 1, found something else at byte {at}")]
    Malformed {
        /// The byte at which it is not as described.
        at: usize,
    },
    /// The kernel has no such thing.
    #[error("this kernel has no {0}")]
    Missing(String),
}

/// The types of a kernel.
pub struct Btf<'a> {
    bytes: &'a [u8],
    names: &'a [u8],
    /// Where each type begins; type 0 is void and has no place.
    types: Vec<u32>,
    /// Where structures and enumerations with names begin.
    named: Vec<u32>,
}

/// What a type is, as its first words say.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// How many members, values or parameters follow.
    elements: usize,
    /// Whether members are bit fields.
    flag: bool,
    /// The size, or another type.
    size: u32,
    /// Where what follows begins.
    body: usize,
}

impl<'a> Btf<'a> {
    /// Reads where the types are.
    ///
    /// # Errors
    /// [`BtfError::Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        let malformed = |at| BtfError::Malformed { at };
        let word = |at: usize| word_at(bytes, at).ok_or(malformed(at));
        let (magic, header) = (word(0)?.to_ne_bytes(), word(4)? as usize);
        if u16::from_ne_bytes([magic[0], magic[1]]) != MAGIC || magic[2] != 1 || header < HEADER_BYTES {
            return Err(malformed(0));
        }
        let section = |at: usize| -> Result<Range<usize>, BtfError> {
            let start = header + word(at)? as usize;
            let end = start + word(at + 4)? as usize;
            if end <= bytes.len() { Ok(start..end) } else { Err(malformed(at)) }
        };
        let (types, names) = (section(8)?, section(16)?);
        let mut btf = Btf { bytes: &bytes[..types.end], names: &bytes[names], types: vec![0], named: Vec::new() };
        let mut at = types.start;
        while at < types.end {
            let here = btf.type_at(at).ok_or(malformed(at))?;
            btf.types.push(at as u32);
            if matches!(here.kind, STRUCT | ENUM) && here.name != 0 {
                btf.named.push(at as u32);
            }
            at = here.body + body_bytes(here.kind, here.elements).ok_or(malformed(at))?;
        }
        if at == types.end { Ok(btf) } else { Err(malformed(types.end)) }
    }

    /// The size of a structure, in bytes.
    ///
    /// # Errors
    /// [`BtfError::Missing`].
    pub fn structure_bytes(&self, structure: &str) -> Result<u64, BtfError> {
        self.structure(structure).map(|found| found.size.into())
    }

    /// Where a member of a structure is, in bytes from its start; members of unnamed members count as its own.
    ///
    /// # Errors
    /// [`BtfError::Missing`], also where it is a bit field.
    pub fn offset(&self, structure: &str, member: &str) -> Result<u64, BtfError> {
        let bits = self.member_bits(self.structure(structure)?, member);
        bits.filter(|bits| bits % 8 == 0)
            .map(|bits| bits / 8)
            .ok_or_else(|| BtfError::Missing(format!("{structure}.{member}")))
    }

    /// The value that a name stands for in an enumeration.
    ///
    /// # Errors
    /// [`BtfError::Missing`].
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Result<u32, BtfError> {
        let value = self.named(ENUM, enumeration).and_then(|found| {
            let places = (0..found.elements).map(|at| found.body + 8 * at);
            let mut pairs = places.filter_map(|at| Some((self.word(at)?, self.word(at + 4)?)));
            pairs.find(|(of, _)| self.is_called(*of, name)).map(|(_, value)| value)
        });
        value.ok_or_else(|| BtfError::Missing(format!("{name} in enum {enumeration}")))
    }

    fn structure(&self, name: &str) -> Result<Type, BtfError> {
        self.named(STRUCT, name).ok_or_else(|| BtfError::Missing(format!("struct {name}")))
    }

    fn named(&self, kind: u32, name: &str) -> Option<Type> {
        let mut types = self.named.iter().filter_map(|at| self.type_at(*at as usize));
        types.find(|found| found.kind == kind && self.is_called(found.name, name))
    }

    fn member_bits(&self, structure: Type, name: &str) -> Option<u64> {
        (0..structure.elements).find_map(|at| {
            let at = structure.body + MEMBER_BYTES * at;
            let (of, kind, place) = (self.word(at)?, self.word(at + 4)?, self.word(at + 8)?);
            let (bits, is_field) = if structure.flag { (place & 0xff_ffff, place >> 24 != 0) } else { (place, false) };
            if self.is_called(of, name) {
                return (!is_field).then_some(bits.into());
            }
            let inner = (of == 0).then(|| self.types.get(kind as usize))?;
            let inner = self.type_at(*inner? as usize).filter(|inner| matches!(inner.kind, STRUCT | UNION));
            // A structure holds only those that are described before it is whole: there is no circle but in rubbish.
            let inner = inner.filter(|inner| inner.size <= structure.size && inner.body != structure.body)?;
            self.member_bits(inner, name).map(|inner| inner + u64::from(bits))
        })
    }

    fn is_called(&self, of: u32, name: &str) -> bool {
        let rest = self.names.get(of as usize..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    fn word(&self, at: usize) -> Option<u32> {
        word_at(self.bytes, at)
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let (name, info, size) = (self.word(at)?, self.word(at + 4)?, self.word(at + 8)?);
        let (kind, elements, flag) = (info >> 24 & 0x1f, (info & 0xffff) as usize, info >> 31 == 1);
        Some(Type { name, kind, elements, flag, size, body: at + TYPE_BYTES })
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
}

/// How long what follows the first words of a type is; `None` for a kind that is not known.
fn body_bytes(kind: u32, elements: usize) -> Option<usize> {
    match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => Some(4),
        // ARRAY
        3 => Some(12),
        // STRUCT, UNION, DATASEC, ENUM64
        STRUCT | UNION | 15 | 19 => Some(MEMBER_BYTES * elements),
        // ENUM, FUNC_PROTO
        ENUM | 13 => Some(8 * elements),
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `enum shade { DARK = 3, LIGHT = 7 }; struct point { long x; union { long y; struct { long z; long w : 3; }; }; }`
    /// with a type of each other kind before it.
    fn image() -> Vec<u8> {
        let mut names = vec![0u8];
        let mut name = |text: &str| {
            let at = names.len() as u32;
            names.extend(text.bytes().chain([0]));
            at
        };
        let info = |kind: u32, elements: u32| kind << 24 | elements;
        let mut types: Vec<u32> = vec![name("long"), info(1, 0), 8, 64];
        types.extend([0, info(3, 0), 0, 1, 1, 4]);
        for kind in [2, 7, 8, 9, 10, 11, 12, 16, 18] {
            types.extend([0, info(kind, 0), 1]);
        }
        types.extend([0, info(13, 1), 0, 0, 1, 0, info(14, 0), 1, 0, 0, info(15, 1), 8, 1, 0, 8]);
        types.extend([0, info(17, 0), 1, 0, 0, info(19, 1), 8, 0, 1, 0]);
        types.extend([name("shade"), info(6, 2), 4, name("DARK"), 3, name("LIGHT"), 7]);
        let innermost = 18;
        types.extend([0, info(4, 2) | 1 << 31, 16, name("z"), 1, 0, name("w"), 1, 3 << 24 | 64]);
        types.extend([0, info(5, 2), 16, name("y"), 1, 0, 0, innermost, 0]);
        types.extend([name("point"), info(4, 2), 24, name("x"), 1, 0, 0, innermost + 1, 64]);
        let bytes = 4 * types.len() as u32;
        let header = [0x0001_eb9f, 24, 0, bytes, bytes, names.len() as u32];
        let words = header.into_iter().chain(types).flat_map(u32::to_ne_bytes);
        words.chain(names).collect()
    }

    #[test]
    fn members_are_found_where_they_are() {
        let image = image();
        let btf = Btf::parse(&image).unwrap();
        assert_eq!(btf.types.len(), 21);
        assert_eq!(btf.structure_bytes("point"), Ok(24));
        for (member, bytes) in [("x", 0), ("y", 8), ("z", 8)] {
            assert_eq!(btf.offset("point", member), Ok(bytes), "{member}");
        }
        assert_eq!(btf.enumerator("shade", "LIGHT"), Ok(7));
        let missing = |what: &str| BtfError::Missing(what.into());
        assert_eq!(btf.offset("point", "w"), Err(missing("point.w")), "a bit field has no address");
        assert_eq!(btf.offset("point", "poin"), Err(missing("point.poin")));
        assert_eq!(btf.offset("poin", "x"), Err(missing("struct poin")));
        assert_eq!(btf.enumerator("shade", "x"), Err(missing("x in enum shade")));
        assert_eq!(btf.enumerator("shades", "DARK"), Err(missing("DARK in enum shades")));
    }

    #[test]
    fn rubbish_is_refused_and_does_no_harm() {
        let image = image();
        for length in 0..image.len() {
            assert!(Btf::parse(&image[..length]).is_err(), "the first {length} bytes");
        }
        for at in 0..image.len() {
            for value in [0, 4, 0x7f, 0xff] {
                let mut changed = image.clone();
                changed[at] = value;
                if let Ok(btf) = Btf::parse(&changed) {
                    let _ = (btf.offset("point", "none"), btf.enumerator("shade", "none"));
                }
            }
        }
    }

    #[test]
    fn the_running_kernel_describes_itself() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return testing::skip("a kernel with BTF");
        };
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("list_head", "prev"), Ok(size_of::<usize>() as u64));
        assert_eq!(btf.enumerator("pageflags", "PG_locked"), Ok(0));
        assert!(btf.structure_bytes("page").unwrap() >= 56);
    }
}
