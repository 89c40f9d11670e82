// SPDX-License-Identifier: GPL-2.0-or-later
//! The part of QEMU's plugin API that is used, declared by hand and looked up by name, because Debian ships no header.
//!
//! Source: `include/qemu/qemu-plugin.h`, in QEMU 11 `include/plugins/qemu-plugin.h`. For the functions used here, versions 1
//! (QEMU 6.0 to 8.2) and 2 to 6 (QEMU 9.0 to 11.0) differ only in the number that a plugin must export. In version 7 (QEMU 11.1),
//! which QEMU accepts as the oldest from then on, callbacks have other arguments ([`crate::abi`]).

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};

/// A translation block, or an instruction in one; a pointer owned by QEMU.
pub type Opaque = *mut c_void;

/// Both loads and stores.
pub const MEMORY_READ_AND_WRITE: c_int = 3;
/// The callback does not read registers.
pub const NO_REGISTERS: c_int = 0;

/// The oldest version of the API that this plugin can be loaded with.
const OLDEST: c_int = 1;
/// The first version with scoreboards. QEMU 9.0 refuses plugins of an earlier version.
const WITH_SCOREBOARDS: c_int = 2;
/// The first version whose callbacks get user data in place of the plugin's ID. QEMU 11.1 refuses plugins of an earlier version.
pub const WITH_USER_DATA: c_int = 7;

/// The environment variable that holds [`WITH_USER_DATA`] where the plugin must be loaded with that version. Versions 6 and 7
/// export the same names, and QEMU reads the version before it passes the arguments, so `pagelab record` passes it here.
pub const VERSION_VARIABLE: &str = "PAGELAB_QEMU_PLUGIN_VERSION";

/// The beginning of QEMU's `qemu_info_t`, which is the same in all versions.
#[repr(C)]
pub struct Info {
    /// The instruction set: `x86_64`.
    pub target: *const c_char,
    /// The oldest version of the API that QEMU offers.
    pub oldest: c_int,
    /// The newest version of the API that QEMU offers.
    pub current: c_int,
    /// Whether a whole machine is emulated.
    pub system: bool,
}

/// The API version that the plugin reports. QEMU reads it after loading the plugin and before it calls `qemu_plugin_install`.
// SAFETY: QEMU looks the name up in each plugin separately; no other symbol has this name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU gives the name")]
pub static mut qemu_plugin_version: c_int = OLDEST;

/// Runs when the plugin is loaded, before QEMU reads the version.
// SAFETY: the section of constructors holds functions of this type.
#[unsafe(link_section = ".init_array")]
#[used]
static CHOOSE_VERSION: extern "C" fn() = {
    extern "C" fn choose() {
        let reported = std::env::var_os(VERSION_VARIABLE);
        // SAFETY: nothing else uses the variable before the plugin is loaded.
        unsafe { qemu_plugin_version = chosen(has_scoreboards(), reported.as_deref()) };
    }
    choose
};

/// The API version to report to a QEMU.
fn chosen(has_scoreboards: bool, reported: Option<&OsStr>) -> c_int {
    let reported = reported.and_then(OsStr::to_str).and_then(|reported| reported.parse().ok());
    match (has_scoreboards, reported) {
        (false, _) => OLDEST,
        (true, Some(WITH_USER_DATA)) => WITH_USER_DATA,
        (true, _) => WITH_SCOREBOARDS,
    }
}

/// The API version with which QEMU has loaded the plugin.
pub fn version() -> c_int {
    // SAFETY: written once, before the plugin was loaded.
    unsafe { qemu_plugin_version }
}

fn has_scoreboards() -> bool {
    !symbol(c"qemu_plugin_scoreboard_new").is_null()
}

pub fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Why the plugin cannot work with the program that loaded it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// QEMU does not offer the plugin's version of the API.
    #[error(
        "QEMU offers versions {oldest} to {current} of the plugin API; expected version {version} among them: use QEMU 7.2 to 11.1"
    )]
    Version {
        /// The oldest version that QEMU offers.
        oldest: c_int,
        /// The newest version that QEMU offers.
        current: c_int,
        /// The plugin's version.
        version: c_int,
    },
    /// QEMU emulates a machine, but a program was expected.
    #[error("QEMU emulates a whole machine; record it with --system")]
    Machine,
    /// QEMU emulates a program, but a machine was expected.
    #[error("QEMU emulates one program; expected a whole machine, as qemu-system-x86_64")]
    Program,
    /// The program that loaded the plugin does not export a function of QEMU's.
    #[error("{0:?} is missing: the plugin was not loaded by QEMU")]
    Missing(&'static CStr),
}

/// Checks that the plugin, loaded with this version of the API, can work with a QEMU that is expected to emulate a whole machine
/// or one program.
pub fn check(info: &Info, version: c_int, expects_system: bool) -> Result<(), ApiError> {
    let &Info { oldest, current, .. } = info;
    if !(oldest..=current).contains(&version) {
        return Err(ApiError::Version { oldest, current, version });
    }
    match (info.system, expects_system) {
        (true, false) => Err(ApiError::Machine),
        (false, true) => Err(ApiError::Program),
        _ => Ok(()),
    }
}

impl Api {
    /// Whether QEMU reports physical addresses. With version 1 of the API it reports offsets in blocks of memory, to which the
    /// address of a block that is mapped as a whole is added (`qemu_plugin_hwaddr_phys_addr`, plugins/api.c).
    pub fn has_physical_addresses(&self) -> bool {
        has_scoreboards()
    }
}

pub type Id = u64;
pub type ExecutionCallback = extern "C" fn(c_uint, usize);
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, usize);

/// Declares functions of the API and the lookup of their symbols.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident: $($name:ident: $type:ty = $symbol:literal,)*) => {
        $(#[$about])*
        pub struct $table { $(pub $name: $type,)* }

        impl $table {
            /// Looks all of them up in the program that loaded the plugin.
            pub fn find() -> Result<$table, $crate::api::ApiError> {
                Ok($table { $($name: {
                    let found = $crate::api::symbol($symbol);
                    if found.is_null() {
                        return Err($crate::api::ApiError::Missing($symbol));
                    }
                    // SAFETY: QEMU's function of that name has this type, by its header.
                    unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(found) }
                },)* })
            }
        }
    };
}

pub(crate) use functions;

functions! {
    /// Functions that have the same type in every version.
    Api:
    on_block: extern "C" fn(Opaque, ExecutionCallback, c_int, usize) = c"qemu_plugin_register_vcpu_tb_exec_cb",
    on_instruction: extern "C" fn(Opaque, ExecutionCallback, c_int, usize) = c"qemu_plugin_register_vcpu_insn_exec_cb",
    on_memory: extern "C" fn(Opaque, MemoryCallback, c_int, c_int, usize) = c"qemu_plugin_register_vcpu_mem_cb",
    block_instructions: extern "C" fn(Opaque) -> usize = c"qemu_plugin_tb_n_insns",
    block_instruction: extern "C" fn(Opaque, usize) -> Opaque = c"qemu_plugin_tb_get_insn",
    instruction_address: extern "C" fn(Opaque) -> u64 = c"qemu_plugin_insn_vaddr",
    instruction_bytes: extern "C" fn(Opaque) -> usize = c"qemu_plugin_insn_size",
    instruction_in_host: extern "C" fn(Opaque) -> *const u8 = c"qemu_plugin_insn_haddr",
    access_is_store: extern "C" fn(u32) -> bool = c"qemu_plugin_mem_is_store",
    access_in_hardware: extern "C" fn(u32, u64) -> *const c_void = c"qemu_plugin_get_hwaddr",
    access_is_io: extern "C" fn(*const c_void) -> bool = c"qemu_plugin_hwaddr_is_io",
    access_physical: extern "C" fn(*const c_void) -> u64 = c"qemu_plugin_hwaddr_phys_addr",
    access_size_shift: extern "C" fn(u32) -> c_uint = c"qemu_plugin_mem_size_shift",
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(oldest: c_int, current: c_int, system: bool) -> Info {
        Info { target: c"x86_64".as_ptr(), oldest, current, system }
    }

    #[test]
    fn versions_that_this_plugin_was_not_written_for_are_refused() {
        // QEMU 7.2, 9.0, 10.0, 11.0, 11.1.
        for (oldest, current, version) in [(0, 1, 1), (2, 2, 2), (2, 5, 2), (2, 6, 2), (7, 7, 7)] {
            assert_eq!(check(&info(oldest, current, false), version, false), Ok(()));
        }
        for (oldest, current, version) in [(0, 0, 1), (7, 7, 2), (2, 6, 7), (8, 9, 7)] {
            let refused = check(&info(oldest, current, false), version, false).unwrap_err().to_string();
            assert!(refused.contains(&format!("versions {oldest} to {current}")) && refused.contains("use QEMU"));
        }
    }

    #[test]
    fn the_version_is_what_qemu_has_and_pagelab_says() {
        let reported = |text: &'static str| Some(OsStr::new(text));
        assert_eq!([None, reported("7")].map(|reported| chosen(false, reported)), [OLDEST; 2]);
        assert_eq!(chosen(true, reported("7")), WITH_USER_DATA);
        assert_eq!(
            [None, reported(""), reported("8"), reported("x")].map(|reported| chosen(true, reported)),
            [WITH_SCOREBOARDS; 4]
        );
    }

    #[test]
    fn a_machine_is_no_program() {
        let refused = |has, expects| check(&info(0, 1, has), 1, expects).unwrap_err().to_string();
        assert!(refused(true, false).contains("--system") && refused(false, true).contains("whole machine"));
        assert_eq!(check(&info(0, 1, true), 1, true), Ok(()));
    }
}
