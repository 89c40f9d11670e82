//! What is kept of a comparison, and every way in which it is shown.
//!
//! The document is [`study::comparison::Comparison`]. [`store`] keeps it raw in SQLite; [`table`],
//! [`sentence`], [`json`], [`csv`] and [`html`] render it and decide nothing: outcomes and verdicts
//! come from `study`. The formats are described in `FORMATS.md`.
//!
//! Text that comes from outside (command lines, messages, settings) is never shown as it is: control
//! characters are escaped in the terminal and markup in HTML.
#![forbid(unsafe_code)]

pub mod csv;
pub mod html;
pub mod json;
pub mod sentence;
pub mod store;
pub mod table;

mod figure;
mod rows;
mod text;

#[cfg(test)]
mod sample;
