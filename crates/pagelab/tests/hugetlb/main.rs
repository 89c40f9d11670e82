//! Tests of hugetlb pools as programs use them: limits of control groups, files that hold pages, and requests that the
//! kernel refused.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod group;
mod limits;
mod pools;
mod requests;
