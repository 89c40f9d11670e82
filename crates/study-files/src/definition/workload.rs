//! A workload of a study or of a suite, with its placeholders filled in.

use std::collections::BTreeMap;

use super::DefinitionError;
use super::extent::TextBudget;
use super::input::Input;
use super::names::distinct;
use super::placeholder::{choices, filled};
use super::variant::{self, Variant, row_name};
use super::wire::{Value, WireInput, WireVariant, WireWorkload};
use study::metric::{Metric, SHORT_NAMES};

/// A workload: one row of the matrix on each machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Name with the values of its axes, unique in the study: `gups`, `gups threads=2`.
    pub name: String,
    /// The program in the origin's publication that the workload represents.
    pub stands_for: Option<String>,
    /// Why the workload cannot be run; its row then shows this reason.
    pub missing: Option<String>,
    /// The suite to which it belongs.
    pub suite: Option<String>,
    /// Package that contains its program.
    pub package: Option<String>,
    /// Required programs and files, in addition to the first words of its commands.
    pub needs: Vec<String>,
    /// The user to run it as if root runs pagelab: some programs refuse to run as root.
    pub user: Option<String>,
    /// Inputs that must be created first.
    pub inputs: Vec<Input>,
    /// The command; with a server, the client. The first word `pagelab` means this program.
    pub command: Vec<String>,
    /// The command recorded for model machines, if it differs from `command`.
    pub recorded: Option<Vec<String>>,
    /// Instructions to skip before recording, for each thread of a program or each processor of a machine.
    pub skipped: Option<u64>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Command line of the server.
    pub server: Option<String>,
    /// Command that succeeds as soon as the server is ready.
    pub ready: Option<String>,
    /// Command that runs before every trial.
    pub prepare: Option<String>,
    /// File for standard input.
    pub input: Option<String>,
    /// Figures that the command prints, in the syntax of `compare --metric`.
    pub metrics: Vec<String>,
    /// The primary metric, if it differs from the study's.
    pub primary: Option<String>,
    /// Whether its output must be the same under every policy.
    pub check_output: bool,
    /// The part of its output that must be the same, if not all, in the syntax of `compare --answer`.
    pub answer: Option<String>,
    /// The exact expected answer; with variants, that of the baseline.
    pub expected: Option<String>,
    /// Whether all memory is inspected before it is given back.
    pub prove_all: bool,
    /// Size of the hugetlb pool.
    pub hugetlb_pool: Option<String>,
    /// Recorded trace for model machines.
    pub trace: Option<String>,
    /// The variants that are compared, the baseline first; empty if there is only one. The workload's own command, server and
    /// environment are those of the baseline variant.
    pub variants: Vec<Variant>,
}

/// The inputs of a file, with their placeholders filled in.
pub(super) fn inputs(wire: &[WireInput], values: &BTreeMap<String, String>) -> Result<Vec<Input>, DefinitionError> {
    distinct("input", wire.iter().map(|input| &input.name))?;
    let input = |wire: &WireInput| {
        if values.contains_key(&wire.name) {
            return Err(DefinitionError::Duplicate { key: "input", name: wire.name.clone() });
        }
        let wrong = |error| DefinitionError::InputPlaceholder { input: wire.name.clone(), error };
        Input::of(wire, |word| filled(word, values).map_err(wrong))
    };
    wire.iter().map(input).collect()
}

/// Definitions of a file that all its workloads share.
pub(super) struct Shared<'a> {
    /// Values of its parameters.
    pub values: &'a BTreeMap<String, String>,
    /// Inputs of the file.
    pub inputs: &'a [Input],
    /// Variants of a workload without variants of its own.
    pub variants: &'a BTreeMap<String, WireVariant>,
    /// Bytes that remain for the words of the workloads.
    pub budget: &'a TextBudget,
}

/// One workload for each combination of axis values.
pub(super) fn expanded(wire: &WireWorkload, shared: &Shared<'_>) -> Result<Vec<Workload>, DefinitionError> {
    let is_empty = wire.command.is_empty() && wire.recorded.as_ref().is_none_or(Vec::is_empty) && wire.trace.is_none();
    match &wire.missing {
        None if is_empty => return Err(DefinitionError::Empty { name: wire.name.clone() }),
        Some(_) if !is_empty => return Err(DefinitionError::MissingButRunnable { name: wire.name.clone() }),
        _ => {}
    }
    if let Some(axis) = unused_axis(wire, shared) {
        return Err(DefinitionError::UnusedAxis { workload: wire.name.clone(), axis: axis.clone() });
    }
    let text = |values: &Vec<Value>| values.iter().map(Value::to_string).collect();
    let axes = wire.axes.iter().map(|(name, values)| (name.clone(), text(values))).collect();
    let variants = variant::ordered(wire, shared.variants)?;
    let plain = WireWorkload { axes: BTreeMap::new(), variants: BTreeMap::new(), ..wire.clone() };
    choices(&axes).iter().map(|choice| with_variants(&plain, choice, shared, &variants)).collect()
}

/// The workload of the baseline, with all variants.
fn with_variants(
    wire: &WireWorkload,
    choice: &BTreeMap<String, String>,
    shared: &Shared<'_>,
    variants: &[(&String, &WireVariant)],
) -> Result<Workload, DefinitionError> {
    let is_run = wire.missing.is_none() && !wire.command.is_empty();
    let of_variant = |(name, wire_variant): &(&String, &WireVariant)| {
        let wire = WireWorkload {
            command: wire_variant.command.clone().unwrap_or_else(|| wire.command.clone()),
            server: wire_variant.server.clone().or_else(|| wire.server.clone()),
            env: wire.env.clone().into_iter().chain(wire_variant.env.clone()).collect(),
            expected: wire_variant.expected.clone().or_else(|| wire.expected.clone()),
            ..wire.clone()
        };
        let values = variant::values(shared.values, wire_variant);
        let own = of_choice(&wire, choice, &Shared { values: &values, ..*shared })?;
        let of_all = Variant {
            name: (*name).clone(),
            command: own.command.clone(),
            recorded: own.recorded.clone(),
            server: own.server.clone(),
            env: own.env.clone(),
            expected: own.expected.clone(),
            fragmented: wire_variant.fragmented.clone().filter(|requested| !variant::is_fresh(requested)),
        };
        Ok((own, of_all))
    };
    let all: Vec<(Workload, Variant)> = variants.iter().map(of_variant).collect::<Result<_, DefinitionError>>()?;
    let Some((first, _)) = all.first().filter(|_| is_run) else { return of_choice(wire, choice, shared) };
    let variants: Vec<Variant> = all.iter().map(|(_, variant)| variant.clone()).collect();
    variant::check_distinct(&first.name, &variants)?;
    let mut inputs: Vec<Input> = Vec::new();
    for input in all.iter().flat_map(|(workload, _)| &workload.inputs) {
        if !inputs.contains(input) {
            inputs.push(input.clone());
        }
    }
    Ok(Workload { variants, inputs, ..first.clone() })
}

/// An axis that no text of the workload or of its variants uses, so that its rows would be the same. A missing workload
/// has no text.
fn unused_axis<'a>(wire: &'a WireWorkload, shared: &Shared<'_>) -> Option<&'a String> {
    let texts = wire.command.iter().chain(wire.recorded.iter().flatten()).chain(wire.env.values()).chain(&wire.needs);
    let single = [&wire.server, &wire.ready, &wire.prepare, &wire.input, &wire.answer, &wire.expected];
    let texts =
        texts.chain(single.into_iter().flatten()).chain([&wire.hugetlb_pool, &wire.trace].into_iter().flatten());
    let of_variants = wire.variants.values().chain(shared.variants.values()).flat_map(|variant| {
        let single = [&variant.server, &variant.expected].into_iter().flatten();
        variant.command.iter().flatten().chain(variant.env.values()).chain(single)
    });
    let texts: Vec<&String> = texts.chain(of_variants).collect();
    let is_unused = |axis: &&String| {
        let names = shared.values.keys().chain(shared.inputs.iter().map(|input| &input.name)).chain(wire.axes.keys());
        let others = names.filter(|name| name != axis).map(|name| (name.clone(), String::new())).collect();
        texts.iter().all(|text| filled(text, &others).is_ok())
    };
    wire.axes.keys().find(is_unused).filter(|_| wire.missing.is_none())
}

fn of_choice(
    wire: &WireWorkload,
    choice: &BTreeMap<String, String>,
    shared: &Shared<'_>,
) -> Result<Workload, DefinitionError> {
    let Shared { values, inputs, budget, .. } = *shared;
    let marks = inputs.iter().map(|input| (input.name.clone(), Input::mark(&input.name)));
    let values: BTreeMap<String, String> = marks.chain(values.clone()).chain(choice.clone()).collect();
    let unfilled = wire.metrics.iter().chain(values.keys()).chain(values.values()).map(String::len);
    budget.take(wire.name.len() + unfilled.sum::<usize>())?;
    let wrong = |error| DefinitionError::Placeholder { workload: wire.name.clone(), error };
    let fill = |word: &String| {
        let word = filled(word, &values).map_err(wrong)?;
        budget.take(word.len()).map(|()| word)
    };
    let fill_if_there = |word: &Option<String>| word.as_ref().map(fill).transpose();
    let fill_all = |words: &Vec<String>| words.iter().map(fill).collect::<Result<Vec<String>, _>>();
    let axes = choice.iter().map(|(name, value)| format!(" {name}={value}"));
    let env = wire.env.iter().map(|(name, value)| Ok((name.clone(), fill(value)?)));
    let workload = Workload {
        name: wire.name.clone() + &axes.collect::<String>(),
        stands_for: wire.stands_for.clone(),
        missing: wire.missing.clone(),
        suite: None,
        package: wire.package.clone(),
        needs: fill_all(&wire.needs)?,
        user: wire.user.clone(),
        inputs: Vec::new(),
        command: fill_all(&wire.command)?,
        recorded: wire.recorded.as_ref().map(fill_all).transpose()?,
        skipped: wire.skipped,
        env: env.collect::<Result<_, DefinitionError>>()?,
        server: fill_if_there(&wire.server)?,
        ready: fill_if_there(&wire.ready)?,
        prepare: fill_if_there(&wire.prepare)?,
        input: fill_if_there(&wire.input)?,
        metrics: wire.metrics.clone(),
        primary: wire.primary.clone(),
        answer: fill_if_there(&wire.answer)?,
        expected: fill_if_there(&wire.expected)?,
        check_output: wire.check_output,
        prove_all: wire.prove_all,
        hugetlb_pool: fill_if_there(&wire.hugetlb_pool)?,
        trace: fill_if_there(&wire.trace)?,
        variants: Vec::new(),
    };
    let is_used = |input: &&Input| workload.texts().any(|text| input.is_in(text));
    Ok(Workload { inputs: inputs.iter().filter(is_used).cloned().collect(), ..workload })
}

impl Workload {
    /// All words that may name an input.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let words = self.command.iter().chain(self.recorded.iter().flatten()).chain(self.env.values());
        words.chain([&self.server, &self.ready, &self.prepare, &self.input].into_iter().flatten())
    }

    /// The workload with the paths of its inputs filled in.
    #[must_use]
    pub fn with_input_paths(&self, path_of: impl Fn(&Input) -> String) -> Workload {
        let paths: Vec<(&Input, String)> = self.inputs.iter().map(|input| (input, path_of(input))).collect();
        let word = |word: &String| paths.iter().fold(word.clone(), |word, (input, path)| input.with_path(&word, path));
        let words = |words: &Vec<String>| words.iter().map(word).collect();
        let of_variant = |variant: &Variant| Variant {
            command: words(&variant.command),
            recorded: variant.recorded.as_ref().map(words),
            env: variant.env.iter().map(|(name, value)| (name.clone(), word(value))).collect(),
            server: variant.server.as_ref().map(word),
            ..variant.clone()
        };
        Workload {
            command: words(&self.command),
            recorded: self.recorded.as_ref().map(words),
            env: self.env.iter().map(|(name, value)| (name.clone(), word(value))).collect(),
            server: self.server.as_ref().map(word),
            ready: self.ready.as_ref().map(word),
            prepare: self.prepare.as_ref().map(word),
            input: self.input.as_ref().map(word),
            variants: self.variants.iter().map(of_variant).collect(),
            ..self.clone()
        }
    }

    /// The names of its rows: one for each variant, or its name if it has none.
    pub fn row_names(&self) -> Vec<String> {
        if self.variants.is_empty() {
            vec![self.name.clone()]
        } else {
            self.variants.iter().map(|variant| row_name(&self.name, &variant.name)).collect()
        }
    }

    /// Its name, and the names of its rows.
    pub(super) fn all_names(&self) -> Vec<String> {
        let mut names = self.row_names();
        if !self.variants.is_empty() {
            names.push(self.name.clone());
        }
        names
    }

    /// Each variant as a separate workload, as model machines need it; the workload itself if it has none.
    pub fn variants_as_workloads(&self) -> Vec<Workload> {
        if self.variants.is_empty() {
            return vec![self.clone()];
        }
        let missing = |variant: &Variant| match (&self.missing, &variant.fragmented, &self.trace) {
            (Some(why), ..) => Some(why.clone()),
            (None, Some(_), _) => Some("free memory of a model machine is never fragmented".to_owned()),
            (None, None, Some(_)) if variant.name != self.variants[0].name => {
                Some(format!("the trace is of the variant {}", self.variants[0].name))
            }
            (None, None, _) => None,
        };
        let of_variant = |variant: &Variant| Workload {
            name: row_name(&self.name, &variant.name),
            missing: missing(variant),
            command: variant.command.clone(),
            recorded: variant.recorded.clone(),
            server: variant.server.clone(),
            env: variant.env.clone(),
            expected: variant.expected.clone(),
            variants: Vec::new(),
            ..self.clone()
        };
        self.variants.iter().map(of_variant).collect()
    }

    /// Checks that this is the name of a metric of the workload, or of a metric that every trial has. The error lists the
    /// existing metrics.
    pub(super) fn check_metric(&self, name: &str) -> Result<(), DefinitionError> {
        let own = self.metrics.iter().map(|metric| metric.split(['=', ':']).next().unwrap_or_default().to_owned());
        let own: Vec<String> = own.collect();
        let is_measured = !self.command.is_empty() && self.missing.is_none();
        let is_general = SHORT_NAMES.iter().any(|(short, _)| *short == name)
            || Metric::of_every_trial().iter().any(|metric| metric.name == name);
        if !is_measured || is_general || own.iter().any(|own| own == name) {
            return Ok(());
        }
        let known =
            SHORT_NAMES.map(|(short, _)| short.to_owned()).into_iter().chain(own).collect::<Vec<_>>().join(", ");
        Err(DefinitionError::Metric { workload: self.name.clone(), name: name.to_owned(), known })
    }
}
