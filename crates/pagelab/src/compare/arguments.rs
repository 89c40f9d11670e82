//! Arguments of `pagelab compare`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use policy::Policy;
use study::comparison::Fragmented;

use super::khugepaged::Khugepaged;
use super::pattern::{MetricPattern, with_one_group};
use super::variant_word::{VariantWord, parse_fragmented_of, parse_named};
use crate::kernels::arguments::Guests;
use crate::publish::Forms;
use crate::words::{
    TrialTime, Variable, parse_duration, parse_fragmented, parse_percent, parse_policy, parse_size, parse_trial_time,
    parse_variable,
};

/// Arguments of `pagelab compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// A policy, for example base, mthp-64k, thp, hugetlb-2m, thp+no-guards; repeat it, or separate
    /// several by commas. The first is the baseline unless `default` is among them. Without it: every
    /// policy that makes sense here
    #[arg(short, long = "policy", value_name = "POLICY", value_delimiter = ',', value_parser = parse_policy)]
    pub policies: Vec<Policy>,
    /// What the others are compared with
    #[arg(long, value_name = "POLICY", value_parser = parse_policy)]
    pub baseline: Option<Policy>,
    /// Measure the baseline a second time, as if it were another policy
    #[arg(long)]
    pub aa: bool,
    /// Measure several builds, arguments or environments of the command in the same blocks, each under every policy; the
    /// first is the baseline. NAME alone is the command as it is given (with --server the server); COMMAND is another
    /// one, split as a shell would split it, with variables before it: `{}` in it is replaced by the command, `{args}` by
    /// its arguments. Without -p: under the policy default alone. old='./old/sort {args}' new='./new/sort {args}'
    #[arg(long = "variant", value_name = "NAME[=COMMAND]", value_parser = VariantWord::from_str, conflicts_with = "arm_of_boot")]
    pub variants: Vec<VariantWord>,
    /// Measure the one arm that this boot has, of policies that depend on the boot (direct-map-*), and show what all
    /// boots in the store say together. --min-blocks says how many runs a boot makes. An arm that -p names alone
    /// joins those of other boots (`pagelab merge`)
    #[arg(long, conflicts_with = "aa")]
    pub arm_of_boot: bool,
    /// For pagelab's own tests, and not in the program that is released: trials are not run, but read out of this file. No
    /// figure is measured (`compare::fake`)
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "FILE", hide = true)]
    pub fake_platform: Option<std::path::PathBuf>,
    /// The command, or with --server the client that drives it
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
    #[command(flatten)]
    pub stopping: Stopping,
    #[command(flatten)]
    pub measuring: Measuring,
    #[command(flatten)]
    pub forms: Forms,
    #[command(flatten)]
    pub guests: Guests,
    #[command(flatten)]
    pub keeping: Keeping,
}

/// When to stop, and what counts as a difference.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stopping")]
pub struct Stopping {
    /// Stop when every interval's half width is at most this
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent, allow_negative_numbers = true)]
    pub precision: f64,
    /// Changes smaller than this do not matter
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent, allow_negative_numbers = true)]
    pub band: f64,
    /// Stop after this many blocks at the latest
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub blocks: u32,
    /// Do not stop before this many blocks
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub min_blocks: u32,
    /// Begin no block after this long, counted from the first trial: 90s, 10m, 1h. Without one complete block there is no
    /// result (exit code 4)
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub max_time: f64,
    /// End a trial that takes longer, with all that it started. Its policy becomes a row `too slow` and is not run
    /// again. Without the baseline there is no result (exit code 4). The limit holds for --prepare too, which then
    /// fails. `none`: no limit. Default: none where standard input or error is a terminal, else 1h, or --max-time
    /// where that is more
    #[arg(long, value_name = "TIME", value_parser = parse_trial_time)]
    pub trial_time: Option<TrialTime>,
    /// Seed of the order of trials; default: from the clock, and reported
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The metric that decides and stops the run: wall, cpu, or a name (`wall_s`, your --metric)
    #[arg(long, value_name = "NAME", default_value = "wall")]
    pub primary: String,
}

/// What is run and what is read off it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct Measuring {
    /// Run this server under the policy, in the background of the measured client. It is a command line, split as a
    /// shell would split it
    #[arg(long, value_name = "COMMAND", requires = "ready")]
    pub server: Option<String>,
    /// Succeeds as soon as the server is ready; tried until then
    #[arg(long, value_name = "COMMAND", requires = "server")]
    pub ready: Option<String>,
    /// How long the server may take to become ready, and to end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub ready_time: f64,
    /// Run this before every trial, discarded ones too: as the same user, under no policy, and untimed. It is a
    /// command line, split as a shell would split it. What it prints is discarded. If it fails, the comparison ends.
    /// Where a hypervisor takes free memory back, `pagelab workload page-touch --bytes SIZE` brings it back before
    /// each trial
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// A figure that the command (or client) prints: the capture group of the regular expression.
    /// Say which way it improves, NAME:higher=REGEX or NAME:lower=REGEX, unless the name tells
    #[arg(long = "metric", value_name = "NAME=REGEX", value_parser = MetricPattern::from_str)]
    pub metrics: Vec<MetricPattern>,
    /// Times in seconds of the program's own iterations: the first is reported apart from the others
    #[arg(long, value_name = "REGEX", value_parser = with_one_group)]
    pub repeat_inside: Option<regex::bytes::Regex>,
    /// Compare the hash of standard output under every policy
    #[arg(long)]
    pub check_output: bool,
    /// Compare the hash of this part of standard output under every policy, where the rest (times, dates) is another one in
    /// every run: all that the capture group of the regular expression matches. Where it matches nothing, all of the output
    /// is compared
    #[arg(long, value_name = "REGEX", value_parser = with_one_group, conflicts_with = "check_output")]
    pub answer: Option<regex::bytes::Regex>,
    /// What the answer must be, word for word: all of standard output, or the part that --answer takes. Line breaks at its
    /// end do not count. An arm with another answer has no figures
    #[arg(long, value_name = "TEXT")]
    pub expected: Option<String>,
    /// The same for a --variant whose answer is another one
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_named, requires = "variants")]
    pub expected_of: Vec<(String, String)>,
    /// Inspect all memory before it is given back (munmap, mremap, brk, MADV_DONTNEED, MADV_FREE, exec), whatever its
    /// size and the time that takes. Otherwise only large ranges are inspected, for 0.5 % of the time. It is for
    /// programs that give most of their memory back before they end (causes peak_unseen, freed_before_exit). The time
    /// of inspections is taken off the wall time where nothing else of the tree ran. A warning names arms whose wall
    /// time contains it
    #[arg(long)]
    pub prove_all: bool,
    /// Give the command this file as standard input, every time anew. A pipe cannot be used: it can be read once only
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Run the command, its server, --ready and --prepare as this user. Default under sudo: the user who called it.
    /// Another user's commands have a session without pagelab's terminal and the environment of a login (HOME, USER,
    /// LOGNAME, SHELL, PATH, XDG_RUNTIME_DIR; TERM, LANG, LC_* and TZ are kept). Unless that user is root, they gain
    /// no privilege by exec (sudo, su)
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Give them this environment variable too. Without a value it is pagelab's own, which is not stored with the
    /// command line. Repeat it for more
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(parse_variable))]
    pub env: Vec<Variable>,
    /// Memory for the hugetlb pool while a hugetlb policy is measured
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub hugetlb_pool: Option<u64>,
    /// Keep idle processors awake meanwhile (root). Wake-ups then cost nothing, and there is less noise. Processors
    /// that share a core or a power budget with idle ones are slower. The state of every trial records it
    #[arg(long)]
    pub awake: bool,
    /// What the kernel's khugepaged does meanwhile. By itself it wakes up in some trials and makes large pages in
    /// them, and in others it does not. `off` (root) lets it sleep in all of them, and puts its settings back
    /// afterwards
    #[arg(long, value_enum, value_name = "HOW", default_value = "as-is")]
    pub khugepaged: Khugepaged,
    /// Fragment free memory before the first trial (root), as on a machine that has been up for weeks, until that much
    /// of it is in blocks below 2M, or below SIZE: 80%, 80%@64K. The memory is given back at the end. The table
    /// says what was reached
    #[arg(long, value_name = "PERCENT[@SIZE]", value_parser = parse_fragmented)]
    pub fragmented: Option<Fragmented>,
    /// The same for the trials of a --variant alone: memory is fragmented before them and given back after them, so that
    /// fresh and aged memory are compared within blocks
    #[arg(long, value_name = "NAME=PERCENT[@SIZE]", value_parser = parse_fragmented_of, requires = "variants")]
    pub fragmented_of: Vec<(String, Fragmented)>,
    /// How long to wait for another pagelab that has changed system settings
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub wait: f64,
}

/// Which results are kept, and how much of them is shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Keeping {
    /// Print all ways to adopt the best policy below the table; none of them was tried
    #[arg(long)]
    pub adopt_all: bool,
    /// Do not run the command again to find a setting that gives it the pages of the best policy
    #[arg(long)]
    pub no_advice: bool,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

impl Compare {
    /// Whether the trials run on this host, and not on a fake platform of a test.
    #[cfg(debug_assertions)]
    pub fn is_on_host(&self) -> bool {
        self.fake_platform.is_none()
    }

    /// Whether the trials run on this host; released programs have no other platform.
    #[cfg(not(debug_assertions))]
    pub fn is_on_host(&self) -> bool {
        true
    }
}
