//! Tests that the program does not notice the tracer.

use super::*;

fn assert_same_answers(program: &Path, arguments: &[&str]) {
    let command: Vec<&str> = [&[text(program)], arguments].concat();
    let expected = bare(&command);
    for policy in POLICIES {
        let outcome = under(policy, &command);
        assert_eq!((outcome.output.as_str(), outcome.ended.exit), (expected.as_str(), Exit::Code(0)), "{policy}");
        assert_eq!(outcome.seen.without_memory, 0, "{policy}: each address space was inspected before it was freed");
    }
}

#[test]
fn a_dynamic_program_gives_its_answer() {
    let _alone = alone();
    let Some(program) = c("mix") else { return };
    assert_same_answers(&program, &[]);
}

#[test]
fn static_programs_give_their_answer() {
    let _alone = alone();
    for (compiler, options) in [("gcc", &["-static"][..]), ("gcc", &["-static-pie"]), ("musl-gcc", &["-static"])] {
        match compile(compiler, "mix", options) {
            Some(program) => {
                let expected = bare(&[text(&program)]);
                for policy in ["base", "thp", "thp+no-guards"] {
                    assert_eq!(under(policy, &[text(&program)]).output, expected, "{compiler} {options:?} {policy}");
                }
            }
            None => skip(format!("{compiler} {options:?}")),
        }
    }
}

/// In a statically linked program the rseq area is on the heap; the kernel writes to that of a forked copy before the copy runs.
#[test]
fn forked_copies_survive_an_empty_pool() {
    let _alone = alone();
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    // The pool has one page for the heap and none for a copy; or pages for one copy; or more pages than needed.
    for pages in ["1", "6", "40"] {
        if !settings.set(&pool_file(), pages) {
            return skip(format!("{pages} hugetlb pages of 2M"));
        }
        for options in [&[][..], &["-static"], &["-static-pie"]] {
            let Some(program) = compile("gcc", "forked_copies", options) else {
                skip(format!("gcc {options:?}"));
                continue;
            };
            let outcome = under("hugetlb-2m", &[text(&program)]);
            assert_eq!(
                outcome.output, "700 700 700 700 700 1",
                "{options:?}, pool of {pages}: {:?} {:?}",
                outcome.ended.exit, outcome.ended.causes
            );
        }
    }
}

#[test]
fn a_go_program_gives_its_answer() {
    let _alone = alone();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/goroutines");
    let program = FOLDER.join("goroutines");
    let go = if Path::new("/usr/local/go/bin/go").exists() { "/usr/local/go/bin/go" } else { "go" };
    let built = Command::new(go).args(["build", "-o"]).arg(&program).current_dir(source).status();
    if !built.is_ok_and(|status| status.success()) {
        return skip("go");
    }
    let expected = bare(&[text(&program)]);
    for policy in ["base", "thp", "default+no-huge", "thp+no-guards"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert_eq!(outcome.seen.without_memory, 0, "{policy}: the memory was inspected at the end of the last thread");
    }
}

#[test]
fn tasks_may_be_created_and_end_in_every_way() {
    let _alone = alone();
    let Some(program) = c("tree") else { return };
    let expected = "tree: 15 15 15 15 15 15 15 of 15";
    for policy in ["default", "thp", "thp+no-guards", "hugetlb-2m"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!((outcome.output.as_str(), outcome.ended.killed_leftovers), (expected, 0), "{policy}");
    }
}

#[test]
fn shells_compilers_and_interpreters_give_their_answers() {
    let _alone = alone();
    let make = "set -e; d=$(mktemp -d); cd $d; trap 'rm -rf $d' EXIT; \
        for i in 1 2 3 4; do echo \"int f$i(int x){return x*$i;}\" > f$i.c; done; \
        printf 'all: f1.o f2.o f3.o f4.o\\n\\tcat $^ | cksum\\n%%.o: %%.c\\n\\tgcc -O2 -c $<\\n' > Makefile; make -s -j2";
    let lines = [
        ("sh", "seq 1 20000 | sort -r | head -n 3 | tr '\\n' ' '; (exit 3); echo $?"),
        ("make", make),
        (
            "python3",
            "python3 -c 'import hashlib; d=bytes(range(256))*80000; print(hashlib.sha1(d).hexdigest(), len([i for i in range(10**6)]))'",
        ),
        ("xz", "seq 1 300000 | xz -T2 -c | xz -dc | cksum"),
    ];
    for (tool, line) in lines {
        if bare(&["sh", "-c", &format!("command -v {tool} && {tool} --version")]).is_empty() && tool != "sh" {
            skip(tool);
            continue;
        }
        let expected = bare(&["sh", "-c", line]);
        for policy in ["base", "thp", "hugetlb-2m"] {
            assert_eq!(under(policy, &["sh", "-c", line]).output, expected, "{tool} {policy}");
        }
    }
}

/// Runs `torture` over seeds. Panics with the seed that failed.
fn torture(policies: &[&str], seeds: std::ops::Range<u32>, closed: bool) {
    let Some(program) = c("torture") else { return };
    for seed in seeds {
        for policy in policies {
            let (seed, steps) = (seed.to_string(), "1000");
            let command: Vec<&str> =
                [text(&program), &seed, steps].into_iter().chain(closed.then_some("closed")).collect();
            let outcome = under(policy, &command);
            assert_eq!(outcome.output, format!("torture {seed} {steps} kept its memory"), "{policy}");
        }
    }
}

#[test]
fn random_memory_calls_are_not_noticed() {
    let _alone = alone();
    torture(&["default", "thp", "thp+prefault", "default+no-huge"], 1..3, true);
    torture(&["thp+no-guards"], 1..3, false);
}

#[test]
fn random_memory_calls_on_full_scarce_and_empty_pools_are_not_noticed() {
    let _alone = alone();
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    for pages in ["0", "12", "40", "300"] {
        if !settings.set(&pool_file(), pages) {
            return skip(format!("{pages} hugetlb pages of 2M"));
        }
        torture(&["hugetlb-2m", "hugetlb-2m+no-guards"], 10..13, false);
    }
}

#[test]
fn hugetlb_reports_memory_that_the_pool_could_not_back() {
    let _alone = alone();
    let (Some(program), Some(thp_settings)) = (c("mix"), c("thp_settings")) else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    let expected = bare(&[text(&program)]);
    for pages in [0, 20, 400u64] {
        if !settings.set(&pool_file(), &pages.to_string()) {
            return skip(format!("{pages} hugetlb pages of 2M"));
        }
        let outcome = under("hugetlb-2m", &[text(&program)]);
        assert_eq!(outcome.output, expected, "pool of {pages}");
        let backed = outcome.seen.bytes("Private_Hugetlb") + outcome.seen.bytes("Shared_Hugetlb");
        assert_eq!(backed > 0, pages > 0, "pool of {pages}: {backed} bytes");
        assert_eq!(outcome.has(&Cause::PoolExhausted { size: PageSize::M2 }), pages < 400, "pool of {pages}");
    }
    let expected = [("huge", "huge: 0 0, resident 1"), ("piecewise", "piecewise: 0 0, resident 1")];
    for (how, expected) in expected {
        let outcome = under("hugetlb-2m", &[text(&thp_settings), how]);
        let backed = outcome.seen.bytes("Private_Hugetlb");
        assert!(outcome.output == expected && backed >= 14 << 20, "{} {backed}", outcome.output);
    }
}

#[test]
fn calls_for_base_pages_are_answered_as_without_a_policy() {
    let _alone = alone();
    let (Some(parts), Some(watched)) = (c("parts"), c("watched")) else { return };
    let expected = [bare(&[text(&parts)]), bare(&[text(&watched)])];
    if expected[1].starts_with("no userfaultfd") {
        skip("userfaultfd");
    }
    let same = |outcome: &Outcome, expected: &str, under: &str| {
        let differs = outcome.output.lines().zip(expected.lines()).find(|(line, expected)| line != expected);
        assert!(differs.is_none() && outcome.output == expected, "{under}: {differs:?}");
    };
    for policy in ["default", "base", "thp", "default+no-huge"] {
        same(&under(policy, &[text(&parts)]), &expected[0], policy);
    }
    same(&under("base", &[text(&watched)]), &expected[1], "base");
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    for pages in ["60", "0"] {
        if !settings.set(&pool_file(), pages) {
            return skip(format!("{pages} hugetlb pages of 2M"));
        }
        for (program, expected) in [&parts, &watched].into_iter().zip(&expected) {
            let outcome = under("hugetlb-2m", &[text(program)]);
            same(&outcome, expected, &format!("pool of {pages}"));
            assert_eq!(outcome.has(&Cause::Demoted), pages != "0" && !expected.starts_with("no userfaultfd"));
            assert!(!outcome.has(&Cause::NotGivenBack));
        }
    }
}

#[test]
fn reports_pool_pages_that_cannot_be_given_back() {
    let _alone = alone();
    let Some(program) = c("watched") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&pool_file(), "20") {
        return skip("20 hugetlb pages of 2M");
    }
    // The program limits its address space first, so there is no room for the base pages.
    let command = [text(&program), "limited"];
    assert_eq!(bare(&command), "limited: error 0");
    let outcome = under("hugetlb-2m", &command);
    assert_eq!(outcome.output, format!("limited: error {}", libc::ENOMEM));
    assert!(outcome.has(&Cause::NotGivenBack));
}

#[test]
fn folios_of_64k_come_from_sysfs_and_advice() {
    let _alone = alone();
    let Some(program) = c("mix") else { return };
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    if !settings.set(&format!("{THP}/hugepages-64kB/enabled"), "madvise") {
        return skip("folios of 64K");
    }
    settings.set(&format!("{THP}/hugepages-2048kB/enabled"), "never");
    let allocated = || fs::read_to_string(format!("{THP}/hugepages-64kB/stats/anon_fault_alloc")).unwrap_or_default();
    let before = allocated();
    let expected = bare(&[text(&program)]);
    assert_eq!(under("mthp-64k", &[text(&program)]).output, expected);
    assert_ne!(allocated(), before, "folios of 64K were allocated");
}
