//! Converts a workload of a study to arguments of `compare` ([`CompareArguments`]), which define what is measured.

use std::path::Path;

use policy::Policy;
use study_files::definition::{Definition, Stopping, Variant, Workload};

use super::inputs;

/// A workload as arguments of `compare`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareArguments {
    /// The arguments, without the store.
    pub words: Vec<String>,
    /// The arguments without parts that differ between installations. They identify what is measured.
    pub subject: Vec<String>,
    /// Policies that the host cannot apply, with the reasons.
    pub left_out: Vec<(String, String)>,
}

/// The name of this program in command lines.
const PAGELAB: &str = "pagelab";
/// The default time limit of a trial: studies run unattended.
const TRIAL_TIME: &str = "1h";

/// The arguments for a workload, or why this host cannot measure it.
pub fn compare_arguments(definition: &Definition, workload: &Workload) -> Result<CompareArguments, String> {
    if let Some(why) = &workload.missing {
        return Err(why.clone());
    }
    if workload.command.is_empty() {
        return Err("it is only for model machines: it has no command".to_owned());
    }
    let (here, left_out) = split(&definition.policies);
    if !here.contains(&definition.baseline) {
        let baseline = &definition.baseline;
        return Err(format!("only model machines have the baseline {baseline}"));
    }
    if here.len() < 2 && workload.variants.is_empty() {
        return Err("of its policies, this host has only the baseline".to_owned());
    }
    let pagelab = std::env::current_exe().map(|path| path.to_string_lossy().into_owned());
    let pagelab = pagelab.unwrap_or_else(|_| PAGELAB.to_owned());
    let subject = words(definition, &workload.with_input_paths(inputs::portable_name), &here, PAGELAB);
    let words = words(definition, &inputs::with_current_paths(workload), &here, &pagelab);
    let words = of_this_host(workload).chain(with_seed(definition, words)).collect();
    Ok(CompareArguments { words, subject, left_out })
}

/// The arguments for a workload in a guest that uses another system's files, or why the workload cannot be measured there:
/// that system lacks this host's inputs and users.
pub fn arguments_in_system(
    definition: &Definition,
    workload: &Workload,
    program: &Path,
) -> Result<Vec<String>, String> {
    compare_arguments(definition, workload)?;
    if let Some(input) = workload.inputs.first() {
        return Err(format!(
            "{}: its input {} is made on this host, and the guest has the files of another system (sysroot); use files of that system",
            workload.name, input.name
        ));
    }
    let here = split(&definition.policies).0;
    Ok(with_seed(definition, words(definition, workload, &here, &program.to_string_lossy())))
}

/// Whether every policy is a property of the whole boot. If so, a comparison covers one boot, and boots are compared.
pub fn is_over_boots(definition: &Definition) -> bool {
    let is_of_boot = |policy: &String| policy.parse::<Policy>().is_ok_and(|policy| policy.direct_map().is_some());
    definition.policies.iter().all(is_of_boot)
}

/// Splits the policies into those that a host can apply and those that only model machines support.
fn split(policies: &[String]) -> (Vec<String>, Vec<(String, String)>) {
    let (here, others): (Vec<&String>, Vec<&String>) =
        policies.iter().partition(|policy| policy.parse::<Policy>().is_ok());
    let why = "only model machines have this policy; the kernel cannot give it to a single program";
    (here.into_iter().cloned().collect(), others.into_iter().map(|one| (one.clone(), why.to_owned())).collect())
}

/// Builds the arguments. Those that are the same for every policy and installation come first.
fn words(definition: &Definition, workload: &Workload, policies: &[String], pagelab: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut option = |name: &str, value: &str| words.extend([format!("--{name}"), value.to_owned()]);
    policies.iter().for_each(|policy| option("policy", policy));
    option("baseline", &definition.baseline);
    option("primary", workload.primary.as_ref().unwrap_or(&definition.primary));
    let Stopping { blocks, min_blocks, precision, max_time, trial_time, .. } = &definition.stopping;
    let numbers = [("blocks", blocks), ("min-blocks", min_blocks)];
    numbers.into_iter().for_each(|(name, number)| number.iter().for_each(|number| option(name, &number.to_string())));
    option("trial-time", trial_time.as_deref().unwrap_or(TRIAL_TIME));
    let texts = [
        ("precision", precision),
        ("max-time", max_time),
        ("band", &definition.band),
        ("server", &workload.server),
        ("ready", &workload.ready),
        ("prepare", &workload.prepare),
        ("input", &workload.input),
        ("answer", &workload.answer),
        ("expected", &workload.expected),
        ("fragmented", &definition.fragmented),
        ("hugetlb-pool", &workload.hugetlb_pool),
    ];
    for (name, text) in texts {
        text.iter().for_each(|text| option(name, &with_program(text, pagelab)));
    }
    workload.metrics.iter().for_each(|metric| option("metric", metric));
    env_of_all(workload).for_each(|(name, value)| option("env", &format!("{name}={value}")));
    workload.variants.iter().for_each(|variant| of_variant(workload, variant, pagelab, &mut option));
    let flags = [
        ("--arm-of-boot", is_over_boots(definition)),
        ("--check-output", workload.check_output),
        ("--prove-all", workload.prove_all),
        ("--own-session", definition.own_session),
        ("--explain", definition.explain),
    ];
    words.extend(flags.into_iter().filter(|(_, is_on)| *is_on).map(|(flag, _)| flag.to_owned()));
    words.push("--".to_owned());
    let first = workload.command.first().map(|first| if first == PAGELAB { pagelab } else { first }.to_owned());
    words.extend(first.into_iter().chain(workload.command.iter().skip(1).cloned()));
    words
}

/// Variables that have the same value in all variants. Commands that are not part of a variant, such as the
/// preparation, get only these.
fn env_of_all(workload: &Workload) -> impl Iterator<Item = (&String, &String)> {
    let is_of_all = |(name, value): &(&String, &String)| {
        workload.variants.iter().all(|variant| variant.env.get(*name) == Some(*value))
    };
    workload.env.iter().filter(is_of_all)
}

/// Adds the arguments of a variant.
fn of_variant(workload: &Workload, variant: &Variant, pagelab: &str, option: &mut impl FnMut(&str, &str)) {
    let is_own = |(name, value): &(&String, &String)| !env_of_all(workload).any(|one| one == (*name, *value));
    let variables = variant.env.iter().filter(is_own).map(|(name, value)| format!("{name}={value}"));
    let line = match (&variant.server, &workload.server) {
        (one, other) if one == other && variant.command == workload.command => "{}".to_owned(),
        (Some(server), _) => with_program(server, pagelab),
        (None, _) => {
            let first = variant.command.first().map(|first| if first == PAGELAB { pagelab } else { first });
            let words = first.into_iter().chain(variant.command.iter().skip(1).map(String::as_str));
            shlex::try_join(words).unwrap_or_default()
        }
    };
    let variables: Vec<String> = variables.collect();
    let name = &variant.name;
    let variables = shlex::try_join(variables.iter().map(String::as_str)).unwrap_or_default();
    match (variables.is_empty(), line.as_str()) {
        (true, "{}") => option("variant", name),
        _ => option("variant", &format!("{name}={}", [variables.as_str(), &line].join(" ").trim())),
    }
    if let Some(expected) = variant.expected.as_ref().filter(|one| Some(*one) != workload.expected.as_ref()) {
        option("expected-of", &format!("{name}={expected}"));
    }
    variant.fragmented.iter().for_each(|wish| option("fragmented-of", &format!("{name}={wish}")));
}

/// If a command line begins with this program's name, replaces the name by the program's path.
fn with_program(text: &str, pagelab: &str) -> String {
    match text.strip_prefix(PAGELAB).filter(|rest| rest.starts_with(' ')) {
        Some(rest) => shlex::try_quote(pagelab).map_or(text.to_owned(), |pagelab| format!("{pagelab}{rest}")),
        None => text.to_owned(),
    }
}

/// Arguments that depend on this host and do not change what is measured: a user for programs that refuse to run as
/// root.
fn of_this_host(workload: &Workload) -> impl Iterator<Item = String> {
    let user = inputs::named_user(workload).map(|name| ["--user".to_owned(), name.to_owned()]);
    user.into_iter().flatten()
}

fn with_seed(definition: &Definition, mut words: Vec<String>) -> Vec<String> {
    if let Some(seed) = definition.seed {
        words.splice(0..0, ["--seed".to_owned(), seed.to_string()]);
    }
    words
}
