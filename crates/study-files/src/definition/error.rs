//! Errors in the file of a study or a suite.

use policy::size::SizeError;

use super::counted::CountedError;
use super::listed::listed;
use super::placeholder::PlaceholderError;
use super::{SCHEMA, SUITE_SCHEMA, Size};

/// An invalid study or suite.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DefinitionError {
    /// Another kind of file, or another schema version.
    #[error("schema: expected {SCHEMA:?}, found {found:?}")]
    Schema {
        /// What was found.
        found: String,
    },
    /// A name that cannot be a file name.
    #[error("name: expected ASCII letters, digits, - and _, found {found:?}")]
    Name {
        /// What was found.
        found: String,
    },
    /// Not the file of a suite, or another schema version.
    #[error("schema: expected {SUITE_SCHEMA:?}, found {found:?}")]
    SuiteSchema {
        /// What was found.
        found: String,
    },
    /// An invalid suite, or a suite that does not fit the study.
    #[error("suite {suite:?}: {error}")]
    Suite {
        /// Name of the suite.
        suite: String,
        /// The error in the suite.
        error: Box<DefinitionError>,
    },
    /// A size that the file does not define.
    #[error("there is no [sizes.{wanted}]; there are {known}: choose one with --size")]
    Size {
        /// The requested size.
        wanted: String,
        /// The defined sizes.
        known: String,
    },
    /// More trials than a study may have.
    #[error(
        "expected at most {max} trials, found {trials}: {rows} rows (workloads x axis values x variants) x {policies} policies x \
         {runs} trials of each (blocks x boots, and one for each model machine); shorten an axis, leave out policies or machines, or \
         make several studies"
    )]
    TooManyTrials {
        /// The limit.
        max: u64,
        trials: u128,
        /// Workloads with their axes and variants.
        rows: u128,
        policies: u128,
        /// Trials of each row under each policy.
        runs: u128,
    },
    /// The command lines of all rows are too long together.
    #[error(
        "the command lines of all rows, with placeholders filled in, are longer than {} together; shorten them, or an axis",
        policy::size::format_bytes(*max_bytes as u64)
    )]
    TooMuchText {
        /// The limit.
        max_bytes: usize,
    },
    #[error("{key}: expected at most {max}, found {found}")]
    TooMany {
        /// Key of the list.
        key: &'static str,
        /// The limit.
        max: usize,
        /// The number of entries.
        found: usize,
    },
    /// A wrong number of entries: nothing to run, or nothing to compare.
    #[error("{key}: expected {expected}, found {found}")]
    Count {
        /// Key of the list.
        key: &'static str,
        /// The allowed number.
        expected: &'static str,
        /// The number of entries.
        found: usize,
    },
    /// A guest's name that is not a valid word on a kernel's command line.
    #[error(
        "boots.{boot:?}: the name of a guest is part of its kernel's command line: expected printable ASCII without spaces, quotes, / \
         and ="
    )]
    GuestName {
        /// Name of the boot.
        boot: String,
    },
    /// Keys of a guest in a boot that is not a guest.
    #[error(
        "boots.{boot}: cmdline, icount and sysroot need a guest; add image = \"FILE\", the kernel of the guest, or remove them"
    )]
    NotAGuest {
        /// Name of the boot.
        boot: String,
    },
    /// Guests with different clocks.
    #[error(
        "boots: {counts} has icount = true and {other} does not, and instructions cannot be compared with time; set it for all boots, or \
         for none"
    )]
    GuestClocks {
        /// A guest whose clock counts instructions.
        counts: String,
        /// A guest whose clock does not.
        other: String,
    },
    #[error("boots: expected one boot with baseline = true, found {one} and {other}")]
    SeveralBaselines {
        /// The first.
        one: String,
        /// The second.
        other: String,
    },
    /// A mix of guests and boots of the host.
    #[error(
        "boots: {guest} is a guest and {host} a boot of the host, which cannot be compared; make all of them guests, or none"
    )]
    GuestAndHost {
        guest: String,
        /// A boot of the host.
        host: String,
    },
    #[error("{key}: duplicate {name:?}")]
    Duplicate {
        /// Key of the list.
        key: &'static str,
        /// The duplicate name.
        name: String,
    },
    #[error("{key}: there is no {name:?}; there are {known}")]
    Unknown {
        /// Key that contains the reference.
        key: String,
        /// The unknown name.
        name: String,
        /// The known names.
        known: String,
    },
    #[error("policies: {one:?} and {other:?} are the same policy; name it once")]
    SamePolicy {
        /// The first name.
        one: String,
        /// The second name.
        other: String,
    },
    /// A policy that is decided at boot, together with one that is set per program.
    #[error(
        "policies: {boot:?} is set when the machine boots, and {program:?} for each program; policies of boots can only be compared with \
         each other: make two studies"
    )]
    BootAndProgram {
        /// The policy that is set at boot.
        boot: String,
        /// The policy that is set for each program.
        program: String,
    },
    /// A primary metric that a workload does not have.
    #[error("workload {workload:?}: primary: there is no metric {name:?}; there are {known}")]
    Metric {
        /// Name of the workload.
        workload: String,
        /// Name of the metric.
        name: String,
        /// The metrics of the workload.
        known: String,
    },
    #[error("workload {workload:?}: variants: {what}")]
    Variants {
        /// Name of the workload.
        workload: String,
        /// The reason, and what to do.
        what: &'static str,
    },
    /// Several values of `fragmented`, which are variants, together with other variants.
    #[error(
        "fragmented: several values make variants, but the workload has variants already; set `fragmented` in each of them"
    )]
    FragmentedTwice,
    /// Two variants that do not differ.
    #[error(
        "workload {workload:?}: the variants {one:?} and {other:?} are the same; change the command, the server, the values of \
         placeholders, the environment or `fragmented` of one"
    )]
    SameVariant {
        /// Name of the workload.
        workload: String,
        /// The first variant.
        one: String,
        /// The second variant.
        other: String,
    },
    /// An axis that no text of the workload uses.
    #[error(
        "workload {workload:?}: no text of the workload contains {{{axis}}}, so all values of this axis would run the same"
    )]
    UnusedAxis {
        /// Name of the workload.
        workload: String,
        /// Name of the axis.
        axis: String,
    },
    /// A workload with nothing to run and without a reason for that.
    #[error("workload {name:?}: expected a command, a trace, or `missing` with the reason why there is neither")]
    Empty {
        /// Name of the workload.
        name: String,
    },
    /// A workload with a placeholder that cannot be filled in.
    #[error("workload {workload:?}: {error}")]
    Placeholder {
        /// Name of the workload.
        workload: String,
        error: PlaceholderError,
    },
    /// An input with a placeholder that cannot be filled in.
    #[error("input {input:?}: {error}")]
    InputPlaceholder {
        /// Name of the input.
        input: String,
        error: PlaceholderError,
    },
    /// An input whose output is not a plain file name.
    #[error("input {input:?}: output: expected the name of a file without `/`, found {found:?}")]
    Output {
        /// Name of the input.
        input: String,
        /// What was found.
        found: String,
    },
    #[error("input {input:?}: expected a command that makes the file")]
    InputWithoutCommand {
        /// Name of the input.
        input: String,
    },
    #[error("{key}: expected a signed percentage such as -33.1% or +250%, found {found:?}")]
    Change {
        /// Where it is in the file.
        key: &'static str,
        /// What was found.
        found: String,
    },
    /// An invalid published share of wins.
    #[error(
        "published.wins: expected a percentage of workloads such as 45%, with a policy, and without workload, suite and metric; found \
         {found:?}"
    )]
    Wins {
        /// What was found.
        found: String,
    },
    /// A published figure with neither `change` nor `wins`, or with both.
    #[error("published {what:?}: expected exactly one of `change` and `wins`")]
    Figure {
        /// Description of the figure.
        what: String,
    },
    /// A published figure with both a workload and a suite.
    #[error("published {what:?}: expected at most one of `workload` and `suite`")]
    WorkloadAndSuite {
        /// Description of the figure.
        what: String,
    },
    /// A workload that is `missing` but has something to run.
    #[error("workload {name:?}: expected either `missing` or something to run, found both")]
    MissingButRunnable {
        /// Name of the workload.
        name: String,
    },
    #[error("series {series:?}: {what}")]
    Series {
        /// Name of the series.
        series: String,
        /// The error, as a clause.
        what: String,
    },
    #[error("counted: {0}")]
    Counted(#[from] CountedError),
    /// A placeholder in `[counted]` that cannot be filled in.
    #[error("counted: {0}")]
    CountedPlaceholder(PlaceholderError),
    #[error("slurm.{key}: expected {expected}, found {found:?}")]
    Slurm {
        /// The key in `[slurm]`.
        key: &'static str,
        /// What the key accepts.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    #[error("boots.{boot}.memory: {error}")]
    Memory {
        /// Name of the boot.
        boot: String,
        error: SizeError,
    },
    #[error("boots.{boot}.leaves: expected a size such as 2M, or mixed: {error}")]
    Leaves {
        /// Name of the boot.
        boot: String,
        error: SizeError,
    },
    /// A split boot without the leaf size of the split.
    #[error("boots.{boot}.demoted: expected `leaves` too, the size into which the direct map was split")]
    DemotedWithoutLeaves {
        /// Name of the boot.
        boot: String,
    },
    /// A boot without a memory size, while another has one.
    #[error(
        "boots.{other}: expected a memory size (`memory`, or `mem=` in `with`), because boots.{boot} has one: boots with sizes are \
         compared over them; give it for every boot, or for none"
    )]
    MissingMemory {
        /// The boot with a memory size.
        boot: String,
        /// The boot without one.
        other: String,
    },
    #[error("boots.{boot}.base_page: {error}")]
    BasePage {
        /// Name of the boot.
        boot: String,
        error: SizeError,
    },
}

impl DefinitionError {
    /// The error for an unknown size.
    pub(super) fn no_size<'a>(size: Size, known: impl Iterator<Item = &'a String>) -> DefinitionError {
        let known: Vec<String> = known.map(|name| format!("[sizes.{name}]")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { listed(known.into_iter()) };
        DefinitionError::Size { wanted: size.name().to_owned(), known }
    }

    /// Adds the name of the suite that contains the error.
    pub(super) fn in_suite(self, suite: &str) -> DefinitionError {
        DefinitionError::Suite { suite: suite.to_owned(), error: Box::new(self) }
    }
}
