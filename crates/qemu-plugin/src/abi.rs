// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks that QEMU calls when something begins, is translated or ends.
//!
//! Up to version 6 of the API such a callback gets the plugin's ID as its first argument. From version 7 on its last argument is
//! the data given at registration. The plugin needs neither. (Callbacks of executed instructions have always been of the second
//! kind.)

use std::ffi::{c_int, c_uint};

use crate::api::{self, ApiError, Id, Opaque};

/// What the plugin does in these callbacks.
pub trait Callbacks {
    /// A vCPU begins: a thread of a program, or a processor of a machine.
    fn vcpu_begins(vcpu: c_uint);
    fn vcpu_ends(vcpu: c_uint);
    fn translated(block: Opaque);
    /// A system call begins: its vCPU, number and arguments. Not called for a whole machine.
    fn call_begins(vcpu: c_uint, number: i64, arguments: [u64; 6]);
    /// The system call returns: its vCPU, number and result.
    fn call_returns(vcpu: c_uint, number: i64, result: i64);
    /// QEMU exits.
    fn process_ends();
}

/// Registers the callbacks with a QEMU that has loaded the plugin with this version of its API. A machine has no system calls.
pub fn register<C: Callbacks>(id: Id, version: c_int, is_system: bool) -> Result<(), ApiError> {
    if version < api::WITH_USER_DATA {
        with_identity::register::<C>(id, is_system)
    } else {
        with_data::register::<C>(id, is_system)
    }
}

/// The callbacks up to version 6 of the API.
mod with_identity {
    use std::ffi::c_uint;

    use super::Callbacks;
    use crate::api::{self, ApiError, Id, Opaque};

    type Vcpu = extern "C" fn(Id, c_uint);
    type Translated = extern "C" fn(Id, Opaque);
    type Call = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
    type Return = extern "C" fn(Id, c_uint, i64, i64);
    type End = extern "C" fn(Id, usize);

    api::functions! {
        /// How these callbacks are registered.
        Registration:
        vcpu_begins: extern "C" fn(Id, Vcpu) = c"qemu_plugin_register_vcpu_init_cb",
        vcpu_ends: extern "C" fn(Id, Vcpu) = c"qemu_plugin_register_vcpu_exit_cb",
        translated: extern "C" fn(Id, Translated) = c"qemu_plugin_register_vcpu_tb_trans_cb",
        call_begins: extern "C" fn(Id, Call) = c"qemu_plugin_register_vcpu_syscall_cb",
        call_returns: extern "C" fn(Id, Return) = c"qemu_plugin_register_vcpu_syscall_ret_cb",
        process_ends: extern "C" fn(Id, End, usize) = c"qemu_plugin_register_atexit_cb",
    }

    pub fn register<C: Callbacks>(id: Id, is_system: bool) -> Result<(), ApiError> {
        let of = Registration::find()?;
        (of.vcpu_begins)(id, vcpu_begins::<C>);
        (of.vcpu_ends)(id, vcpu_ends::<C>);
        (of.translated)(id, translated::<C>);
        if !is_system {
            (of.call_begins)(id, call_begins::<C>);
            (of.call_returns)(id, call_returns::<C>);
        }
        (of.process_ends)(id, process_ends::<C>, 0);
        Ok(())
    }

    extern "C" fn vcpu_begins<C: Callbacks>(_id: Id, vcpu: c_uint) {
        C::vcpu_begins(vcpu);
    }

    extern "C" fn vcpu_ends<C: Callbacks>(_id: Id, vcpu: c_uint) {
        C::vcpu_ends(vcpu);
    }

    extern "C" fn translated<C: Callbacks>(_id: Id, block: Opaque) {
        C::translated(block);
    }

    #[allow(clippy::too_many_arguments, reason = "QEMU gives the type")]
    extern "C" fn call_begins<C: Callbacks>(
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
        C::call_begins(vcpu, number, [first, second, third, fourth, fifth, sixth]);
    }

    extern "C" fn call_returns<C: Callbacks>(_id: Id, vcpu: c_uint, number: i64, result: i64) {
        C::call_returns(vcpu, number, result);
    }

    extern "C" fn process_ends<C: Callbacks>(_id: Id, _data: usize) {
        C::process_ends();
    }
}

/// The callbacks from version 7 of the API on.
mod with_data {
    use std::ffi::c_uint;

    use super::Callbacks;
    use crate::api::{self, ApiError, Id, Opaque};

    type Vcpu = extern "C" fn(c_uint, usize);
    type Translated = extern "C" fn(Opaque, usize);
    type Call = extern "C" fn(c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64, usize);
    type Return = extern "C" fn(c_uint, i64, i64, usize);
    type End = extern "C" fn(usize);

    api::functions! {
        /// How these callbacks are registered.
        Registration:
        vcpu_begins: extern "C" fn(Id, Vcpu, usize) = c"qemu_plugin_register_vcpu_init_cb",
        vcpu_ends: extern "C" fn(Id, Vcpu, usize) = c"qemu_plugin_register_vcpu_exit_cb",
        translated: extern "C" fn(Id, Translated, usize) = c"qemu_plugin_register_vcpu_tb_trans_cb",
        call_begins: extern "C" fn(Id, Call, usize) = c"qemu_plugin_register_vcpu_syscall_cb",
        call_returns: extern "C" fn(Id, Return, usize) = c"qemu_plugin_register_vcpu_syscall_ret_cb",
        process_ends: extern "C" fn(Id, End, usize) = c"qemu_plugin_register_atexit_cb",
    }

    pub fn register<C: Callbacks>(id: Id, is_system: bool) -> Result<(), ApiError> {
        let of = Registration::find()?;
        (of.vcpu_begins)(id, vcpu_begins::<C>, 0);
        (of.vcpu_ends)(id, vcpu_ends::<C>, 0);
        (of.translated)(id, translated::<C>, 0);
        if !is_system {
            (of.call_begins)(id, call_begins::<C>, 0);
            (of.call_returns)(id, call_returns::<C>, 0);
        }
        (of.process_ends)(id, process_ends::<C>, 0);
        Ok(())
    }

    extern "C" fn vcpu_begins<C: Callbacks>(vcpu: c_uint, _data: usize) {
        C::vcpu_begins(vcpu);
    }

    extern "C" fn vcpu_ends<C: Callbacks>(vcpu: c_uint, _data: usize) {
        C::vcpu_ends(vcpu);
    }

    extern "C" fn translated<C: Callbacks>(block: Opaque, _data: usize) {
        C::translated(block);
    }

    #[allow(clippy::too_many_arguments, reason = "QEMU gives the type")]
    extern "C" fn call_begins<C: Callbacks>(
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
        C::call_begins(vcpu, number, [first, second, third, fourth, fifth, sixth]);
    }

    extern "C" fn call_returns<C: Callbacks>(vcpu: c_uint, number: i64, result: i64, _data: usize) {
        C::call_returns(vcpu, number, result);
    }

    extern "C" fn process_ends<C: Callbacks>(_data: usize) {
        C::process_ends();
    }
}
