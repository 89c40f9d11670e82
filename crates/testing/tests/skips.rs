//! Tests that a skipped test writes a line to the file of skips.

use std::process::Command;

use testing::SKIPS;

#[test]
fn a_skip_is_a_line_of_the_file_that_a_variable_names() {
    let file = std::env::temp_dir().join(format!("skips-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    let skip = |set: bool| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "needs_much", "--nocapture"])
            .env_remove("NEXTEST_BINARY_ID")
            .env_remove(SKIPS);
        command.envs(set.then_some((SKIPS, &file)));
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(skip(false).contains("skipped: needs two\nlines"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    assert!(skip(true).contains("skipped: needs two\nlines"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "skips\tneeds_much\ttwo lines\n");
    std::fs::remove_file(&file).unwrap();
}

#[test]
#[ignore = "it is run by the other"]
fn needs_much() {
    testing::skip("two\nlines");
}
