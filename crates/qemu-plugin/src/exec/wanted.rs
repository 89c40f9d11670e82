// SPDX-License-Identifier: GPL-2.0-or-later
//! What a program asks the kernel to execute, read from its memory.

use crate::call::Kind;
use crate::guest_memory::GuestMemory;

/// Most bytes of a path without its zero (`PATH_MAX` of Linux).
const PATH_BYTES: usize = 4095;
/// Most bytes of an argument without its zero (`MAX_ARG_STRLEN`, include/uapi/linux/binfmts.h).
const ARGUMENT_BYTES: usize = (32 << 12) - 1;
/// Most bytes of all arguments, or of the whole environment: more than Linux takes (`bprm_set_stack_limit`, fs/exec.c: 6M).
const ALL_BYTES: usize = 8 << 20;
/// Bytes of a pointer of every program here.
const POINTER_BYTES: u64 = 8;

/// A program, its arguments, its own name among them, and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its path, as the calling process sees it.
    pub path: Vec<u8>,
    /// Its arguments, the first of which is what it is called.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment.
    pub environment: Vec<Vec<u8>>,
}

impl Wanted {
    /// What `execve` or `execveat` is asked for; `None` where that cannot be read, or is more than the kernel takes.
    pub fn of(kind: Kind, arguments: &[u64; 6], memory: &impl GuestMemory) -> Option<Wanted> {
        let [first, second, third, fourth, flags, _] = *arguments;
        let (path, arguments, environment) = match kind {
            Kind::Execve => (memory.whole_text(first, PATH_BYTES)?, second, third),
            Kind::Execveat => (relative(first as i32, memory.whole_text(second, PATH_BYTES)?, flags)?, third, fourth),
            _ => return None,
        };
        Some(Wanted { path, arguments: list(arguments, memory)?, environment: list(environment, memory)? })
    }
}

/// A path relative to an open directory, or the open file itself, by a name that the kernel has for it.
fn relative(directory: i32, path: Vec<u8>, flags: u64) -> Option<Vec<u8>> {
    let is_file = path.is_empty() && flags == libc::AT_EMPTY_PATH as u64;
    match directory {
        _ if is_file => Some(format!("/proc/self/fd/{directory}").into_bytes()),
        _ if flags != 0 || path.is_empty() => None,
        libc::AT_FDCWD => Some(path),
        _ if path.starts_with(b"/") => Some(path),
        _ => Some([format!("/proc/self/fd/{directory}/").as_bytes(), &path].concat()),
    }
}

/// Texts whose addresses stand one behind the other, up to a zero. There are none at address 0.
fn list(address: u64, memory: &impl GuestMemory) -> Option<Vec<Vec<u8>>> {
    let (mut texts, mut bytes) = (Vec::new(), 0);
    if address == 0 {
        return Some(texts);
    }
    for number in 0.. {
        let text = match memory.word(address.wrapping_add(number * POINTER_BYTES))? {
            0 => break,
            text => memory.whole_text(text, ARGUMENT_BYTES)?,
        };
        bytes += text.len() + 1;
        if bytes > ALL_BYTES {
            return None;
        }
        texts.push(text);
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory from 0 on.
    struct Memory(Vec<u8>);

    impl GuestMemory for Memory {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let from = self.0.get(address as usize..).unwrap_or_default();
            let bytes = from.len().min(to.len());
            to[..bytes].copy_from_slice(&from[..bytes]);
            bytes
        }
    }

    /// A path at 64, its name and an argument at 128, both listed at 8, and nothing listed at 32.
    fn memory() -> Memory {
        let mut bytes = vec![0; 256];
        bytes[64..71].copy_from_slice(b"bin/cat");
        bytes[128..134].copy_from_slice(b"cat\0-n");
        bytes[8..16].copy_from_slice(&128u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&132u64.to_le_bytes());
        Memory(bytes)
    }

    #[test]
    fn a_call_is_read_from_memory() {
        let memory = memory();
        let read = |kind, arguments| Wanted::of(kind, &arguments, &memory);
        let wanted = read(Kind::Execve, [64, 8, 32, 0, 0, 0]).unwrap();
        assert_eq!((wanted.path, wanted.environment), (b"bin/cat".to_vec(), Vec::new()));
        assert_eq!(wanted.arguments, [b"cat".to_vec(), b"-n".to_vec()]);
        assert_eq!(read(Kind::Execve, [64, 0, 0, 0, 0, 0]).unwrap().arguments, Vec::<Vec<u8>>::new());
        // What no kernel could read.
        assert_eq!(read(Kind::Execve, [1 << 20, 8, 32, 0, 0, 0]), None);
        assert_eq!(read(Kind::Execve, [64, 1 << 20, 32, 0, 0, 0]), None);
        let path = |directory: i64, name, flags| {
            read(Kind::Execveat, [directory as u64, name, 8, 32, flags, 0]).map(|wanted| wanted.path)
        };
        let empty = libc::AT_EMPTY_PATH as u64;
        assert_eq!(path(libc::AT_FDCWD.into(), 64, 0).as_deref(), Some(&b"bin/cat"[..]));
        assert_eq!(path(7, 64, 0).as_deref(), Some(&b"/proc/self/fd/7/bin/cat"[..]));
        assert_eq!(path(7, 200, empty).as_deref(), Some(&b"/proc/self/fd/7"[..]));
        assert_eq!((path(7, 200, 0), path(7, 64, empty)), (None, None));
    }
}
