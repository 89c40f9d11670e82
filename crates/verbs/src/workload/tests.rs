use clap::Parser;

use super::*;

const NAMES: &str = "chase gups stream page-touch mmap-churn fork-cow mprotect collapse swap-in page-cache table-growth fragments sched-messaging pipe-switch syscalls page-faults brk-growth \
                     fork-exec unix-socket tcp-loopback file-churn directory-read mapped-read memfd-pread copies spec-cpu";

/// Arguments with which every workload takes only milliseconds.
const SMOKE: [&str; 18] = [
    "chase --bytes 1M --steps 10000",
    "gups --bytes 1M --updates 10000",
    "stream --bytes 192K --rounds 3",
    "page-touch --bytes 1M --density 0.5 --read-first",
    "mmap-churn --bytes 256K --rounds 10",
    "mprotect --bytes 256K --rounds 3",
    "page-cache --sizes 1,5K",
    "table-growth --sizes 4K,64K",
    "sched-messaging --seconds 0.002",
    "pipe-switch --seconds 0.002",
    "syscalls --seconds 0.002",
    "page-faults --seconds 0.002",
    "unix-socket --seconds 0.002",
    "tcp-loopback --seconds 0.002",
    "file-churn --seconds 0.002",
    "directory-read --seconds 0.003",
    "mapped-read --seconds 0.002 --bytes 64K",
    "memfd-pread --seconds 0.002 --bytes 1M",
];

fn run_line(line: &str) -> Result<Report, WorkloadError> {
    let words = std::iter::once("workload").chain(line.split_whitespace());
    run(CommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).arguments)
}

fn answer(line: &str) -> String {
    run_line(&format!("{line} --answer-only")).unwrap_or_else(|error| panic!("{line}: {error}")).to_string()
}

#[test]
fn answers_depend_on_the_arguments_alone() {
    for line in SMOKE {
        assert_eq!(answer(line), answer(line));
        if !line.starts_with("stream") {
            assert_ne!(answer(line), answer(&format!("{line} --seed 7")), "{line}");
        }
    }
}

#[test]
fn a_report_is_one_line_of_name_value_pairs_or_one_document() {
    for line in SMOKE {
        let text = run_line(line).unwrap().to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with(&format!("name={} ", line.split(' ').next().unwrap())), "{text}");
        assert!(text.split(' ').all(|pair| pair.split_once('=').is_some_and(|(_, value)| !value.is_empty())));
        let document = run_line(&format!("{line} --json")).unwrap().to_string();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["schema"], "pagelab.workload/1");
        assert!(document["checksum"].as_str().unwrap().starts_with("0x"));
        assert!(document["figures"].as_object().unwrap().values().all(serde_json::Value::is_number));
    }
}

#[test]
fn invalid_arguments_are_refused_with_the_option_and_the_value() {
    for (line, option) in [
        ("chase --bytes 0", "--bytes"),
        ("chase --bytes 1000", "--bytes"),
        ("chase --lines-per-page 0", "--lines-per-page"),
        ("chase --lines-per-page 100000", "--lines-per-page"),
        ("chase --line-bytes 48", "--line-bytes"),
        ("chase --steps 0", "--steps"),
        ("gups --bytes 12", "--bytes"),
        ("gups --updates 0", "--updates"),
        ("stream --bytes 1000", "--bytes"),
        ("stream --rounds 1", "--rounds"),
        ("page-touch --bytes 1", "--bytes"),
        ("page-touch --density 0", "--density"),
        ("page-touch --density 1.5", "--density"),
        ("page-touch --density nan", "--density"),
        ("page-touch --order strided --stride 100", "--stride"),
        ("mmap-churn --rounds 0", "--rounds"),
        ("mprotect --strip 1", "--strip"),
        ("mprotect --rounds 0", "--rounds"),
        ("mprotect --bytes 64K --strip 1M", "--strip"),
        ("collapse --bytes 1", "--bytes"),
        ("swap-in --share 0", "--share"),
        ("swap-in --rounds 0", "--rounds"),
        ("fork-cow --share -1", "--share"),
        ("fork-cow --bytes 1", "--bytes"),
        ("gups --bytes 4096T", "--bytes"),
        ("chase --bytes 4096T --steps 1", "--bytes"),
        ("syscalls --seconds 0", "--seconds"),
        ("pipe-switch --seconds nan", "--seconds"),
        ("page-faults --seconds 1e30", "--seconds"),
        ("memfd-pread --bytes 100", "--bytes"),
        ("page-cache --sizes 4K,0", "--sizes"),
        ("page-cache --sizes 4096T", "--sizes"),
        ("table-growth --sizes 0", "--sizes"),
        ("mapped-read --bytes 100", "--bytes"),
        ("mapped-read --bytes 4096T", "--bytes"),
        ("mapped-read --bytes 64K --directory /proc", "--directory"),
        ("fork-exec --bytes 1", "--bytes"),
        ("file-churn --directory /proc", "--directory"),
    ] {
        let error = run_line(&line.replace("--share -1", "--share=-1")).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
        assert!(error.to_string().starts_with(option), "{line}: {error}");
    }
}

#[test]
fn refuses_invalid_sizes_while_parsing() {
    let error = CommandLine::try_parse_from(["workload", "gups", "--bytes", "1X"]).err().unwrap().to_string();
    assert!(error.contains("expected a size such as 64K"), "{error}");
}

#[test]
fn a_wrong_answer_has_its_own_error() {
    let error = check("the end", 1, 2).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("expected 0x0000000000000001, found 0x0000000000000002"), "{error}");
}

#[test]
fn the_catalogue_names_every_workload_once() {
    let names: Vec<String> = catalogue().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.join(" "), NAMES);
    assert!(catalogue().iter().all(|(_, about)| about.len() > 20));
}
