//! `pagelab demo`: compares policies on a built-in workload in under two minutes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use host::Host;
use host::admit::thp_in_force;
use policy::{Granularity, Policy};

use crate::compare::{self, design};
use crate::failure::{Failure, report};
use crate::words::parse_duration;

/// Memory of the pointer chase: far beyond the reach of a TLB with base pages, but small enough for a small machine.
const BYTES: &str = "256M";
/// Steps of the pointer chase: some tenths of a second.
const STEPS: &str = "3000000";

/// Arguments of `pagelab demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Where to write the report
    #[arg(long, value_name = "FILE", default_value = "pagelab-demo.html")]
    html: PathBuf,
    /// Begin no block after this long, counted from the first trial
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = parse_duration)]
    max_time: f64,
    /// Stop after this many blocks at the latest
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(8..=100_000))]
    blocks: u32,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

fn introduction() -> String {
    format!("A random pointer chase through {BYTES}, under each policy that makes sense here.")
}

/// The default policies of `compare`, without `base` where it is the same as `default`: the chase advises nothing, so it gets large
/// pages only from sizes that are always on.
fn policies(host: &Host) -> Result<Vec<Policy>, Failure> {
    let sizes = host.page_sizes();
    let mut is_always = false;
    for size in sizes.pmd.iter().chain(&sizes.mthp) {
        is_always |= thp_in_force(*size, host).map_err(Failure::input)? == "always";
    }
    let all = design::sensible(host);
    let without_base = all.iter().filter(|policy| policy.granularity != Granularity::Base).cloned().collect::<Vec<_>>();
    // Without a larger size, `default` would be alone.
    Ok(if is_always || without_base.len() < 2 { all } else { without_base })
}

/// Runs `pagelab demo`.
///
/// # Errors
/// Those of `pagelab compare`.
pub fn run(arguments: &Demo) -> Result<(), Failure> {
    report(introduction());
    let program = std::env::current_exe().map_err(Failure::input)?;
    let policies = policies(&Host::open("/").map_err(Failure::input)?)?;
    let mut words: Vec<OsString> = policies.iter().map(|policy| format!("--policy={policy}").into()).collect();
    words.extend(["--max-time".into(), format!("{}s", arguments.max_time).into()]);
    words.extend(["--blocks".into(), arguments.blocks.to_string().into()]);
    words.extend(["--metric".into(), r"ns_per_access:lower=ns_per_access=([0-9.]+)".into()]);
    words.extend(["--html".into(), arguments.html.clone().into_os_string()]);
    if let Some(store) = &arguments.store {
        words.extend(["--store".into(), store.clone().into_os_string()]);
    }
    words.extend(["--".into(), program.into_os_string()]);
    words.extend(["workload", "chase", "--bytes", BYTES, "--steps", STEPS].map(OsString::from));
    compare::run(compare::parsed(words)?)
}

#[cfg(test)]
mod tests {
    /// The demo prints at most 15 lines on a terminal of 80 columns (`results::screen`), and its introduction is one of
    /// them.
    #[test]
    fn the_introduction_is_one_line() {
        assert!(super::introduction().len() <= 80);
    }
}
