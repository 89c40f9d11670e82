//! Hugetlb pools as programs meet them: limits of control groups, files that hold pages, and requests that the pool refused.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod group;
mod limits;
mod pools;
mod requests;
