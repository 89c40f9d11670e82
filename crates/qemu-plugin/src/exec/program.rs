// SPDX-License-Identifier: GPL-2.0-or-later
//! Determines which program the kernel would execute, and whether QEMU can execute it instead.
//!
//! Everything that the kernel would refuse is left to the kernel, which alone knows the right error.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trace::executable::{ExecutableKind, FIRST_BYTES, MAX_SCRIPTS, executable_kind};

use crate::exec::exec_request::ExecRequest;
use crate::request::Follow;

/// Why a program runs outside the emulation.
#[derive(Debug, thiserror::Error)]
pub enum NotRecorded {
    #[error("for {program}, and {target} is emulated")]
    Architecture {
        /// The program's instruction set.
        program: &'static str,
        /// QEMU's instruction set.
        target: String,
    },
    /// The program is for a machine that is not emulated; the text describes the machine.
    #[error("{0}")]
    Foreign(String),
    #[error("its file may not be read")]
    Unreadable,
    /// The program is setuid, setgid or has capabilities; under emulation it would not gain privileges.
    #[error("it gains privileges, which it would not under QEMU")]
    Privileged,
    /// The program is an open file without a name, whose descriptor is closed by execve.
    #[error("its file has no name and is closed by exec")]
    Nameless,
    #[error("its path, arguments or environment could not be read")]
    Unknown,
    /// A signal arrived that the program must get first. Afterwards the program repeats the call.
    #[error("a signal arrived before it")]
    Signal,
    #[error("its trace {} cannot be made: {error}", path.display())]
    Trace {
        /// The trace file.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} cannot be executed: {error}", path.display())]
    Emulator {
        /// QEMU's executable.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// Why QEMU is not executed.
#[derive(Debug)]
pub enum Obstacle {
    /// The kernel refuses to execute the program.
    Refused,
    /// The program is executed without QEMU.
    Unrecorded(NotRecorded),
}

impl From<NotRecorded> for Obstacle {
    fn from(why: NotRecorded) -> Obstacle {
        Obstacle::Unrecorded(why)
    }
}

/// A program that QEMU can execute; scripts are resolved to their interpreter.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file, as this process sees it.
    pub path: PathBuf,
    /// Its argument 0.
    pub name: Vec<u8>,
    /// The arguments after argument 0.
    pub arguments: Vec<Vec<u8>>,
}

impl Program {
    /// The program that the kernel would execute for this request, where QEMU emulates `target`.
    pub fn of(request: &ExecRequest, target: &str, follow: &Follow) -> Result<Program, Obstacle> {
        let mut path = own_executable(&request.path, &follow.program)
            .unwrap_or_else(|| OsString::from_vec(request.path.clone()).into());
        let mut name = request.arguments.first().cloned().unwrap_or_default();
        let mut arguments = request.arguments.get(1..).unwrap_or_default().to_vec();
        for _ in 0..=MAX_SCRIPTS {
            path = path_after_exec(path)?;
            let file = open_executable(&path)?;
            match executable_kind(&first_bytes(&file)?) {
                ExecutableKind::Program(of) if of.name() != target => {
                    return Err(NotRecorded::Architecture { program: of.name(), target: target.to_owned() }.into());
                }
                ExecutableKind::Program(_) => {
                    has_interpreter(&file, follow.sysroot.as_deref())?;
                    let metadata = file.metadata().map_err(|_| Obstacle::Refused)?;
                    return if is_privileged(&file, &metadata) {
                        Err(NotRecorded::Privileged.into())
                    } else {
                        Ok(Program { path, name, arguments })
                    };
                }
                ExecutableKind::Foreign(what) => return Err(NotRecorded::Foreign(what).into()),
                ExecutableKind::Unknown => return Err(Obstacle::Refused),
                ExecutableKind::Script(interpreter, argument) => {
                    arguments.insert(0, path.into_os_string().into_vec());
                    if let Some(argument) = argument {
                        arguments.insert(0, argument);
                    }
                    name.clone_from(&interpreter);
                    path = OsString::from_vec(interpreter).into();
                }
            }
        }
        Err(Obstacle::Refused)
    }
}

/// The path of the recorded program, if `path` refers to the process's own executable. In this process that would be QEMU.
fn own_executable(path: &[u8], own: &Path) -> Option<PathBuf> {
    let numbered = format!("/proc/{}/exe", std::process::id());
    let names = ["/proc/self/exe", "/proc/thread-self/exe", numbered.as_str()];
    names.iter().any(|name| name.as_bytes() == path).then(|| own.to_owned())
}

/// A path that is still valid after execve; the path of an open file is not, because the file is closed.
fn path_after_exec(path: PathBuf) -> Result<PathBuf, Obstacle> {
    let is_descriptor =
        ["/proc/self/fd/", "/dev/fd/"].iter().any(|of| path.as_os_str().as_bytes().starts_with(of.as_bytes()));
    if !is_descriptor {
        return Ok(path);
    }
    let identity = |path: &Path| path.metadata().ok().map(|of| (of.dev(), of.ino()));
    let real = path.canonicalize().map_err(|_| Obstacle::Unrecorded(NotRecorded::Nameless))?;
    if identity(&real).is_some() && identity(&real) == identity(&path) {
        Ok(real)
    } else {
        Err(NotRecorded::Nameless.into())
    }
}

/// Opens a regular executable file.
#[expect(clippy::disallowed_methods, reason = "it is only read")]
fn open_executable(path: &Path) -> Result<File, Obstacle> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Obstacle::Refused)?;
    // SAFETY: a query about a zero-terminated name.
    if unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) } != 0 {
        return Err(Obstacle::Refused);
    }
    // Opening must not wait, whatever kind of file it is.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(|error| match error
        .kind()
    {
        io::ErrorKind::PermissionDenied => Obstacle::Unrecorded(NotRecorded::Unreadable),
        _ => Obstacle::Refused,
    })?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if is_file && mount_flags(&file) & libc::ST_NOEXEC == 0 { Ok(file) } else { Err(Obstacle::Refused) }
}

/// The `ST_*` flags of a file's file system.
fn mount_flags(file: &File) -> libc::c_ulong {
    // SAFETY: the structure is plain numbers, and the kernel writes it.
    unsafe {
        let mut of: libc::statvfs = std::mem::zeroed();
        if libc::fstatvfs(file.as_raw_fd(), &raw mut of) == 0 { of.f_flag } else { 0 }
    }
}

fn first_bytes(file: &File) -> Result<Vec<u8>, Obstacle> {
    let mut bytes = vec![0; FIRST_BYTES];
    let read = file.read_at(&mut bytes, 0).map_err(|_| Obstacle::Refused)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Whether executing the file would give the process privileges (credentials(7), capabilities(7)).
fn is_privileged(file: &File, metadata: &Metadata) -> bool {
    const NAME: &CStr = c"security.capability";
    const SETGID: u32 = libc::S_ISGID | libc::S_IXGRP;
    // SAFETY: queries about this process and an open file, without buffers.
    let (user, group, no_gain, has_capabilities) = unsafe {
        let no_gain = libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        let attribute = libc::fgetxattr(file.as_raw_fd(), NAME.as_ptr(), std::ptr::null_mut(), 0);
        (libc::geteuid(), libc::getegid(), no_gain, attribute > 0)
    };
    if no_gain || mount_flags(file) & libc::ST_NOSUID != 0 {
        return false;
    }
    let mode = metadata.mode();
    let other_user = mode & libc::S_ISUID != 0 && metadata.uid() != user;
    let other_group = mode & SETGID == SETGID && metadata.gid() != group;
    other_user || other_group || has_capabilities && user != 0
}

/// Checks that the dynamic linker that a program names exists; without it the kernel refuses the program.
fn has_interpreter(file: &File, sysroot: Option<&Path>) -> Result<(), Obstacle> {
    let Some(path) = interpreter(file).map_err(|_| Obstacle::Refused)? else { return Ok(()) };
    let in_sysroot = sysroot.zip(path.strip_prefix("/").ok()).map(|(root, rest)| root.join(rest));
    let is_there = in_sysroot.into_iter().chain([path]).any(|path| path.is_file());
    if is_there { Ok(()) } else { Err(Obstacle::Refused) }
}

/// The dynamic linker of a 64-bit little-endian program (elf(5): `PT_INTERP`).
fn interpreter(file: &File) -> io::Result<Option<PathBuf>> {
    const INTERPRETER: u32 = 3;
    const MAX_BYTES: u64 = 4096;
    let bytes = |offset: u64, count: usize| {
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, offset).map(|()| bytes)
    };
    let number = |bytes: &[u8], at: usize, count: usize| {
        bytes[at..at + count].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let header = bytes(0, 64)?;
    let (table, entry_bytes, entries) = (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2));
    for entry in 0..entries {
        let entry = bytes(table.saturating_add(entry * entry_bytes), 56)?;
        let (offset, length) = (number(&entry, 8, 8), number(&entry, 32, 8));
        if number(&entry, 0, 4) as u32 == INTERPRETER {
            let mut path = bytes(offset, length.min(MAX_BYTES) as usize)?;
            path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
            return Ok(Some(OsStr::from_bytes(&path).into()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn follow(program: &str) -> Follow {
        Follow { emulator: "/qemu".into(), plugin: "/plugin".into(), program: program.into(), sysroot: None }
    }

    fn found(path: &str, arguments: &[&str]) -> Result<Program, Obstacle> {
        let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        let request = ExecRequest { path: path.as_bytes().to_vec(), arguments, environment: Vec::new() };
        Program::of(&request, std::env::consts::ARCH, &follow("/bin/sh"))
    }

    fn executable(directory: &tempfile::TempDir, name: &str, content: &[u8]) -> String {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn finds_programs_through_scripts_descriptors_and_proc_self_exe() {
        let directory = tempfile::tempdir().unwrap();
        let script = executable(&directory, "script", b"#!/bin/sh -e\nexit\n");
        let outer = executable(&directory, "outer", format!("#!{script}\n").as_bytes());
        let program = found(&outer, &["x", "y"]).unwrap();
        let texts: Vec<&str> = program.arguments.iter().map(|text| str::from_utf8(text).unwrap()).collect();
        assert_eq!((program.path.to_str(), program.name.as_slice()), (Some("/bin/sh"), &b"/bin/sh"[..]));
        assert_eq!(texts, ["-e", &script, &outer, "y"]);
        let own = found("/proc/self/exe", &["me"]).unwrap();
        assert_eq!((own.path.to_str(), own.name.as_slice()), (Some("/bin/sh"), &b"me"[..]));
        let open = File::open("/bin/sh").unwrap();
        let by_descriptor = found(&format!("/proc/self/fd/{}", open.as_raw_fd()), &[]).unwrap();
        assert_eq!(by_descriptor.path, Path::new("/bin/sh").canonicalize().unwrap());
    }

    #[test]
    fn leaves_refused_programs_to_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let endless = directory.path().join("endless");
        executable(&directory, "endless", format!("#!{}\n", endless.display()).as_bytes());
        let plain = executable(&directory, "plain", b"\x7fELF");
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
        let text = executable(&directory, "text", b"hello");
        let directory = directory.path().to_str().unwrap();
        for path in ["", "/nowhere/program", directory, &plain, &text, endless.to_str().unwrap()] {
            assert!(matches!(found(path, &["x"]), Err(Obstacle::Refused)), "{path}");
        }
    }

    #[test]
    fn reports_the_machine_of_a_foreign_program() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read("/bin/sh").unwrap();
        bytes[18..20].copy_from_slice(&[0x16, 0]);
        let foreign = executable(&directory, "foreign", &bytes);
        let Err(Obstacle::Unrecorded(NotRecorded::Foreign(what))) = found(&foreign, &[]) else { panic!() };
        assert!(what.contains("machine 22"), "{what}");
        // The program names a dynamic linker that does not exist, so the kernel refuses the program.
        let at = bytes.windows(4).position(|bytes| bytes == b"/ld-").unwrap();
        let own = std::fs::read("/bin/sh").unwrap();
        bytes[18..20].copy_from_slice(&own[18..20]);
        bytes[at..at + 4].copy_from_slice(b"/no-");
        let unlinked = executable(&directory, "unlinked", &bytes);
        assert!(matches!(found(&unlinked, &[]), Err(Obstacle::Refused)));
    }

    #[test]
    fn programs_that_gain_privileges_are_not_emulated() {
        let directory = tempfile::tempdir().unwrap();
        let path = executable(&directory, "program", &std::fs::read("/bin/sh").unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        // The owner of the file gains no privileges.
        assert!(found(&path, &[]).is_ok());
        let file = File::open(&path).unwrap();
        let root =
            File::open("/bin/su").ok().filter(|file| file.metadata().is_ok_and(|of| of.mode() & libc::S_ISUID != 0));
        for file in [Some(file), root].into_iter().flatten() {
            let metadata = file.metadata().unwrap();
            // SAFETY: a plain query.
            let is_other = metadata.uid() != unsafe { libc::geteuid() };
            let may = mount_flags(&file) & libc::ST_NOSUID == 0;
            assert_eq!(is_privileged(&file, &metadata), is_other && may);
        }
    }
}
