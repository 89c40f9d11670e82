//! Tests that every remedy of the catalogue is executed by a test, or that a reason is given why no test does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Whether a test executes a remedy.
enum Executed {
    /// The test with this name executes the remedy.
    By(&'static str),
    /// No test executes the remedy, for this reason.
    Not(&'static str),
}

use Executed::{By, Not};

const OF_A_TRIAL: Executed = Not("it changes what is measured, and not the program's memory");

/// The remedies of causes, identified by the causes' names.
const CAUSES: &[(&str, Executed)] = &[
    ("no_aligned_slot", By("remedies_of_places_work")),
    ("mapping_too_small", Not("inspect compares with a size that fits, and no_aligned_slot has the same change")),
    ("advised_against", By("remedies_of_advice_and_settings_work")),
    ("not_advised", By("remedies_of_advice_and_settings_work")),
    ("mapped_in_pieces", Not("only a trial reports it: a policy does not advise pieces below 128K")),
    ("size_disabled", By("remedies_of_advice_and_settings_work")),
    ("disabled_for_process", By("remedies_of_advice_and_settings_work")),
    ("touched_before_eligible", By("remedies_of_advice_and_settings_work")),
    ("refilled_after_drop", By("remedies_of_histories_work")),
    ("split_meanwhile", By("remedies_of_histories_work")),
    ("split_after_fork", By("remedies_of_histories_work")),
    ("filled_with_base_pages", By("remedies_of_advice_and_settings_work")),
    ("read_first", By("remedies_of_histories_work")),
    ("zero_page_in_slot", By("remedies_of_histories_work")),
    ("zero_pieces_of_split", By("remedies_of_histories_work")),
    ("slot_partly_present", By("remedies_of_histories_work")),
    ("folio_partly_mapped", By("remedies_of_histories_work")),
    ("leaf_split", By("remedies_of_histories_work")),
    ("allocation_fell_back", By("memory_in_small_pieces_is_moved_together")),
    ("charge_fell_back", By("a_limit_that_admits_no_large_page")),
    ("pool_exhausted", By("a_pool_that_has_pages_serves_what_an_empty_one_did_not")),
    ("pool_limited", Not("only a trial reports it, and a trial has its limits from the start")),
    ("pool_request_refused", Not("the number of missing pages is the program's: pool_exhausted has the same change")),
    ("mapping_cut", By("remedies_of_cuts_work")),
    ("grew_in_steps", By("switches_of_malloc_work")),
    ("moved_out_of_place", By("remedies_of_histories_work")),
    ("shared_disabled", By("remedies_of_shared_memory_work")),
    ("shared_not_advised", By("remedies_of_shared_memory_work")),
    ("file_pages", By("remedies_of_files_work_on_this_file_system")),
    ("code_pages", By("remedies_of_files_work_on_this_file_system")),
    ("file_misaligned", By("remedies_of_files_work_on_this_file_system")),
    ("shared_misaligned", By("remedies_of_mounts_work")),
    ("mount_refuses", By("remedies_of_mounts_work")),
    ("file_ends_in_slot", By("remedies_of_mounts_work")),
    ("swapped_out", Not("a test cannot add memory to the machine")),
    ("split_underused", By("a_page_that_is_mostly_zero_is_split")),
    ("no_transparent_pages", Not("it takes another kernel")),
    ("disabled_except_advised", By("remedies_of_a_process_that_excepts_advised_memory_work")),
    ("merged_by_ksm", By("a_page_that_ksm_merged_is_large_where_ksm_does_not_run")),
    ("served_by_userfaultfd", By("remedies_of_histories_work")),
    ("pinned", By("remedies_of_histories_work")),
    ("base_page_refused", By("programs_that_cannot_start_with_larger_base_pages_are_named")),
    ("jemalloc_refuses_base_page", By("jemalloc_is_named_with_the_page_that_it_was_built_for")),
    ("not_given_back", OF_A_TRIAL),
    ("filtered_by_program", OF_A_TRIAL),
    ("debugger", OF_A_TRIAL),
    ("privilege_not_gained", OF_A_TRIAL),
    ("direct_map_otherwise", OF_A_TRIAL),
    ("folios_invisible", OF_A_TRIAL),
    ("nothing_to_see", OF_A_TRIAL),
    ("freed_before_exit", OF_A_TRIAL),
    ("peak_unseen", OF_A_TRIAL),
    ("peak_uncertain", OF_A_TRIAL),
];

/// The switches of programs, identified by a part of their description.
const SWITCHES: &[(&str, Executed)] = &[
    ("| start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1 |", By("switches_of_malloc_work")),
    ("GLIBC_TUNABLES=glibc.malloc.top_pad=67108864 |", By("switches_of_malloc_work")),
    ("GLIBC_TUNABLES=glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1 |", By("switches_of_malloc_work")),
    ("GLIBC_TUNABLES=glibc.malloc.hugetlb=2 |", By("switches_of_malloc_work")),
    ("PYTHONMALLOC=malloc", By("python_follows_the_switches_of_its_allocator_and_of_malloc_together")),
    ("MALLOC_CONF=thp:always", By("redis_follows_the_switches_of_jemalloc_and_of_its_own")),
    ("MIMALLOC_LARGE_OS_PAGES=1", By("mimalloc_takes_pages_of_a_pool")),
    ("-XX:+UseTransparentHugePages", By("java_follows_its_own_switches")),
    ("-XX:+UseLargePages", By("java_follows_its_own_switches")),
    ("--disable-thp no", By("redis_follows_the_switches_of_jemalloc_and_of_its_own")),
    ("huge_pages = try", By("postgresql_takes_pages_of_a_pool_and_large_shared_memory")),
    ("--large-pages", By("mariadb_takes_pages_of_a_pool")),
    ("-mem-path /dev/hugepages", By("a_guest_takes_pages_of_a_pool")),
];

fn lists(list: &'static [(&str, Executed)]) -> BTreeSet<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

/// The rows of the tables in the catalogue. A list whose completeness the compiler checks puts every cause and every
/// switch there.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| cause |"));
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn every_remedy_of_the_catalogue_is_executed_or_has_a_reason() {
    let catalogue = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/causes.md");
    let text = fs::read_to_string(catalogue).unwrap();
    let (causes, switches) = text.split_once("## Switches of programs").unwrap();
    let with_remedy: BTreeSet<&str> = rows(causes)
        .into_iter()
        .filter(|row| !row[1].is_empty())
        .map(|row| row.last().unwrap().trim_matches('`'))
        .collect();
    assert_eq!(with_remedy, lists(CAUSES));
    let switches: Vec<&str> =
        switches.lines().filter(|line| line.starts_with("| start") && !line.starts_with("| switch")).collect();
    for (part, _) in SWITCHES {
        assert_eq!(switches.iter().filter(|line| line.contains(part)).count(), 1, "{part}");
    }
    assert_eq!(switches.len(), SWITCHES.len(), "{switches:#?}");
}

#[test]
fn the_tests_that_execute_remedies_are_there() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inspect");
    let sources = fs::read_dir(directory).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let sources: String = sources.collect();
    for (name, executed) in CAUSES.iter().chain(SWITCHES) {
        match executed {
            By(test) => assert!(sources.contains(&format!("#[test]\nfn {test}()")), "{name}: no test {test}"),
            Not(reason) => assert!(!reason.is_empty(), "{name}"),
        }
    }
}
