// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's arguments, and the header of the trace.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use trace::{Header, Image, SCHEMA};

/// Arguments that `pagelab record` does not pass.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// An unknown or malformed argument.
    #[error(
        "argument {0:?}: expected output=HEX, header=HEX, identity=DEVICE:INODE, max=N, memory=HEX, emulator=HEX, plugin=HEX, \
         program=HEX, sysroot=HEX, handed=N, execs=N or signals=N; `pagelab record` passes them"
    )]
    Argument(String),
    #[error("the argument {0}=HEX is missing; `pagelab record` passes it")]
    Missing(&'static str),
}

/// A header for which this plugin cannot write a trace.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("no header; is pagelab of another version than the plugin?")]
    None(#[source] serde_json::Error),
    #[error("pagelab expects the format {0:?}; this plugin writes {SCHEMA:?}: rebuild both")]
    Schema(String),
    /// The header is for a program of another instruction set.
    #[error("the program is for {program}; this QEMU emulates {target}")]
    Architecture {
        /// The program's instruction set.
        program: String,
        /// QEMU's instruction set.
        target: String,
    },
}

/// The plugin's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The trace file. Its old content stays until recording begins.
    pub output: PathBuf,
    /// The device and inode of that file, if they are known. A different file that has replaced it is not written.
    pub identity: Option<(u64, u64)>,
    /// The file with the header of the trace, as JSON; it exists until recording begins.
    pub header: PathBuf,
    /// Number of instructions of a thread after which it is no longer recorded.
    pub max_instructions: Option<u64>,
    /// The file that will list the memory of a whole machine.
    pub memory: PathBuf,
    /// How to continue when the program executes another one.
    pub follow: Option<Follow>,
    /// What the previous program's recorder passed on, where a recorded program executed this one.
    pub handover: Option<Handover>,
}

/// How to start QEMU and the recorder for a program that a recorded one executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// QEMU's executable.
    pub emulator: PathBuf,
    /// This plugin's file.
    pub plugin: PathBuf,
    /// The recorded program, which it can refer to as `/proc/self/exe`.
    pub program: PathBuf,
    /// The directory in which a foreign program finds its libraries.
    pub sysroot: Option<PathBuf>,
}

/// What the recorder of one program passes to that of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The trace file, which contains only its header, as JSON.
    pub file: RawFd,
    /// How many programs the process has executed, including this one.
    pub execs: u32,
    /// The signals that the program blocks; all are blocked until QEMU has begun.
    pub signals: u64,
}

impl Request {
    /// Parses `output=HEX` and `header=HEX` (a path's bytes in hexadecimal, because QEMU splits arguments at commas),
    /// `identity=DEVICE:INODE`, `max=N`, `memory=HEX`; `emulator=HEX`, `plugin=HEX`, `program=HEX` and `sysroot=HEX`; `handed=N`,
    /// `execs=N` and `signals=N`.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Result<Request, RequestError> {
        let (mut output, mut header, mut max_instructions) = (None, None, None);
        let (mut memory, mut identity) = (PathBuf::new(), None);
        let (mut emulator, mut plugin, mut program, mut sysroot) = (None, None, None, None);
        let (mut handover, mut execs, mut signals) = (None, None, None);
        for argument in arguments {
            let text = String::from_utf8_lossy(argument);
            let wrong = || RequestError::Argument(text.clone().into_owned());
            match text.split_once('=').ok_or_else(wrong)? {
                ("output", hex) => output = Some(path(hex).ok_or_else(wrong)?),
                ("identity", numbers) => identity = Some(device_and_inode(numbers).ok_or_else(wrong)?),
                ("header", hex) => header = Some(path(hex).ok_or_else(wrong)?),
                ("memory", hex) => memory = path(hex).ok_or_else(wrong)?,
                ("max", number) => max_instructions = Some(number.parse().map_err(|_| wrong())?),
                ("emulator", hex) => emulator = Some(path(hex).ok_or_else(wrong)?),
                ("plugin", hex) => plugin = Some(path(hex).ok_or_else(wrong)?),
                ("program", hex) => program = Some(path(hex).ok_or_else(wrong)?),
                ("sysroot", hex) => sysroot = Some(path(hex).ok_or_else(wrong)?),
                ("handed", number) => handover = Some(number.parse().map_err(|_| wrong())?),
                ("execs", number) => execs = Some(number.parse().map_err(|_| wrong())?),
                ("signals", number) => signals = Some(number.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
        }
        let output = output.ok_or(RequestError::Missing("output"))?;
        let header = header.ok_or(RequestError::Missing("header"))?;
        let follow = match (emulator, plugin, program) {
            (Some(emulator), Some(plugin), Some(program)) => Some(Follow { emulator, plugin, program, sysroot }),
            _ => None,
        };
        let handover = match (handover, execs, signals) {
            (Some(file), Some(execs), Some(signals)) => Some(Handover { file, execs, signals }),
            _ => None,
        };
        Ok(Request { output, identity, header, max_instructions, memory, follow, handover })
    }

    /// The trace file of an image; the first image's name is its prefix.
    pub fn path_of(&self, image: Image) -> PathBuf {
        let mut path = self.output.clone().into_os_string();
        path.push(image.suffix());
        path.into()
    }

    /// The text from which [`Request::parse`] reads this request, as part of a QEMU argument.
    pub fn to_argument(&self) -> Vec<u8> {
        let mut parts = vec![format!("output={}", hex(&self.output)), format!("header={}", hex(&self.header))];
        parts.extend(self.identity.map(|(device, inode)| format!("identity={device}:{inode}")));
        parts.extend(self.max_instructions.map(|max| format!("max={max}")));
        if let Some(Follow { emulator, plugin, program, sysroot }) = &self.follow {
            let named = [("emulator", emulator), ("plugin", plugin), ("program", program)];
            let sysroot = sysroot.iter().map(|path| ("sysroot", path));
            parts.extend(named.into_iter().chain(sysroot).map(|(name, path)| format!("{name}={}", hex(path))));
        }
        parts.extend(
            self.handover.iter().map(|handover| {
                format!("handed={},execs={},signals={}", handover.file, handover.execs, handover.signals)
            }),
        );
        parts.join(",").into_bytes()
    }

    /// Parses the arguments that QEMU passes.
    ///
    /// # Safety
    /// `arguments` points to `count` strings.
    pub unsafe fn of_qemu(count: c_int, arguments: *const *const c_char) -> Result<Request, RequestError> {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the caller guarantees the strings.
        let argument = |index: usize| unsafe { CStr::from_ptr(*arguments.add(index)).to_bytes() };
        Request::parse((0..count).map(argument))
    }
}

fn device_and_inode(numbers: &str) -> Option<(u64, u64)> {
    let (device, inode) = numbers.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

fn hex(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path(hex: &str) -> Option<PathBuf> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?) as u8),
        _ => None,
    };
    pairs
        .map(byte)
        .collect::<Option<Vec<u8>>>()
        .filter(|path| !path.is_empty())
        .map(OsString::from_vec)
        .map(PathBuf::from)
}

/// The header that `pagelab record` wrote, for the program's instruction set.
pub fn header(json: &[u8], target: &str) -> Result<Header, HeaderError> {
    let header: Header = serde_json::from_slice(json).map_err(HeaderError::None)?;
    if header.schema != SCHEMA {
        return Err(HeaderError::Schema(header.schema));
    }
    if header.architecture != target {
        return Err(HeaderError::Architecture { program: header.architecture, target: target.to_owned() });
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Request, RequestError> {
        Request::parse(arguments.iter().map(|argument| argument.as_bytes()))
    }

    #[test]
    fn a_path_may_have_any_bytes() {
        let request = parse(&["output=2f612c62ff", "header=2f", "max=7"]).unwrap();
        assert_eq!(request.output.into_os_string().into_vec(), b"/a,b\xff");
        assert_eq!(request.max_instructions, Some(7));
        assert_eq!((request.memory, request.identity), (PathBuf::new(), None));
        assert_eq!(parse(&["output=2f", "header=2f", "identity=3:9"]).unwrap().identity, Some((3, 9)));
        assert_eq!(parse(&["output=2f", "header=2f", "memory=2f61"]).unwrap().memory, PathBuf::from("/a"));
    }

    #[test]
    fn the_next_recorder_understands_the_request() {
        let path = |name: &str| PathBuf::from(format!("/a,b/{name}"));
        let follow = |sysroot| {
            Some(Follow { emulator: path("qemu"), plugin: path("plugin"), program: path("program"), sysroot })
        };
        let first = Request {
            output: path("trace"),
            identity: Some((1, u64::MAX)),
            header: path("header"),
            max_instructions: None,
            memory: PathBuf::new(),
            follow: follow(None),
            handover: None,
        };
        let handover = Some(Handover { file: 1_000_000, execs: 3, signals: u64::MAX });
        let max_instructions = Some(7);
        let next = Request { follow: follow(Some(path("root"))), handover, max_instructions, ..first.clone() };
        for request in [first, next] {
            let argument = request.to_argument();
            assert_eq!(Request::parse(argument.split(|byte| *byte == b',')), Ok(request));
        }
    }

    #[test]
    fn other_arguments_are_refused() {
        let header = "header=2f";
        assert!(parse(&["output=2f", header]).is_ok());
        for wrong in [
            &["output=2", header][..],
            &["output=", header],
            &["output=zz", header],
            &["max=1", header],
            &["output=2f", header, "min=1"],
            &["output=2f"],
            &["x"],
            &[],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
