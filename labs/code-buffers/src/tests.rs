use super::*;
use verbs::lab::Report;

/// Arguments with which the workload takes only milliseconds.
const SMOKE: [&str; 2] = [
    "jit-arena --bytes 300K --stride 64K --hotness 2",
    "jit-arena --bytes 300K --stride 64K --hot-share 0.1 --dual --advice none --rate 100M",
];

fn run_line(line: &str) -> Result<Report, WorkloadError> {
    let lab = lab();
    let name = line.split_whitespace().next().unwrap();
    let workload = lab.workloads.iter().find(|known| known.command().get_name() == name).unwrap();
    let matches = workload.command().clone().try_get_matches_from(line.split_whitespace());
    workload.run(&matches.unwrap_or_else(|error| panic!("{line}: {error}")))
}

fn answer(line: &str) -> String {
    run_line(line).unwrap_or_else(|error| panic!("{line}: {error}")).with_format(false, true).to_string()
}

#[test]
fn answers_depend_on_the_arguments_alone() {
    for line in SMOKE {
        assert_eq!(answer(line), answer(line));
        assert_ne!(answer(line), answer(&format!("{line} --seed 7")), "{line}");
    }
}

#[test]
fn invalid_arguments_are_refused_with_the_option_and_the_value() {
    for (line, option) in [
        ("jit-arena --bytes 0", "--bytes"),
        ("jit-arena --piece-bytes 10", "--piece-bytes"),
        ("jit-arena --piece-bytes 2M", "--piece-bytes"),
        ("jit-arena --stride 1000", "--stride"),
        ("jit-arena --stride 64K --piece-bytes 64K", "--stride"),
        ("jit-arena --hot-share 0", "--hot-share"),
        ("jit-arena --rate 0", "--rate"),
        ("jit-arena --bytes 4096T", "--bytes"),
        ("tcg-boot --smp 4 --max-cpus 2", "--max-cpus"),
        ("tcg-boot --memory 1M", "--memory"),
        ("tcg-boot --tb-size 1 --max-cpus 256", "--tb-size"),
    ] {
        let error = run_line(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
        assert!(error.to_string().starts_with(option), "{line}: {error}");
    }
}
