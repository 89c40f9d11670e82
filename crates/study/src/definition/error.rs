//! What is wrong with a study or a suite.

use policy::size::SizeError;

use super::counted::CountedError;
use super::listed::listed;
use super::placeholder::PlaceholderError;
use super::{SCHEMA, SUITE_SCHEMA, Size};

/// A study that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DefinitionError {
    /// Another kind of file, or another version of it.
    #[error("schema: found {found:?}, expected {SCHEMA:?}")]
    Schema {
        /// What was found.
        found: String,
    },
    /// A name that cannot be that of a file.
    #[error("name: expected letters, digits, - and _, found {found:?}")]
    Name {
        /// What was found.
        found: String,
    },
    /// The same of a suite.
    #[error("schema: found {found:?}, expected {SUITE_SCHEMA:?}")]
    SuiteSchema {
        /// What was found.
        found: String,
    },
    /// A suite that makes no sense, or not as a study uses it.
    #[error("suite {suite:?}: {error}")]
    Suite {
        /// The suite.
        suite: String,
        /// What is wrong.
        error: Box<DefinitionError>,
    },
    /// A size that the file does not have.
    #[error("there is no [sizes.{wanted}]; there are {known}")]
    Size {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// More trials than a study may have.
    #[error(
        "the study multiplies out to {trials} trials: {rows} rows (workloads with their axes and variants) x {policies} policies x \
         {runs} runs (blocks of each boot, and one on each model machine); expected at most {max}: shorten an axis, leave out policies \
         or machines, or make several studies"
    )]
    TooManyTrials {
        /// How many there may be.
        max: u64,
        /// How many.
        trials: u128,
        /// Workloads with their axes and variants.
        rows: u128,
        /// Policies.
        policies: u128,
        /// Trials of each of these.
        runs: u128,
    },
    /// Words that are too long once their placeholders are filled in.
    #[error(
        "the words of all rows take more than {} with their placeholders filled in; shorten them, or an axis",
        policy::size::format_bytes(*max_bytes as u64)
    )]
    TooMuchText {
        /// What they may take.
        max_bytes: usize,
    },
    /// More of something than a study may have.
    #[error("{key}: expected at most {max}, found {found}")]
    TooMany {
        /// Which list.
        key: &'static str,
        /// How many there may be.
        max: usize,
        /// How many there are.
        found: usize,
    },
    /// Nothing to run, or nothing to compare.
    #[error("{key}: expected {expected}, found {found}")]
    Count {
        /// Which list.
        key: &'static str,
        /// How many.
        expected: &'static str,
        /// What was found.
        found: usize,
    },
    /// The name of a guest that cannot stand on a kernel's command line.
    #[error(
        "boots.{boot:?}: the name of a guest is a word of its kernel's command line: expected one without spaces, quotes, / and ="
    )]
    GuestName {
        /// The boot.
        boot: String,
    },
    /// What a guest is given, and no guest.
    #[error("boots.{boot}: cmdline, icount and sysroot are a guest's; name its kernel's image = \"FILE\"")]
    NoGuest {
        /// The boot.
        boot: String,
    },
    /// Guests with different clocks.
    #[error(
        "boots: {counts} has icount = true and {other} has not, and instructions are no time; give it to all of them, or to none"
    )]
    GuestClocks {
        /// The guest that counts.
        counts: String,
        /// The other one.
        other: String,
    },
    /// Two boots that the others are compared with.
    #[error("boots: {one} and {other} have baseline = true; expected one boot that has it")]
    Baselines {
        /// One of them.
        one: String,
        /// The other one.
        other: String,
    },
    /// Boots of the host and guests.
    #[error(
        "boots: {guest} is a guest and {host} a boot of the host, which cannot be compared; make all of them guests, or none"
    )]
    GuestAndHost {
        /// The guest.
        guest: String,
        /// The boot of the host.
        host: String,
    },
    /// A name that is there twice.
    #[error("{key}: {name:?} is there twice")]
    Twice {
        /// Which list.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// A name that is not in the list that it is from.
    #[error("{key}: there is no {name:?}; there are {known}")]
    Unknown {
        /// The key.
        key: String,
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// Two names of one policy.
    #[error("policies: {one:?} and {other:?} are the same policy; name it once")]
    SamePolicy {
        /// One of them.
        one: String,
        /// The other one.
        other: String,
    },
    /// A policy that a boot has or has not, beside one that a program is given.
    #[error(
        "policies: {boot:?} is decided when the machine boots, and {program:?} for each program; \
         boots are compared with each other alone: make two studies"
    )]
    BootAndProgram {
        /// The one.
        boot: String,
        /// The other one.
        program: String,
    },
    /// A metric that a workload does not have.
    #[error("workload {workload:?}: there is no metric {name:?} that could decide; there are {known}")]
    Metric {
        /// The workload.
        workload: String,
        /// The metric.
        name: String,
        /// What there is.
        known: String,
    },
    /// Variants that cannot be compared.
    #[error("workload {workload:?}: variants: {what}")]
    Variants {
        /// The workload.
        workload: String,
        /// Why not, and what to do.
        what: &'static str,
    },
    /// Ages of memory as an axis beside other variants.
    #[error(
        "fragmented: several values are variants, and there are others; give each variant a `fragmented` of its own"
    )]
    FragmentedTwice,
    /// Two variants that do not differ.
    #[error(
        "workload {workload:?}: the variants {one:?} and {other:?} run the same; give one of them a command, values of \
         placeholders that the workload has, an environment or `fragmented` of its own"
    )]
    SameVariant {
        /// The workload.
        workload: String,
        /// One of them.
        one: String,
        /// The other one.
        other: String,
    },
    /// An axis whose values make no difference.
    #[error("workload {workload:?}: nothing in it asks for its axis, {{{axis}}}: its rows would be the same")]
    IdleAxis {
        /// The workload.
        workload: String,
        /// The axis.
        axis: String,
    },
    /// A workload with nothing to run, and no reason for it.
    #[error("workload {name:?}: expected a command, a trace, or `missing` with the reason why there is neither")]
    Empty {
        /// The workload.
        name: String,
    },
    /// A word with a placeholder that has no value.
    #[error("workload {workload:?}: {error}")]
    Placeholder {
        /// The workload.
        workload: String,
        /// What is wrong.
        error: PlaceholderError,
    },
    /// The same of an input.
    #[error("input {input:?}: {error}")]
    InputPlaceholder {
        /// The input.
        input: String,
        /// What is wrong.
        error: PlaceholderError,
    },
    /// An input whose file has no plain name.
    #[error("input {input:?}: output: expected the name of a file without `/`, found {found:?}")]
    Output {
        /// The input.
        input: String,
        /// What was found.
        found: String,
    },
    /// An input without a command.
    #[error("input {input:?}: expected a command that makes it")]
    NothingMakes {
        /// The input.
        input: String,
    },
    /// A change that is none.
    #[error("published.change: expected a signed percentage such as -33.1% or +250%, found {found:?}")]
    Change {
        /// What was found.
        found: String,
    },
    /// A share of wins that is none.
    #[error(
        "published.wins: expected a percentage of workloads such as 45%, with a policy and no workload; found {found:?}"
    )]
    Wins {
        /// What was found.
        found: String,
    },
    /// A published figure with no figure, or with two.
    #[error("published {what:?}: expected `change` or `wins`")]
    Figure {
        /// What it says.
        what: String,
    },
    /// A published figure of a workload and of a suite.
    #[error("published {what:?}: it has `workload` and `suite`; expected one of them, or none")]
    WorkloadAndSuite {
        /// What it says.
        what: String,
    },
    /// A workload that is missing and is there.
    #[error("workload {name:?}: it has `missing` and something to run; expected one of them")]
    MissingAndThere {
        /// The workload.
        name: String,
    },
    /// A series that makes no sense.
    #[error("series {series:?}: {what}")]
    Series {
        /// The series.
        series: String,
        /// What is wrong.
        what: String,
    },
    /// What is counted and weighed makes no sense.
    #[error("counted: {0}")]
    Counted(#[from] CountedError),
    /// A word of it with a placeholder that has no value.
    #[error("counted: {0}")]
    CountedPlaceholder(PlaceholderError),
    /// What is no word or no number for Slurm.
    #[error("slurm.{key}: expected {expected}, found {found:?}")]
    Slurm {
        /// The key.
        key: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A size of memory that is none.
    #[error("boots.{boot}.memory: {error}")]
    Memory {
        /// The boot.
        boot: String,
        /// What is wrong.
        error: SizeError,
    },
    /// Leaves that are none.
    #[error("boots.{boot}.leaves: expected a size such as 2M, or mixed: {error}")]
    Leaves {
        /// The boot.
        boot: String,
        /// What is wrong.
        error: SizeError,
    },
    /// A boot that was split, into nobody says what.
    #[error("boots.{boot}.demoted: expected `leaves` beside it, the size that the direct map was split into")]
    DemotedToNothing {
        /// The boot.
        boot: String,
    },
    /// A boot that does not say its memory, beside one that does.
    #[error(
        "boots.{other}: boots.{boot} says its memory (`memory`, or `mem=` in `with`), and this one does not; expected it of all \
         boots, which are then compared over sizes of memory, or of none"
    )]
    MemoryOfSome {
        /// One that says it.
        boot: String,
        /// One that does not.
        other: String,
    },
    /// A size that is none.
    #[error("boots.{boot}.base_page: {error}")]
    BasePage {
        /// The boot.
        boot: String,
        /// What is wrong.
        error: SizeError,
    },
}

impl DefinitionError {
    /// There is no such size.
    pub(super) fn no_size<'a>(size: Size, known: impl Iterator<Item = &'a String>) -> DefinitionError {
        let known: Vec<String> = known.map(|name| format!("[sizes.{name}]")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { listed(known.into_iter()) };
        DefinitionError::Size { wanted: size.name().to_owned(), known }
    }

    /// The same, of a suite.
    pub(super) fn in_suite(self, suite: &str) -> DefinitionError {
        DefinitionError::Suite { suite: suite.to_owned(), error: Box::new(self) }
    }
}
