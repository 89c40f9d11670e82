//! Runs the benchmarks with little memory. What they compare must be equal.

#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../benches/peers/main.rs"]
mod peers;

#[test]
fn all_contenders_map_the_same() {
    peers::run(&["--bytes".into(), "4M".into(), "--rounds".into(), "1".into()]).unwrap();
}

#[test]
fn refuses_unknown_arguments() {
    for words in [&["--rounds"][..], &["--bytes", "many"], &["--bytes", "5"], &["--speed", "1"]] {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        assert!(peers::run(&words).is_err(), "{words:?}");
    }
}
