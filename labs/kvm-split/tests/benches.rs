//! Runs the benchmark with little memory.

#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../benches/split.rs"]
mod split;

#[test]
fn splits_are_measured() {
    split::run(&["--bytes".into(), (64 << 20).to_string(), "--rounds".into(), "1".into()]).unwrap();
}

#[test]
fn refuses_unknown_arguments() {
    for words in [&["--rounds"][..], &["--bytes", "many"], &["--bytes", "5"], &["--speed", "1"]] {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        assert!(split::run(&words).is_err(), "{words:?}");
    }
}
