// SPDX-License-Identifier: GPL-2.0-or-later
//! What is used of QEMU's plugin API, declared by hand and found by name: Debian ships no header.
//!
//! Source: `include/qemu/qemu-plugin.h`. Of what is used here, versions 1 (QEMU 6.0 to 8.2) and 2 and later (QEMU 9.0
//! on) differ in nothing but the number that a plugin must export.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A translation block, or an instruction of one: QEMU's own.
pub type Opaque = *mut c_void;

/// Both loads and stores.
pub const MEMORY_READ_AND_WRITE: c_int = 3;
/// A callback does not look at registers.
pub const NO_REGISTERS: c_int = 0;

/// The oldest version of the API that this plugin can be loaded with.
const OLDEST: c_int = 1;
/// The first version with scoreboards. QEMU 9.0 refuses plugins of an earlier one.
const WITH_SCOREBOARDS: c_int = 2;

/// What QEMU tells a plugin about itself; the beginning of `qemu_info_t`, the same in all versions.
#[repr(C)]
pub struct Info {
    /// The instruction set: `x86_64`.
    pub target: *const c_char,
    /// The oldest version of the API that QEMU offers.
    pub oldest: c_int,
    /// The current one.
    pub current: c_int,
    /// Whether a whole machine is emulated.
    pub system: bool,
}

/// The version that the plugin says it was built for. QEMU reads it after loading and before `qemu_plugin_install`.
// SAFETY: QEMU looks for the name in each plugin by itself; nothing else is called so.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU gives the name")]
pub static mut qemu_plugin_version: c_int = OLDEST;

/// Runs when the plugin is loaded, before QEMU reads the version.
// SAFETY: a section of constructors holds functions of this type.
#[unsafe(link_section = ".init_array")]
#[used]
static CHOOSE_VERSION: extern "C" fn() = {
    extern "C" fn choose() {
        // SAFETY: nobody else uses the variable before the plugin is loaded.
        unsafe {
            if !symbol(c"qemu_plugin_scoreboard_new").is_null() {
                qemu_plugin_version = WITH_SCOREBOARDS;
            }
        }
    }
    choose
};

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Says why the plugin cannot work with a QEMU, from which it expects a whole machine or one program.
pub fn check(info: &Info, expects_system: bool) -> Result<(), String> {
    let offered = format!("QEMU offers versions {} to {} of the plugin API", info.oldest, info.current);
    if info.current < OLDEST || info.oldest > WITH_SCOREBOARDS {
        return Err(format!(
            "{offered}; expected version {OLDEST} or {WITH_SCOREBOARDS} among them: use QEMU 7.2 to 10"
        ));
    }
    match (info.system, expects_system) {
        (true, false) => Err("QEMU emulates a whole machine; record it with --system".to_owned()),
        (false, true) => Err("QEMU emulates one program; expected a whole machine, as qemu-system-x86_64".to_owned()),
        _ => Ok(()),
    }
}

impl Api {
    /// Whether QEMU tells physical addresses. Those of version 1 of the API tell offsets in blocks of memory, to which the
    /// address of a block that is mapped as a whole is added (`qemu_plugin_hwaddr_phys_addr`, plugins/api.c).
    pub fn has_physical_addresses(&self) -> bool {
        !symbol(c"qemu_plugin_scoreboard_new").is_null()
    }
}

pub type Id = u64;
pub type VcpuCallback = extern "C" fn(Id, c_uint);
pub type TranslationCallback = extern "C" fn(Id, Opaque);
pub type ExecutionCallback = extern "C" fn(c_uint, usize);
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, usize);
pub type CallCallback = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type ReturnCallback = extern "C" fn(Id, c_uint, i64, i64);
pub type ExitCallback = extern "C" fn(Id, usize);

/// Declares the functions of the API, and how they are found.
macro_rules! functions {
    ($($name:ident: $type:ty = $symbol:literal,)*) => {
        /// The functions of the API.
        pub struct Api { $(pub $name: $type,)* }

        impl Api {
            /// Finds all functions in the program that loaded the plugin.
            pub fn find() -> Result<Api, String> {
                Ok(Api { $($name: {
                    let found = symbol($symbol);
                    if found.is_null() {
                        return Err(format!("{:?} is missing: the plugin was not loaded by QEMU", $symbol));
                    }
                    // SAFETY: QEMU's function of that name has this type, by its header.
                    unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
                },)* })
            }
        }
    };
}

functions! {
    on_vcpu_init: extern "C" fn(Id, VcpuCallback) = c"qemu_plugin_register_vcpu_init_cb",
    on_vcpu_exit: extern "C" fn(Id, VcpuCallback) = c"qemu_plugin_register_vcpu_exit_cb",
    on_translation: extern "C" fn(Id, TranslationCallback) = c"qemu_plugin_register_vcpu_tb_trans_cb",
    on_call: extern "C" fn(Id, CallCallback) = c"qemu_plugin_register_vcpu_syscall_cb",
    on_return: extern "C" fn(Id, ReturnCallback) = c"qemu_plugin_register_vcpu_syscall_ret_cb",
    on_exit: extern "C" fn(Id, ExitCallback, usize) = c"qemu_plugin_register_atexit_cb",
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
        // QEMU 7.2, 9.0, 10.
        for (oldest, current) in [(0, 1), (2, 2), (2, 5)] {
            assert_eq!(check(&info(oldest, current, false), false), Ok(()));
        }
        for (oldest, current) in [(0, 0), (3, 9)] {
            let refused = check(&info(oldest, current, false), false).unwrap_err();
            assert!(refused.contains(&format!("versions {oldest} to {current}")) && refused.contains("use QEMU"));
        }
    }

    #[test]
    fn a_machine_is_no_program() {
        assert!(check(&info(0, 1, true), false).unwrap_err().contains("--system"));
        assert!(check(&info(0, 1, false), true).unwrap_err().contains("whole machine"));
        assert_eq!(check(&info(0, 1, true), true), Ok(()));
    }
}
