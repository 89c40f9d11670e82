//! `pagelab inspect`, on programs whose pages are small for one cause each, provoked on the running kernel.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod causes;
mod damaged_captures;
mod golden;
mod histories;
mod hostile_captures;
mod names;
mod provoked;
mod shared;
mod supply;
mod views;
