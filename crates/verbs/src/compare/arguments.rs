//! Arguments of `pagelab compare`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use policy::Policy;
use results::required::ArmRequirement;
use study::comparison::Fragmented;
use study::shares::Fraction;

use super::khugepaged::Khugepaged;
use super::pattern::{MetricPattern, with_one_group};
use super::variant_word::{VariantWord, parse_fragmented_of, parse_named};
use super::window_order::Order;
use crate::guest_arguments::Guests;
use crate::publish::Forms;
use crate::waiting::DEFAULT_MAX_TIME;
use crate::words::{
    TrialTime, Variable, parse_duration, parse_fragmented, parse_percent, parse_policy, parse_size, parse_trial_time,
    parse_variable,
};

/// Arguments of `pagelab compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// A policy, for example base, mthp-64k, thp, hugetlb-2m, thp+no-guards; repeat it, or separate
    /// several by commas. The first is the baseline unless `default` is among them; one alone is compared
    /// with `default`. Without it: every policy that makes sense here, of the mTHP sizes 64K alone (`pagelab list policies`
    /// has the others)
    #[arg(short, long = "policy", value_name = "POLICY", value_delimiter = ',', value_parser = parse_policy)]
    pub policies: Vec<Policy>,
    /// The policy that the others are compared with
    #[arg(long, value_name = "POLICY", value_parser = parse_policy)]
    pub baseline: Option<Policy>,
    /// Measure the baseline a second time, as if it were another policy
    #[arg(long)]
    pub aa: bool,
    /// Measure several builds, arguments or environments of the command in the same blocks, each under every policy; the
    /// first is the baseline. NAME alone is the command as given (with --server, the server). COMMAND is a command line,
    /// split as a shell would split it, which may begin with variables: `{}` in it is replaced by the given command,
    /// `{args}` by its arguments. Without -p: under the policy default alone. old='./old/sort {args}' new='./new/sort {args}'
    #[arg(long = "variant", value_name = "NAME[=COMMAND]", value_parser = VariantWord::from_str, conflicts_with = "arm_of_boot")]
    pub variants: Vec<VariantWord>,
    /// --expected for one --variant, whose answer differs from that of the others
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_named, requires = "variants")]
    pub expected_of: Vec<(String, String)>,
    /// --fragmented for the trials of one --variant only: memory is fragmented before them and given back after them, so that
    /// fresh and aged memory are compared within blocks
    #[arg(long, value_name = "NAME=PERCENT[@SIZE]", value_parser = parse_fragmented_of, requires = "variants")]
    pub fragmented_of: Vec<(String, Fragmented)>,
    /// Measure the one arm that matches this boot, of policies that depend on the boot (direct-map-*), and show the
    /// merged result of all boots in the store. --min-blocks is the number of runs in a boot. If -p names this arm
    /// only, it is still merged with the arms of other boots (`pagelab merge`)
    #[arg(long, conflicts_with = "aa")]
    pub arm_of_boot: bool,
    /// Say how much of the memory must be large: measure thp in a part of the memory too. The memory is divided into at most 32
    /// windows, in the order in which the program asks for it; some are large, and the same ones in every run. One more run
    /// before the first block finds how much memory that is. The baseline is base. As root khugepaged sleeps meanwhile.
    /// Without SHARES: 0,1/2,1
    #[arg(
        long, value_name = "SHARES", value_delimiter = ',', value_parser = Fraction::from_str, num_args = 0..=1,
        default_missing_value = "1/2", require_equals = true, conflicts_with_all = ["variants", "arm_of_boot"]
    )]
    pub shares: Vec<Fraction>,
    /// Which windows of --shares become large first: in the order of allocation, at random (by the seed), or the
    /// most accessed first, which one more run finds
    #[arg(long, value_enum, value_name = "ORDER", default_value = "growing", requires = "shares")]
    pub order: Order,
    /// For pagelab's own tests, and not in released programs: read the trials from this file instead of running them, so that
    /// no figure is measured (`compare::fake`)
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "FILE", hide = true)]
    pub fake_platform: Option<std::path::PathBuf>,
    /// The command, or the client that drives --server. `--` may be left out if none of the words that follow is an option
    /// of pagelab
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
#[derive(Clone, Debug, PartialEq, Args)]
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
    /// Do not stop before this many blocks; default: 8, or --blocks where that is fewer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub min_blocks: Option<u32>,
    /// Begin no block after this long, counted from the first trial: 90s, 10m, 1h. Without one complete block there is no
    /// result (exit code 4). Waiting for another pagelab (--wait) and the advice at the end come on top. With --kernel
    /// it limits each boot, without the booting, by the guest's clock, which counts instructions with --icount; --guest-time
    /// limits a boot by this host's clock
    #[arg(long, value_name = "TIME", default_value = DEFAULT_MAX_TIME, value_parser = parse_duration)]
    pub max_time: f64,
    /// End a trial that takes longer, with all processes that it started. Its policy becomes a row `too slow` and is
    /// not run again. If the baseline is too slow, there is no result (exit code 4). The limit applies to --prepare
    /// too, which then fails. `none`: no limit. Default: none if standard input or error is a terminal, else 1h, or
    /// --max-time if that is more
    #[arg(long, value_name = "TIME", value_parser = parse_trial_time)]
    pub trial_time: Option<TrialTime>,
    /// Seed of the order of trials; default: from the clock, and reported
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The metric that decides and stops the run: wall, cpu, user (user time), system (system time), or a name (`wall_s`,
    /// your --metric). `auto`: CPU time where other work or the hypervisor takes much of the processors before the first
    /// block, else wall time; not with --server. Default: wall, with a suggestion where CPU time is steadier
    #[arg(long, value_name = "NAME")]
    pub primary: Option<String>,
    /// How long to wait while another pagelab measures or has changed system settings: comparisons on one host take turns
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub wait: f64,
}

impl Stopping {
    /// Returns these arguments. Each argument of `given` that differs from its default replaces the one here.
    pub fn changed_by(self, given: &Stopping, defaults: &Stopping) -> Stopping {
        fn changed<T: Clone + PartialEq>(own: T, given: &T, default: &T) -> T {
            if given == default { own } else { given.clone() }
        }
        Stopping {
            precision: changed(self.precision, &given.precision, &defaults.precision),
            band: changed(self.band, &given.band, &defaults.band),
            blocks: changed(self.blocks, &given.blocks, &defaults.blocks),
            min_blocks: changed(self.min_blocks, &given.min_blocks, &defaults.min_blocks),
            max_time: changed(self.max_time, &given.max_time, &defaults.max_time),
            trial_time: changed(self.trial_time, &given.trial_time, &defaults.trial_time),
            seed: changed(self.seed, &given.seed, &defaults.seed),
            primary: changed(self.primary, &given.primary, &defaults.primary),
            wait: changed(self.wait, &given.wait, &defaults.wait),
        }
    }
}

/// What is run, and which figures are taken from it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct Measuring {
    /// Run this server under the policy, in the background of the measured client. It is a command line, split as a
    /// shell would split it
    #[arg(long, value_name = "COMMAND", requires = "ready")]
    pub server: Option<String>,
    /// A command that succeeds once the server is ready; it is repeated until then. It may also load the data: its time is not
    /// measured
    #[arg(long, value_name = "COMMAND", requires = "server")]
    pub ready: Option<String>,
    /// How long the server may take to become ready (with --ready that loads data, for all of it), and to end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub ready_time: f64,
    /// Run this before every trial, discarded ones too: as the same user, under no policy, and untimed. It is a
    /// command line, split as a shell would split it. What it prints is discarded. If it fails, the comparison ends.
    /// Where a hypervisor takes free memory back, `pagelab workload page-touch --bytes SIZE` brings it back before
    /// each trial
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// A figure that the command (or client) prints: the capture group of the regular expression.
    /// Say which way it improves, NAME:higher=REGEX or NAME:lower=REGEX, unless the name implies it. With --kernel, a name that
    /// ends in _s, _ms, _us or _ns is a time, which emulated guests count in instructions; other figures must not depend on time
    #[arg(long = "metric", value_name = "NAME=REGEX", value_parser = MetricPattern::from_str)]
    pub metrics: Vec<MetricPattern>,
    /// Times in seconds of the program's own iterations: the first is reported separately
    #[arg(long, value_name = "REGEX", value_parser = with_one_group)]
    pub repeat_inside: Option<regex::bytes::Regex>,
    /// Compare the hash of standard output under every policy
    #[arg(long)]
    pub check_output: bool,
    /// Compare the hash of a part of standard output under every policy, for output whose rest (times, dates) differs in every
    /// run. The part is everything that the capture group of the regular expression matches. If it matches nothing, all of
    /// the output is compared
    #[arg(long, value_name = "REGEX", value_parser = with_one_group, conflicts_with = "check_output")]
    pub answer: Option<regex::bytes::Regex>,
    /// What the answer must be, word for word: all of standard output, or the part that --answer takes. Line breaks at its
    /// end do not count. An arm with a different answer has no figures
    #[arg(long, value_name = "TEXT")]
    pub expected: Option<String>,
    /// Inspect all memory before it is freed (munmap, mremap, brk, MADV_DONTNEED, MADV_FREE, exec), whatever its size
    /// and however long that takes. Otherwise only large ranges are inspected, for 0.5 % of the time. Use it for
    /// programs that free most of their memory before they exit (causes peak_unseen, freed_before_exit). Inspection
    /// time is subtracted from the wall time if nothing else of the process tree ran meanwhile. A warning names arms
    /// whose wall time still contains it
    #[arg(long)]
    pub prove_all: bool,
    /// Say how large pages change the user time: through TLB reach, or through the placement of physical frames. A control
    /// arm has the memory of each policy, mapped by base-page entries. The baseline is base or default. As root, pagelab
    /// stops khugepaged meanwhile, and counts the blocks of physical memory behind each arm's memory
    #[arg(long)]
    pub explain: bool,
    /// Give the command this file as standard input, reopened for each trial. A pipe cannot be used: it can be read only once
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Run the command, its server, --ready and --prepare as this user. Default under sudo: the user who called it.
    /// Another user's commands have a session without pagelab's terminal, and a login environment (HOME, USER, LOGNAME,
    /// SHELL, PATH, XDG_RUNTIME_DIR; TERM, LANG, LC_* and TZ are kept). Unless that user is root, they gain
    /// no privilege by exec (sudo, su)
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Run the command (the server and the client separately) in a new session, in all arms alike. As root, pagelab gives the
    /// session's autogroup the top weight, so that other sessions take little CPU time from it. The command has no terminal.
    /// The table says whether this has an effect here
    #[arg(long)]
    pub own_session: bool,
    /// Give these commands this environment variable too. Without a value, pagelab passes on its own value, which is not
    /// stored with the command line. Repeat it for more
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(parse_variable))]
    pub env: Vec<Variable>,
    /// Memory for the hugetlb pool while a hugetlb policy is measured
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub hugetlb_pool: Option<u64>,
    /// Keep idle processors awake meanwhile (root). Wake-ups then cost nothing, and there is less noise. Processors
    /// that share a core or a power budget with idle ones are slower. The state of every trial records it
    #[arg(long)]
    pub awake: bool,
    /// Whether khugepaged runs meanwhile. Left alone, it wakes up in some trials and collapses memory there, and in
    /// others it does not. `off` (root) stops it in all trials, and restores its settings afterwards
    #[arg(long, value_enum, value_name = "HOW", default_value = "as-is")]
    pub khugepaged: Khugepaged,
    /// Fragment free memory before the first trial (root), as on a machine that has been up for weeks, until this share
    /// of it is in blocks below 2M, or below SIZE: 80%, 80%@64K. The memory is freed at the end. The table says which
    /// share was reached
    #[arg(long, value_name = "PERCENT[@SIZE]", value_parser = parse_fragmented)]
    pub fragmented: Option<Fragmented>,
}

/// Where results are kept, and how much of them is shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Keeping {
    /// Do not run the command again to find a setting that gives it the pages of the best policy
    #[arg(long)]
    pub no_advice: bool,
    /// Show everything: further metrics, the tracing overhead, faults, page tables, all notes and warnings, and the
    /// settings that were tried for advice and did not hold
    #[arg(long)]
    pub full: bool,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Exit with 5 unless the memory of every policy but the baseline meets this in each of its trials, for example
    /// large>=95% (mapped by page-table entries above the base page), 64K>=80% (in folios of 64K or larger, whatever entries map
    /// them) or thp:large>=95% for one policy. It may be given several times
    #[arg(long, value_name = "[POLICY:]REQUIREMENT", conflicts_with = "arm_of_boot")]
    pub require: Vec<ArmRequirement>,
}

impl Compare {
    /// Whether the trials run on this host, as opposed to the fake platform of a test.
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
