//! Hints for command lines that cannot be parsed because they use words of other tools.

use std::ffi::OsString;

use clap::error::ErrorKind;

/// Options of other tools, each with the option of `pagelab compare` to use instead.
const OPTIONS: [(&str, &str); 9] = [
    ("-t", "--max-time TIME (of the comparison) or --trial-time TIME (of each run)"),
    ("-m", "record the program, and simulate the trace: pagelab record, pagelab sim -m MACHINE"),
    ("--iterations", "--blocks N"),
    ("--min-runs", "--min-blocks N"),
    ("--repeat", "--blocks N"),
    ("--runs", "--blocks N"),
    ("--time", "--max-time TIME (of the comparison) or --trial-time TIME (of each run)"),
    ("--timeout", "--max-time TIME (of the comparison) or --trial-time TIME (of each run)"),
    ("--warmup", "none: the first block is run and not counted"),
];

/// What the user may have meant by a command line that clap refused with an error of this kind.
pub fn of(kind: ErrorKind, words: &[OsString]) -> Option<String> {
    let verb = words.get(1)?;
    match kind {
        ErrorKind::InvalidSubcommand if tracer::resolve(verb).is_ok() => {
            let program = results::printable(&verb.to_string_lossy());
            Some(format!("To measure {program} under several policies: pagelab compare -- {program}"))
        }
        ErrorKind::InvalidSubcommand if ["bench", "exec", "measure", "run", "test"].iter().any(|word| verb == word) => {
            Some("To measure a program under several policies: pagelab compare -- PROGRAM".to_owned())
        }
        ErrorKind::InvalidSubcommand if verb == "mail" => {
            Some("A mail about a stored comparison: pagelab show NUMBER --mail".to_owned())
        }
        ErrorKind::UnknownArgument if verb == "inspect" && words.iter().any(|word| word == "--pid" || word == "-p") => {
            Some("A process is named without an option: pagelab inspect PID".to_owned())
        }
        ErrorKind::ValueValidation if verb == "show" => {
            Some("The numbers of the stored comparisons: pagelab list comparisons".to_owned())
        }
        ErrorKind::MissingRequiredArgument if verb == "show" => {
            Some("The numbers of the stored comparisons: pagelab list comparisons".to_owned())
        }
        ErrorKind::InvalidSubcommand if verb == "help" => Some("The options of a verb: pagelab VERB --help".to_owned()),
        ErrorKind::UnknownArgument if two_values(words, &["--kernel"]).is_some() => {
            Some("For several kernels, repeat the option: --kernel IMAGE --kernel IMAGE".to_owned())
        }
        ErrorKind::UnknownArgument if two_values(words, &["-p", "--policy"]).is_some_and(are_policies) => {
            Some("Several policies are separated by commas: -p base,thp".to_owned())
        }
        ErrorKind::UnknownArgument if verb == "compare" => {
            let given = words.iter().filter_map(|word| word.to_str()?.split('=').next());
            let known = |word| OPTIONS.iter().find(|(other, _)| *other == word);
            given
                .take_while(|word| *word != "--")
                .find_map(known)
                .map(|(other, own)| format!("Instead of {other}: {own}"))
        }
        _ => None,
    }
}

/// The two words that follow one of these options, before the command.
fn two_values<'a>(words: &'a [OsString], options: &[&str]) -> Option<[&'a OsString; 2]> {
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let is_found = |three: &&[OsString]| {
        options.iter().any(|option| three[0] == *option) && !is_option(&three[1]) && !is_option(&three[2])
    };
    words[..end].windows(3).find(is_found).map(|three| [&three[1], &three[2]])
}

fn are_policies(words: [&OsString; 2]) -> bool {
    words.iter().all(|word| word.to_str().is_some_and(|word| word.parse::<policy::Policy>().is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_tools_have_hints() {
        let hint = |kind, line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            of(kind, &words).unwrap_or_default()
        };
        assert!(hint(ErrorKind::InvalidSubcommand, "pagelab run x").contains("pagelab compare -- PROGRAM"));
        assert!(hint(ErrorKind::InvalidSubcommand, "pagelab /bin/true").contains("pagelab compare -- /bin/true"));
        assert!(hint(ErrorKind::MissingRequiredArgument, "pagelab show").contains("pagelab list comparisons"));
        assert!(hint(ErrorKind::UnknownArgument, "pagelab compare --runs=3 -- x").ends_with("--blocks N"));
        assert!(hint(ErrorKind::InvalidSubcommand, "pagelab mail 1").ends_with("pagelab show NUMBER --mail"));
        assert!(hint(ErrorKind::UnknownArgument, "pagelab inspect --pid 1").ends_with("pagelab inspect PID"));
        assert!(hint(ErrorKind::ValueValidation, "pagelab show last").contains("pagelab list comparisons"));
        assert!(hint(ErrorKind::UnknownArgument, "pagelab compare --kernel a b -- x").contains("repeat the option"));
        assert!(hint(ErrorKind::UnknownArgument, "pagelab compare -p base thp -- x").contains("-p base,thp"));
        assert_eq!(hint(ErrorKind::UnknownArgument, "pagelab compare --odd -- ssh -p base thp"), "");
        assert_eq!(hint(ErrorKind::UnknownArgument, "pagelab inspect -q thp sort"), "");
        assert!(hint(ErrorKind::InvalidSubcommand, "pagelab help compare -h").ends_with("pagelab VERB --help"));
        assert_eq!(hint(ErrorKind::UnknownArgument, "pagelab compare --odd -- x --runs"), "");
    }
}
