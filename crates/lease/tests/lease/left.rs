//! The state that an earlier lease left.

use super::*;

#[test]
fn the_next_lease_puts_back_what_the_last_one_left() {
    let tree = abandoned();
    let lease = tree.lease();
    assert!(matches!(lease.recovered(), Recovered::PutBack(report) if !report.has_failed()));
    assert!(tree.is_at_rest());
}

#[test]
fn a_journal_of_another_boot_is_void() {
    let tree = abandoned();
    tree.write("/proc/sys/kernel/random/boot_id", "another\n");
    assert_eq!(tree.paths().recover().unwrap(), Recovered::Rebooted { settings: 4 });
    assert_eq!(tree.value(ENABLED), "madvise", "nothing is written");
    assert!(!tree.journal().exists());
}

#[test]
fn a_setting_that_cannot_be_put_back_keeps_its_journal() {
    let tree = abandoned();
    fs::rename(tree.file(SCAN), tree.root().join("aside")).unwrap();
    let error = tree.paths().acquire(LIMIT, |_, _| true).unwrap_err();
    assert!(matches!(&error, LeaseError::Unrestored { .. }) && error.to_string().contains("echo 4096 >"), "{error}");
    assert!(tree.journal().exists());
    assert_eq!(tree.value(ENABLED), "never", "the others are put back all the same");
    fs::rename(tree.root().join("aside"), tree.file(SCAN)).unwrap();
    assert!(matches!(tree.paths().recover().unwrap(), Recovered::PutBack(report) if !report.has_failed()));
    assert!(tree.is_at_rest() && !tree.journal().exists());
}

#[test]
fn a_corrupt_journal_is_neither_ignored_nor_removed() {
    let tree = abandoned();
    let text = fs::read_to_string(tree.journal()).unwrap();
    for spoiled in [
        text.replace("\"before\"", "\"befor\""),
        text.replace(SCAN, "/etc/passwd"),
        text.replace(SCAN, "/sys/kernel/mm/../../../etc/passwd"),
        "\u{0}\u{0}\n".to_string(),
    ] {
        fs::write(tree.journal(), &spoiled).unwrap();
        for error in [tree.paths().recover().unwrap_err(), tree.paths().acquire(LIMIT, |_, _| true).unwrap_err()] {
            let message = error.to_string();
            assert!(matches!(error, LeaseError::JournalCorrupt { .. }) && message.contains("by hand"), "{message}");
        }
        assert!(tree.journal().exists());
        assert_eq!(tree.value(ENABLED), "madvise", "nothing is put back by half a journal");
    }
}
