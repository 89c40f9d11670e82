//! The command line of `cargo xtask truth`.

use std::path::PathBuf;

use super::POLICIES;

pub const USAGE: &str = "usage: cargo xtask truth [NAME]... [-p POLICY]... [--again] [--built DIR]
       cargo xtask truth --limits [NAME]... [--built DIR]
       cargo xtask truth --random [--seed S] [--minutes N | --scripts N | --script FILE] [-p POLICY]... [--built DIR]";

/// The parsed command line.
#[derive(Debug, PartialEq)]
pub struct Arguments {
    pub job: Job,
    /// The selected policies, in the order of the table.
    pub policies: Vec<&'static str>,
    /// The directory of pagelab and its recorder. If `None`, both are built for release.
    pub built: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub enum Job {
    /// Make the table, for these programs or for all. Unless `again` is true, a row of the same kernel and commit is not measured
    /// again.
    Table { names: Vec<String>, again: bool },
    /// Compare the memory limits of these programs or of all.
    Limits { names: Vec<String> },
    /// Run random programs.
    Random(RandomScripts),
}

/// Selects random programs.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomScripts {
    /// The seed of the first program. The programs after it use the following seeds.
    pub seed: u64,
    pub until: Until,
}

/// The condition that ends the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Until {
    /// After this time.
    Minutes(f64),
    /// After this number of programs.
    Scripts(u64),
    /// After this one script, which is not random.
    Given(PathBuf),
}

impl Arguments {
    /// Parses the words after `truth`.
    pub fn parse(words: &[String]) -> Result<Arguments, String> {
        let (mut names, mut again, mut is_random, mut of_limits, mut policies, mut built) =
            (Vec::new(), false, false, false, Vec::new(), None);
        let (mut seed, mut until) = (None, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--again" => again = true,
                "--random" => is_random = true,
                "--limits" => of_limits = true,
                "--built" => built = Some(PathBuf::from(value()?)),
                "-p" => policies.extend(value()?.split(',').map(str::to_owned)),
                "--seed" => seed = Some(number(word, value()?)?),
                "--minutes" => {
                    let minutes: f64 = number(word, value()?)?;
                    if !(0.0..=1e6).contains(&minutes) {
                        return Err(format!(
                            "--minutes: expected a number from 0 to 1000000, found {minutes}\n{USAGE}"
                        ));
                    }
                    until = Some(Until::Minutes(minutes));
                }
                "--scripts" => until = Some(Until::Scripts(number(word, value()?)?)),
                "--script" => until = Some(Until::Given(PathBuf::from(value()?))),
                option if option.starts_with('-') => return Err(format!("unknown option {option}\n{USAGE}")),
                name => names.push(name.to_owned()),
            }
        }
        let job = match is_random {
            false if seed.is_some() || until.is_some() => {
                return Err(format!("--seed, --minutes, --scripts and --script apply only to --random\n{USAGE}"));
            }
            false if of_limits && (again || !policies.is_empty()) => {
                return Err(format!("--limits takes only names of programs and --built\n{USAGE}"));
            }
            false if of_limits => Job::Limits { names },
            false => Job::Table { names, again },
            true if of_limits => return Err(format!("--limits and --random exclude each other\n{USAGE}")),
            true if !names.is_empty() || again => {
                return Err(format!("--random takes no programs of the table\n{USAGE}"));
            }
            true => {
                Job::Random(RandomScripts { seed: seed.unwrap_or(1), until: until.unwrap_or(Until::Minutes(10.0)) })
            }
        };
        Ok(Arguments { job, policies: chosen(&policies)?, built })
    }
}

/// The policies with these names, or all of them.
fn chosen(names: &[String]) -> Result<Vec<&'static str>, String> {
    if let Some(unknown) = names.iter().find(|name| !POLICIES.contains(&name.as_str())) {
        return Err(format!("expected one of {}, found {unknown:?}", POLICIES.join(", ")));
    }
    Ok(POLICIES.into_iter().filter(|policy| names.is_empty() || names.iter().any(|name| name == policy)).collect())
}

fn number<N: std::str::FromStr>(option: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{option}: expected a number, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        Arguments::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn programs_and_policies_are_chosen() {
        let arguments = parsed("sqlite -p thp,base --again").unwrap();
        assert_eq!(arguments.job, Job::Table { names: vec!["sqlite".into()], again: true });
        assert_eq!(arguments.policies, ["base", "thp"]);
        assert_eq!(parsed("").unwrap().policies, POLICIES);
    }

    #[test]
    fn random_programs_have_a_seed_and_an_end() {
        let random = |line| parsed(line).map(|arguments| arguments.job);
        assert_eq!(
            random("--random --seed 7 --minutes 0.5"),
            Ok(Job::Random(RandomScripts { seed: 7, until: Until::Minutes(0.5) }))
        );
        assert_eq!(
            random("--random --scripts 20"),
            Ok(Job::Random(RandomScripts { seed: 1, until: Until::Scripts(20) }))
        );
    }

    #[test]
    fn names_the_wrong_argument() {
        for (line, expected) in [
            ("-p thq", "found \"thq\""),
            ("--minutes 3", "apply only to --random"),
            ("--random sqlite", "no programs of the table"),
            ("--random --seed x", "--seed: expected a number"),
            ("--seed", "needs a value"),
            ("--nothing", "unknown option --nothing"),
        ] {
            let message = parsed(line).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
