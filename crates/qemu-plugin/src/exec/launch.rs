// SPDX-License-Identifier: GPL-2.0-or-later
//! Executes QEMU in place of a program: its command line, and the data that the next recorder gets.

use std::ffi::{CString, c_char};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use trace::Header;

use crate::api::{self, VERSION_VARIABLE, WITH_USER_DATA};
use crate::exec::program::{NotRecorded, Program};
use crate::file::duplicate_across_exec;
use crate::no_link;
use crate::request::{Follow, Handover, Request};

/// How to start QEMU and a recorder for the next program.
pub struct Launch<'a> {
    /// The arguments of the previous recorder.
    pub request: &'a Request,
    /// The arguments to start QEMU with.
    pub follow: &'a Follow,
    /// The header of the trace.
    pub header: Header,
    /// The file of the trace, which does not exist yet.
    pub path: &'a Path,
    /// How many programs the process has executed, including this one.
    pub execs: u32,
    /// The signals that the program blocks.
    pub signals: u64,
}

impl Launch<'_> {
    /// Executes QEMU, which executes the program. Returns the reason only if that fails; the trace file is removed then.
    pub fn execute(self, program: &Program, environment: &[Vec<u8>]) -> NotRecorded {
        let untraceable = |error| NotRecorded::Trace { path: self.path.to_owned(), error };
        let file = match self.create_trace() {
            Ok(file) => file,
            Err(error) => return untraceable(error),
        };
        let error = self.exec(program, environment, file);
        // SAFETY: the descriptor was made for the program, which does not run.
        unsafe { libc::close(file) };
        let _ = no_link::remove(self.path);
        NotRecorded::Emulator { path: self.follow.emulator.clone(), error }
    }

    /// Creates the file with the header in it, open across execve.
    fn create_trace(&self) -> io::Result<RawFd> {
        let mut file = no_link::open(self.path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
        let prepared =
            file.write_all(&serde_json::to_vec(&self.header)?).and_then(|()| duplicate_across_exec(file.as_raw_fd()));
        prepared.inspect_err(|_| drop(no_link::remove(self.path)))
    }

    fn exec(&self, program: &Program, environment: &[Vec<u8>], file: RawFd) -> io::Error {
        let has_version = api::version() >= WITH_USER_DATA;
        let arguments = match self.arguments(program, file, has_version) {
            Ok(arguments) => arguments,
            Err(error) => return error.into(),
        };
        let environment = match variables(environment, has_version) {
            Ok(environment) => environment,
            Err(error) => return error.into(),
        };
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argument_pointers, variable_pointers) = (pointers(&arguments), pointers(&environment));
        // SAFETY: both arrays hold zero-terminated strings and end with a null pointer; the first string is QEMU's path.
        unsafe { libc::execve(arguments[0].as_ptr(), argument_pointers.as_ptr(), variable_pointers.as_ptr()) };
        io::Error::last_os_error()
    }

    /// QEMU's command line.
    fn arguments(&self, program: &Program, file: RawFd, has_version: bool) -> Result<Vec<CString>, std::ffi::NulError> {
        let follow = Follow { program: real(&program.path), ..self.follow.clone() };
        let sysroot = follow.sysroot.clone();
        let request = Request {
            identity: None,
            follow: Some(follow),
            handover: Some(Handover { file, execs: self.execs, signals: self.signals }),
            ..self.request.clone()
        };
        let mut arguments: Vec<Vec<u8>> = vec![bytes(&self.follow.emulator), b"-plugin".to_vec()];
        arguments.push([&escape_commas(&self.follow.plugin)[..], b",", &request.to_argument()].concat());
        if has_version {
            // The option -U removes the variable from the program's environment.
            arguments.extend([b"-U".to_vec(), VERSION_VARIABLE.as_bytes().to_vec()]);
        }
        arguments.extend([b"-0".to_vec(), program.name.clone()]);
        arguments.extend(sysroot.iter().flat_map(|root| [b"-L".to_vec(), bytes(root)]));
        let path = bytes(&program.path);
        // QEMU would take a name that begins with - for an option.
        arguments.push(if path.starts_with(b"-") { [b"./", &path[..]].concat() } else { path });
        arguments.extend(program.arguments.iter().cloned());
        arguments.into_iter().map(CString::new).collect()
    }
}

/// The program's environment, with the plugin's variable added.
fn variables(environment: &[Vec<u8>], has_version: bool) -> Result<Vec<CString>, std::ffi::NulError> {
    let name = format!("{VERSION_VARIABLE}=").into_bytes();
    let own = has_version.then(|| [&name[..], WITH_USER_DATA.to_string().as_bytes()].concat());
    let of_program = environment.iter().filter(|variable| !variable.starts_with(&name)).cloned();
    of_program.chain(own).map(CString::new).collect()
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn real(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A path as part of an argument of QEMU, which splits arguments at commas; a double comma means one comma.
fn escape_commas(path: &Path) -> Vec<u8> {
    let commas = |byte: &u8| std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 });
    path.as_os_str().as_bytes().iter().flat_map(commas).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_command_has_the_program_as_it_was_called() {
        let follow = Follow {
            emulator: "/bin/qemu".into(),
            plugin: "/a,b.so".into(),
            program: "/bin/sh".into(),
            sysroot: Some("/root".into()),
        };
        let request = Request {
            output: "/out".into(),
            identity: Some((1, 2)),
            header: "/header".into(),
            max_instructions: None,
            memory: PathBuf::new(),
            follow: Some(follow.clone()),
            handover: None,
        };
        let next = Launch {
            request: &request,
            follow: &follow,
            header: Header::of(""),
            path: Path::new("/out.1"),
            execs: 2,
            signals: 5,
        };
        let program = Program { path: "-x".into(), name: b"called so".to_vec(), arguments: vec![b"-a".to_vec()] };
        let arguments = next.arguments(&program, 9, true).unwrap();
        let arguments: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(arguments[..2], ["/bin/qemu", "-plugin"]);
        assert!(
            arguments[2].starts_with("/a,,b.so,output=2f6f7574,")
                && arguments[2].ends_with(",handed=9,execs=2,signals=5"),
            "{arguments:?}"
        );
        assert!(!arguments[2].contains("identity"));
        assert_eq!(arguments[3..], ["-U", VERSION_VARIABLE, "-0", "called so", "-L", "/root", "./-x", "-a"]);
        let environment = [b"A=1".to_vec(), b"PAGELAB_QEMU_PLUGIN_VERSION=3".to_vec()];
        assert_eq!(variables(&environment, false).unwrap(), [c"A=1".to_owned()]);
        assert_eq!(
            variables(&environment, true).unwrap(),
            [c"A=1".to_owned(), c"PAGELAB_QEMU_PLUGIN_VERSION=7".to_owned()]
        );
    }
}
