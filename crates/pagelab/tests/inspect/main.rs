//! Tests of `pagelab inspect` on programs whose memory has small pages for one cause each, provoked on the running
//! kernel.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod base_pages;
mod causes;
mod damaged_captures;
mod executed;
mod golden;
mod guests;
mod histories;
mod hostile_captures;
mod leaves;
mod names;
mod peak;
mod privileges;
mod processes;
mod provoked;
mod remedies;
mod required;
mod servers;
mod shared;
mod supply;
mod switches;
mod views;
