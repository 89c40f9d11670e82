//! What `cargo xtask truth` is asked for.

use std::path::PathBuf;

use super::POLICIES;

/// How it is called.
pub const USAGE: &str = "usage: cargo xtask truth [NAME]... [-p POLICY]... [--again] [--built DIR]
       cargo xtask truth --random [--seed S] [--minutes N | --scripts N | --script FILE] [-p POLICY]... [--built DIR]";

/// What is asked for.
#[derive(Debug, PartialEq)]
pub struct Arguments {
    /// What is to be done.
    pub job: Job,
    /// Of the table's policies those that are wanted, in its order.
    pub policies: Vec<&'static str>,
    /// Where pagelab and its recorder are; they are built for release without it.
    pub built: Option<PathBuf>,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Job {
    /// The table, of these programs or of all; rows of the same kernel and commit are not measured again, but for `again`.
    Table { names: Vec<String>, again: bool },
    /// Random programs.
    Random(Wanted),
}

/// Which random programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The first one's; the others follow.
    pub seed: u64,
    /// How many.
    pub until: Until,
}

/// When to stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Until {
    /// After so long.
    Minutes(f64),
    /// After so many.
    Scripts(u64),
    /// After this one, which is no random one.
    Given(PathBuf),
}

impl Arguments {
    /// Reads the words behind `truth`.
    ///
    /// # Errors
    /// What is not understood, with the usage.
    pub fn parse(words: &[String]) -> Result<Arguments, String> {
        let (mut names, mut again, mut is_random, mut policies, mut built) =
            (Vec::new(), false, false, Vec::new(), None);
        let (mut seed, mut until) = (None, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--again" => again = true,
                "--random" => is_random = true,
                "--built" => built = Some(PathBuf::from(value()?)),
                "-p" => policies.extend(value()?.split(',').map(str::to_owned)),
                "--seed" => seed = Some(number(word, value()?)?),
                "--minutes" => until = Some(Until::Minutes(number(word, value()?)?)),
                "--scripts" => until = Some(Until::Scripts(number(word, value()?)?)),
                "--script" => until = Some(Until::Given(PathBuf::from(value()?))),
                option if option.starts_with('-') => return Err(format!("there is no option {option}\n{USAGE}")),
                name => names.push(name.to_owned()),
            }
        }
        let job = match is_random {
            false if seed.is_some() || until.is_some() => {
                return Err(format!("--seed, --minutes, --scripts and --script are of --random\n{USAGE}"));
            }
            false => Job::Table { names, again },
            true if !names.is_empty() || again => {
                return Err(format!("--random takes no programs of the table\n{USAGE}"));
            }
            true => Job::Random(Wanted { seed: seed.unwrap_or(1), until: until.unwrap_or(Until::Minutes(10.0)) }),
        };
        Ok(Arguments { job, policies: chosen(&policies)?, built })
    }
}

/// The policies of these names, or all.
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
            Ok(Job::Random(Wanted { seed: 7, until: Until::Minutes(0.5) }))
        );
        assert_eq!(random("--random --scripts 20"), Ok(Job::Random(Wanted { seed: 1, until: Until::Scripts(20) })));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (line, told) in [
            ("-p thq", "found \"thq\""),
            ("--minutes 3", "are of --random"),
            ("--random sqlite", "no programs of the table"),
            ("--random --seed x", "--seed: expected a number"),
            ("--seed", "needs a value"),
            ("--nothing", "no option --nothing"),
        ] {
            let message = parsed(line).unwrap_err();
            assert!(message.contains(told), "{line}: {message}");
        }
    }
}
