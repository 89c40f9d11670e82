//! The data types of a comparison and the statistics over them. The types of a policy are in the crate `policy`.
//!
//! Everything here is plain data and pure functions: no files, no processes, no clocks. A platform
//! (the running host in the crate `platform`) turns a [`trial::Trial`] into a [`trial::TrialRecord`];
//! the [`runner`] decides which trial comes next; [`stats`] turns the records into an answer.
//!
//! # Glossary
//! * **base page**: the smallest page of the running kernel (4K on x86-64; 4K, 16K or 64K on arm64).
//! * **folio**: physically contiguous pages that the kernel manages as one.
//! * **leaf**: the page-table entry that maps memory, and the bytes it maps (PTE, PMD or PUD leaf).
//! * **mTHP**: a transparent folio larger than a base page and smaller than a PMD leaf, mapped by PTEs.
//! * **THP**: a transparent folio of PMD size, mapped by one PMD leaf.
//! * **hugetlb**: pages of a reserved pool, mapped by leaves of their own size.
//! * **policy**: the granularity that memory should have; an intent, never a mechanism.
//! * **variant**: a build, arguments, an environment or a degree of memory fragmentation; the variants of a program are compared
//!   with each other.
//! * **arm**: a policy, or a variant under a policy; each block contains one trial of each arm.
//! * **census**: what really mapped the memory, read from the kernel.
//! * **verdict**: whether the census agrees with the policy and, if it does not, why.
//! * **block**: one trial of every arm, in random order; comparisons are made within blocks.
//! * **control arm**: an arm that is not compared as a policy: it shows the cost of the tracer's stops ([`control`]), has the
//!   physical frames of a policy without its leaves (`explained`), or makes only a share of the memory large ([`shares`]).
//! * **reach**, **placement**: the two parts of an effect: fewer TLB entries cover the memory, and its frames are contiguous.
//! * **window**: a part of the memory that becomes large as a whole, in arms that make only a share of the memory large ([`shares`]).
//! * **origin**: the publication whose table or claim a study (the crate `study-files`) repeats; also, of a row, the commands and programs
//!   that made it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod advice;
mod arms;
pub mod comparison;
mod contention;
pub mod control;
mod explained;
mod fraction;
mod fragmented;
pub mod guest;
pub mod kernel_series;
pub mod memory_limit;
pub mod metric;
mod own_session;
pub mod plan;
mod result;
mod role;
pub mod runner;
pub mod shares;
mod slice;
pub mod stats;
pub mod trial;
pub mod variant;
mod window_order;
