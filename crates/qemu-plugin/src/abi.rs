// SPDX-License-Identifier: GPL-2.0-or-later
//! Where QEMU calls the plugin when something begins, is translated or ends.
//!
//! Up to version 6 of the API such a callback gets the plugin's identity first; from version 7 on it gets what was given at its
//! registration last. The plugin needs neither. (Callbacks of executed instructions have always been of the second kind.)

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use crate::api::{self, Id, Opaque};

/// What the plugin does then.
pub struct Callbacks {
    /// A vCPU begins: a thread, or a processor of a machine.
    pub vcpu_begins: fn(c_uint),
    /// It ends.
    pub vcpu_ends: fn(c_uint),
    /// A block of instructions is translated.
    pub translated: fn(Opaque),
    /// A system call begins: its vCPU, number and arguments. Not of a whole machine.
    pub call_begins: fn(c_uint, i64, [u64; 6]),
    /// It returns: its vCPU, number and result.
    pub call_returns: fn(c_uint, i64, i64),
    /// QEMU ends.
    pub process_ends: fn(),
}

static CALLBACKS: OnceLock<Callbacks> = OnceLock::new();

fn callbacks() -> &'static Callbacks {
    CALLBACKS.get().expect("callbacks come after their registration")
}

/// Asks a QEMU that has loaded the plugin with a version of its API to call. A machine has no system calls.
pub fn register(id: Id, version: c_int, is_system: bool, callbacks: Callbacks) -> Result<(), String> {
    let _ = CALLBACKS.set(callbacks);
    if version < api::WITH_USER_DATA {
        with_identity::register(id, is_system)
    } else {
        with_data::register(id, is_system)
    }
}

/// Up to version 6.
mod with_identity {
    use super::*;

    type Vcpu = extern "C" fn(Id, c_uint);
    type Translated = extern "C" fn(Id, Opaque);
    type Call = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
    type Return = extern "C" fn(Id, c_uint, i64, i64);
    type End = extern "C" fn(Id, usize);

    api::functions! {
        /// How such callbacks are registered.
        Registration:
        vcpu_begins: extern "C" fn(Id, Vcpu) = c"qemu_plugin_register_vcpu_init_cb",
        vcpu_ends: extern "C" fn(Id, Vcpu) = c"qemu_plugin_register_vcpu_exit_cb",
        translated: extern "C" fn(Id, Translated) = c"qemu_plugin_register_vcpu_tb_trans_cb",
        call_begins: extern "C" fn(Id, Call) = c"qemu_plugin_register_vcpu_syscall_cb",
        call_returns: extern "C" fn(Id, Return) = c"qemu_plugin_register_vcpu_syscall_ret_cb",
        process_ends: extern "C" fn(Id, End, usize) = c"qemu_plugin_register_atexit_cb",
    }

    pub fn register(id: Id, is_system: bool) -> Result<(), String> {
        let of = Registration::find()?;
        (of.vcpu_begins)(id, vcpu_begins);
        (of.vcpu_ends)(id, vcpu_ends);
        (of.translated)(id, translated);
        if !is_system {
            (of.call_begins)(id, call_begins);
            (of.call_returns)(id, call_returns);
        }
        (of.process_ends)(id, process_ends, 0);
        Ok(())
    }

    extern "C" fn vcpu_begins(_id: Id, vcpu: c_uint) {
        (callbacks().vcpu_begins)(vcpu);
    }

    extern "C" fn vcpu_ends(_id: Id, vcpu: c_uint) {
        (callbacks().vcpu_ends)(vcpu);
    }

    extern "C" fn translated(_id: Id, block: Opaque) {
        (callbacks().translated)(block);
    }

    #[allow(clippy::too_many_arguments, reason = "QEMU gives the type")]
    extern "C" fn call_begins(
        _id: Id,
        vcpu: c_uint,
        number: i64,
        first: u64,
        second: u64,
        third: u64,
        fourth: u64,
        fifth: u64,
        sixth: u64,
        _seventh: u64,
        _eighth: u64,
    ) {
        (callbacks().call_begins)(vcpu, number, [first, second, third, fourth, fifth, sixth]);
    }

    extern "C" fn call_returns(_id: Id, vcpu: c_uint, number: i64, result: i64) {
        (callbacks().call_returns)(vcpu, number, result);
    }

    extern "C" fn process_ends(_id: Id, _data: usize) {
        (callbacks().process_ends)();
    }
}

/// From version 7 on.
mod with_data {
    use super::*;

    type Vcpu = extern "C" fn(c_uint, usize);
    type Translated = extern "C" fn(Opaque, usize);
    type Call = extern "C" fn(c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64, usize);
    type Return = extern "C" fn(c_uint, i64, i64, usize);
    type End = extern "C" fn(usize);

    api::functions! {
        /// How such callbacks are registered.
        Registration:
        vcpu_begins: extern "C" fn(Id, Vcpu, usize) = c"qemu_plugin_register_vcpu_init_cb",
        vcpu_ends: extern "C" fn(Id, Vcpu, usize) = c"qemu_plugin_register_vcpu_exit_cb",
        translated: extern "C" fn(Id, Translated, usize) = c"qemu_plugin_register_vcpu_tb_trans_cb",
        call_begins: extern "C" fn(Id, Call, usize) = c"qemu_plugin_register_vcpu_syscall_cb",
        call_returns: extern "C" fn(Id, Return, usize) = c"qemu_plugin_register_vcpu_syscall_ret_cb",
        process_ends: extern "C" fn(Id, End, usize) = c"qemu_plugin_register_atexit_cb",
    }

    pub fn register(id: Id, is_system: bool) -> Result<(), String> {
        let of = Registration::find()?;
        (of.vcpu_begins)(id, vcpu_begins, 0);
        (of.vcpu_ends)(id, vcpu_ends, 0);
        (of.translated)(id, translated, 0);
        if !is_system {
            (of.call_begins)(id, call_begins, 0);
            (of.call_returns)(id, call_returns, 0);
        }
        (of.process_ends)(id, process_ends, 0);
        Ok(())
    }

    extern "C" fn vcpu_begins(vcpu: c_uint, _data: usize) {
        (callbacks().vcpu_begins)(vcpu);
    }

    extern "C" fn vcpu_ends(vcpu: c_uint, _data: usize) {
        (callbacks().vcpu_ends)(vcpu);
    }

    extern "C" fn translated(block: Opaque, _data: usize) {
        (callbacks().translated)(block);
    }

    #[allow(clippy::too_many_arguments, reason = "QEMU gives the type")]
    extern "C" fn call_begins(
        vcpu: c_uint,
        number: i64,
        first: u64,
        second: u64,
        third: u64,
        fourth: u64,
        fifth: u64,
        sixth: u64,
        _seventh: u64,
        _eighth: u64,
        _data: usize,
    ) {
        (callbacks().call_begins)(vcpu, number, [first, second, third, fourth, fifth, sixth]);
    }

    extern "C" fn call_returns(vcpu: c_uint, number: i64, result: i64, _data: usize) {
        (callbacks().call_returns)(vcpu, number, result);
    }

    extern "C" fn process_ends(_data: usize) {
        (callbacks().process_ends)();
    }
}
