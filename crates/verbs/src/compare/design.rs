//! Builds a design from the arguments: the arms, the metrics, and when to stop.

use std::io::IsTerminal;
use std::time::{SystemTime, UNIX_EPOCH};

use host::Host;
use policy::{Granularity, Policy};
use study::comparison::{Design, OwnSession};
use study::guest::kernel_of;
use study::trial::Arm;
use study::variant::Variant;
use tracer::Rewriting;

use super::arguments::{Compare, Measuring, Stopping};
use super::{boots, explain, pattern, primary, shares};
use crate::failure::Failure;
use crate::words::TrialTime;

/// Builds the design that the arguments describe.
///
/// # Errors
/// There is nothing to compare, a metric is defined twice, or the primary metric does not exist.
pub fn design(
    arguments: &Compare,
    host: &Host,
    variants: Vec<Variant>,
    own_session: Option<OwnSession>,
) -> Result<Design, Failure> {
    let policies = policies(arguments, host)?;
    let (arms, baseline) = arms(policies, variants, arguments.baseline.as_ref(), arguments.aa);
    // An arm-of-boot comparison has a single arm, which is compared with the arms of other boots. In a guest, a single
    // arm is compared with the arms of other kernels.
    let is_guest = || host.machine().is_ok_and(|machine| kernel_of(&machine).is_some());
    if arms.len() < 2 && !arguments.arm_of_boot && !is_guest() {
        return Err(alone(&arms[baseline].label));
    }
    let (stopping, measuring) = (&arguments.stopping, &arguments.measuring);
    let mut design = Design::new(arms, baseline, stopping.seed.unwrap_or_else(seed_of_clock));
    limit(&mut design, stopping)?;
    design.prove_all = measuring.prove_all;
    design.khugepaged = measuring.khugepaged.into();
    design.fragmented = measuring.fragmented;
    add_metrics(&mut design, measuring)?;
    design.own_session = own_session;
    design.primary = primary::metric(stopping.primary.as_deref(), &design)?;
    let page_sizes = host.page_sizes();
    let design = design.with_controls(|policy| !Rewriting::of(policy, page_sizes).needs_no_tracer());
    let design = shares::divided(design, arguments, host)?;
    match (measuring.explain, arguments.arm_of_boot) {
        (true, true) => Err(Failure::Input(
            "--explain: a boot has only one arm, and an effect cannot be split without others; leave out --arm-of-boot"
                .into(),
        )),
        (true, false) => explain::explained(design, host),
        (false, _) => Ok(design),
    }
}

/// When the comparison ends, and how narrow its intervals are to be.
///
/// # Errors
/// The least number of blocks is above the largest.
pub fn limit(design: &mut Design, stopping: &Stopping) -> Result<(), Failure> {
    design.min_blocks = min_blocks(stopping)?;
    design.max_blocks = stopping.blocks;
    design.max_time_s = Some(stopping.max_time);
    design.trial_time_s = trial_time_s(stopping);
    design.precision_ratio = stopping.precision;
    design.band_ratio = stopping.band;
    Ok(())
}

/// The number of blocks before which the comparison does not stop.
///
/// # Errors
/// It is larger than the maximum number of blocks.
fn min_blocks(stopping: &Stopping) -> Result<u32, Failure> {
    match stopping.min_blocks {
        Some(min) if min > stopping.blocks => Err(Failure::Input(format!(
            "--min-blocks {min} is more than the {} blocks at which the run stops at the latest; give --blocks {min} or more",
            stopping.blocks
        ))),
        min => Ok(min.unwrap_or(Design::MIN_BLOCKS).min(stopping.blocks)),
    }
}

/// The requested policies without duplicates, or else a default choice. With variants, the default choice is `default` alone. A
/// policy alone is compared with `default`.
fn policies(arguments: &Compare, host: &Host) -> Result<Vec<Policy>, Failure> {
    let named = distinct(&arguments.policies);
    match (arguments.arm_of_boot, named.is_empty()) {
        (true, _) => boots::policies(&named, host),
        (false, true) if !arguments.variants.is_empty() => Ok(vec![Policy::DEFAULT]),
        (false, true) if !arguments.shares.is_empty() => Ok(shares::policies()),
        (false, true) => Ok(sensible(host)),
        (false, false) if is_alone(&named, arguments) => Ok(vec![Policy::DEFAULT, named[0].clone()]),
        (false, false) => Ok(named),
    }
}

/// The error if there is only one arm, so that there is nothing to compare.
pub fn alone(label: &str) -> Failure {
    Failure::Input(format!("{label} alone is no comparison; name another policy with -p, or add --aa"))
}

/// Whether the arguments name exactly one policy other than `default`, and nothing to compare it with.
fn is_alone(named: &[Policy], arguments: &Compare) -> bool {
    let Compare { variants, aa, baseline, .. } = arguments;
    named.len() == 1 && named[0] != Policy::DEFAULT && variants.is_empty() && !aa && baseline.is_none()
}

/// The arms, and the index of the baseline: one arm per policy, or, with variants, one per variant and policy. With `twice`,
/// the baseline is followed by an A/A arm.
fn arms(mut policies: Vec<Policy>, variants: Vec<Variant>, wanted: Option<&Policy>, twice: bool) -> (Vec<Arm>, usize) {
    let baseline = baseline(&policies, wanted);
    if !policies.contains(&baseline) {
        policies.insert(0, baseline.clone());
    }
    let at = policies.iter().position(|policy| *policy == baseline).unwrap_or(0);
    let plain: Vec<Arm> = policies.into_iter().map(|policy| Arm::of_policy(policy.to_string(), policy)).collect();
    let mut arms = if variants.is_empty() { plain } else { of_variants(&plain, &variants) };
    if twice {
        arms.insert(at + 1, Arm { label: format!("{} (again)", arms[at].label), ..arms[at].clone() });
    }
    (arms, at)
}

/// The arms of variants: all policies of one variant, then all of the next. A label contains the policy only if there
/// are several policies.
fn of_variants(policies: &[Arm], variants: &[Variant]) -> Vec<Arm> {
    let arm = |variant: &Variant, arm: &Arm| Arm {
        label: match policies.len() {
            1 => variant.name.clone(),
            _ => format!("{} under {}", variant.name, arm.policy),
        },
        variant: Some(variant.clone()),
        ..arm.clone()
    };
    variants.iter().flat_map(|variant| policies.iter().map(move |policy| arm(variant, policy))).collect()
}

/// Adds the metrics that are parsed from the command's output.
fn add_metrics(design: &mut Design, measuring: &Measuring) -> Result<(), Failure> {
    for metric in measuring.metrics.iter().map(pattern::MetricPattern::metric) {
        if design.metrics.iter().any(|other| other.name == metric.name) {
            let name = metric.name;
            return Err(Failure::Input(format!("--metric {name}: duplicate name; give each metric its own")));
        }
        design.metrics.push(metric);
    }
    if measuring.repeat_inside.is_some() {
        design.metrics.extend(pattern::iteration_metrics());
    }
    Ok(())
}

/// The shortest default time limit of an unattended trial, in seconds.
const UNATTENDED_S: f64 = 3600.0;

/// The time limit of a trial. Without a terminal there is a default limit, because no user could end a trial that hangs, and
/// the host's changed settings would stay leased.
pub fn trial_time_s(stopping: &Stopping) -> Option<f64> {
    match stopping.trial_time {
        Some(TrialTime::Limited(limit_s)) => Some(limit_s),
        Some(TrialTime::Unlimited) => None,
        None if std::io::stdin().is_terminal() || std::io::stderr().is_terminal() => None,
        None => Some(stopping.max_time.max(UNATTENDED_S)),
    }
}

/// The default policies: the kernel's default, base pages, and each larger size that this kernel offers, once. A hugetlb
/// pool that cannot be filled still gets a row, marked `unsupported` with the reason.
pub fn sensible(host: &Host) -> Vec<Policy> {
    let page_sizes = host.page_sizes();
    let is_by_default = |granularity: &Granularity| match granularity {
        Granularity::Default | Granularity::Base | Granularity::Thp => true,
        // Of the mTHP sizes only 64K is a default, because arm64 and RISC-V can map 64K as one unit (contiguous PTEs,
        // Svnapot), and the other mTHP sizes differ little from it.
        Granularity::Mthp(size) => size.bytes() == 64 << 10,
        Granularity::Hugetlb(size) => Some(*size) == page_sizes.pmd,
        Granularity::DirectMap(_) => false,
    };
    Policy::granularities(page_sizes).into_iter().filter(is_by_default).map(Policy::plain).collect()
}

fn baseline(policies: &[Policy], wanted: Option<&Policy>) -> Policy {
    let default = policies.iter().find(|policy| **policy == Policy::DEFAULT);
    wanted.or(default).or(policies.first()).cloned().unwrap_or(Policy::DEFAULT)
}

fn distinct(policies: &[Policy]) -> Vec<Policy> {
    let mut distinct: Vec<Policy> = Vec::new();
    for policy in policies {
        if !distinct.contains(policy) {
            distinct.push(policy.clone());
        }
    }
    distinct
}

/// A seed that is derived from the clock.
pub fn seed_of_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_default_unless_another_is_named() {
        let policies = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Policy>>();
        assert_eq!(baseline(&policies(&["thp", "default"]), None).to_string(), "default");
        assert_eq!(baseline(&policies(&["thp", "base"]), None).to_string(), "thp");
        let wanted = policies(&["base"]);
        assert_eq!(baseline(&policies(&["thp", "default"]), Some(&wanted[0])).to_string(), "base");
        assert_eq!(distinct(&policies(&["thp", "base", "thp"])).len(), 2);
    }
}
