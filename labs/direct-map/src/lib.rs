//! The rig of the study `direct-map`: does the kernel's direct map need leaves of 1G or 2M?
//!
//! `pagelab direct-map demote` ([`demotion`]) splits the leaves of the running host. What they are now is read by
//! [`host::direct_map`], and shown by `pagelab direct-map status`, which belongs to every program.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod demote;
pub mod demotion;

use verbs::lab::{Lab, LabCommand};

/// This lab.
pub fn lab() -> Lab {
    Lab {
        direct_map: vec![LabCommand::new(
            "demote",
            "Split the leaves of this host's direct map until it is rebooted",
            demote::run,
        )],
        ..Lab::default()
    }
}
