// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's entry point: parses the arguments, makes a recorder and registers the callbacks.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trace::Image;

use crate::abi::{self, Callbacks};
use crate::api::{self, Api, ApiError, Id, Info, Opaque};
use crate::call::Numbers;
use crate::exec::signals;
use crate::file::{ErrorOutput, TraceFile};
use crate::guest_memory::owned::Owned;
use crate::guest_memory::regions;
use crate::plugin::PLUGIN;
use crate::recorder::{Plan, Recorder};
use crate::request::{self, HeaderError, Request, RequestError};
use crate::schedule::Schedule;
use crate::{process, program, system};

/// Why recording is not possible.
#[derive(Debug, thiserror::Error)]
enum InstallError {
    /// The arguments are invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("QEMU emulates {0}; expected x86_64, aarch64 or riscv64")]
    Target(String),
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{}", path.display())]
    Header {
        /// The file with the header.
        path: PathBuf,
        /// The error in the header.
        #[source]
        error: HeaderError,
    },
    /// The program that loaded the plugin is not a suitable QEMU.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The maps of this process cannot be read.
    #[error("cannot read /proc/self/maps; is /proc mounted?")]
    Maps,
}

/// The function that QEMU calls after loading the plugin.
///
/// # Safety
/// `info` points to QEMU's description of itself, `arguments` to `count` strings.
// SAFETY: QEMU looks the name up in each plugin separately; no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes these, and they are valid during the call.
    let request = unsafe { Request::of_qemu(count, arguments) };
    let handover = request.as_ref().ok().and_then(|request| request.handover);
    // SAFETY: as above.
    let installed = request.map_err(InstallError::from).and_then(|request| unsafe { install(id, &*info, request) });
    if let Some(handover) = handover {
        // Before this point QEMU does not check for signals, so they stayed blocked until now.
        signals::set(handover.signals);
    }
    match installed {
        Ok(()) => 0,
        Err(error) => {
            ErrorOutput::open().report(&error);
            // If a recorded program executes this program, the program runs even if it cannot be recorded.
            c_int::from(handover.is_none())
        }
    }
}

/// Opens the trace file and reads its header.
fn open_trace(request: &Request) -> Result<(TraceFile, Vec<u8>), InstallError> {
    let of = |path: &Path| {
        let path = path.to_owned();
        move |error| InstallError::File { path, error }
    };
    let Some(handover) = request.handover else {
        let file = TraceFile::open(&request.output, request.identity).map_err(of(&request.output))?;
        let json = std::fs::read(&request.header).map_err(of(&request.header))?;
        return Ok((file, json));
    };
    let path = request.path_of(Image { process: std::process::id(), execs: handover.execs });
    // SAFETY: the descriptor was opened for this, and nothing else uses it.
    unsafe { TraceFile::from_descriptor(&path, handover.file) }.map_err(of(&path))
}

/// Sets up the recorder and registers the callbacks.
///
/// # Safety
/// `info` comes from QEMU: its target name is a string.
unsafe fn install(id: Id, info: &Info, request: Request) -> Result<(), InstallError> {
    // SAFETY: the caller guarantees it.
    let target = unsafe { CStr::from_ptr(info.target) }.to_string_lossy().into_owned();
    let numbers = Numbers::of(&target).ok_or_else(|| InstallError::Target(target.clone()))?;
    let (file, json) = open_trace(&request)?;
    let path = file.path().to_owned();
    let of_output = |error| InstallError::File { path, error };
    let wrong_header = |error| InstallError::Header { path: request.header.clone(), error };
    let header = request::header(&json, &target).map_err(wrong_header)?;
    api::check(info, api::version(), header.system)?;
    PLUGIN.program.is_x86_64.store(target == "x86_64", Ordering::Relaxed);
    let lowest = regions::lowest(&process::maps()).ok_or(InstallError::Maps)?;
    let api = Api::find()?;
    let (is_system, keeps_addresses) = (header.system, header.columns.addresses);
    let plan = Plan {
        schedule: Schedule::new(&header, request.max_instructions),
        header,
        numbers,
        request,
        events: &PLUGIN.events,
    };
    PLUGIN.set_recorder(Recorder::new(file, plan, Owned::below(lowest)).map_err(of_output)?);
    let version = api::version();
    PLUGIN.set_api(api);
    match (is_system, keeps_addresses) {
        (false, false) => abi::register::<OfProgram<false>>(id, version, is_system)?,
        (false, true) => abi::register::<OfProgram<true>>(id, version, is_system)?,
        (true, false) => abi::register::<OfMachine<false>>(id, version, is_system)?,
        (true, true) => abi::register::<OfMachine<true>>(id, version, is_system)?,
    }
    Ok(())
}

/// The callbacks for a program. `KEEP`: every address is kept.
struct OfProgram<const KEEP: bool>;

impl<const KEEP: bool> Callbacks for OfProgram<KEEP> {
    fn vcpu_begins(vcpu: c_uint) {
        process::vcpu_begins(vcpu);
    }

    fn vcpu_ends(vcpu: c_uint) {
        process::vcpu_ends(vcpu);
    }

    fn translated(block: Opaque) {
        if KEEP { program::translated_and_kept(block) } else { program::translated(block) }
    }

    fn call_begins(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
        process::call_begins(vcpu, number, arguments);
    }

    fn call_returns(vcpu: c_uint, number: i64, result: i64) {
        process::call_returns(vcpu, number, result);
    }

    fn process_ends() {
        process::ends();
    }
}

/// The callbacks for a machine. `KEEP`: every address is kept.
struct OfMachine<const KEEP: bool>;

impl<const KEEP: bool> Callbacks for OfMachine<KEEP> {
    fn vcpu_begins(vcpu: c_uint) {
        process::vcpu_begins(vcpu);
    }

    fn vcpu_ends(vcpu: c_uint) {
        process::vcpu_ends(vcpu);
    }

    fn translated(block: Opaque) {
        system::translated::<KEEP>(block);
    }

    fn call_begins(_vcpu: c_uint, _number: i64, _arguments: [u64; 6]) {}

    fn call_returns(_vcpu: c_uint, _number: i64, _result: i64) {}

    fn process_ends() {
        process::ends();
    }
}
