//! The command that repeats a failed test.

/// The prefix of the line in which a random test prints its seed (`testing::seed`).
const SEED: &str = "seed ";
/// The variable that sets the seed of a test (`testing::SEED`).
const SEED_VARIABLE: &str = "PAGELAB_TEST_SEED";
/// The suffix by which the name of a crate's documentation tests is marked (`super::libtest`).
const DOCUMENTATION: &str = " (documentation)";

/// The command for a test, which is identified by its program and its name, separated by a blank; `None` if there is no such
/// command.
pub fn command(test: &str, output: Option<&str>) -> Option<String> {
    if let Some((package, name)) = test.split_once(DOCUMENTATION) {
        let path = name.trim().split(" - ").next()?;
        return Some(format!("cargo test -p {package} --doc -- {}", quoted(path)));
    }
    let (program, name) = test.split_once(' ')?;
    match program {
        "guest" => name.split_once(' ').map(|(guest, check)| {
            let check = check.split_whitespace().next().unwrap_or_default();
            format!("cargo xtask guests {guest} --small --only {check}")
        }),
        _ => {
            let seed = output.and_then(seed).map(|seed| format!("{SEED_VARIABLE}={seed} ")).unwrap_or_default();
            Some(format!("{seed}cargo test {} -- --exact {}", target(program), quoted(name)))
        }
    }
}

/// The last seed that a test printed.
pub fn seed(output: &str) -> Option<u64> {
    output.lines().rev().find_map(|line| line.strip_prefix(SEED)?.split_once(':')?.0.parse().ok())
}

/// cargo's options that select a test program, from nextest's name for it: `study`, `study::runner`, `pagelab::bin/pagelab`.
fn target(program: &str) -> String {
    match program.split_once("::") {
        None => format!("-p {program} --lib"),
        Some((package, kind)) => match kind.split_once('/') {
            Some((kind, name)) => format!("-p {package} --{kind} {name}"),
            None => format!("-p {package} --test {kind}"),
        },
    }
}

/// A word, quoted for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte);
    if word.bytes().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_test_has_its_command() {
        for (test, expected) in [
            ("study a::one", "cargo test -p study --lib -- --exact a::one"),
            ("pagelab::ends x", "cargo test -p pagelab --test ends -- --exact x"),
            ("pagelab::bin/pagelab y", "cargo test -p pagelab --bin pagelab -- --exact y"),
            (
                "study (documentation) crates/study/src/lib.rs - (line 3)",
                "cargo test -p study --doc -- crates/study/src/lib.rs",
            ),
            ("guest arm64-6.12 kvm", "cargo xtask guests arm64-6.12 --small --only kvm"),
            ("study of <T>", "cargo test -p study --lib -- --exact 'of <T>'"),
        ] {
            assert_eq!(command(test, None).as_deref(), Some(expected));
        }
        assert_eq!(command("tidy", None), None);
    }

    #[test]
    fn the_seed_of_a_failure_is_given_again() {
        let output = "seed 5: PAGELAB_TEST_SEED=5 repeats it\nseed 7: PAGELAB_TEST_SEED=7 repeats it\nseeds are sown\n";
        let command = command("study one", Some(output)).unwrap();
        assert_eq!(command, "PAGELAB_TEST_SEED=7 cargo test -p study --lib -- --exact one");
    }
}
