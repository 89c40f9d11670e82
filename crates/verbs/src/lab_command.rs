//! Subcommands of a verb that labs add ([`LabCommand`]).

use std::fmt;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// A subcommand that a lab adds to a verb; `T` is its result.
pub struct LabCommand<T> {
    command: Command,
    run: Box<dyn Fn(&ArgMatches) -> T + Send + Sync>,
}

impl<T> LabCommand<T> {
    /// The subcommand `name` with the arguments `A`.
    pub fn new<A: Args + 'static>(name: &'static str, about: &'static str, run: fn(&A) -> T) -> LabCommand<T>
    where
        T: 'static,
    {
        let run = move |matches: &ArgMatches| match A::from_arg_matches(matches) {
            Ok(arguments) => run(&arguments),
            Err(error) => error.exit(),
        };
        LabCommand { command: A::augment_args(Command::new(name)).about(about), run: Box::new(run) }
    }

    /// The subcommand's name, arguments and help.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Runs the subcommand.
    pub fn run(&self, matches: &ArgMatches) -> T {
        (self.run)(matches)
    }
}

impl<T> fmt::Debug for LabCommand<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LabCommand({})", self.command.get_name())
    }
}

/// A verb to which labs add subcommands.
pub(crate) trait Extensible: Subcommand {
    /// The result of a subcommand.
    type Output: 'static;

    /// The subcommands of all labs for this verb.
    fn of_labs() -> Vec<&'static LabCommand<Self::Output>>;
}

/// The subcommands of a verb: its own, then those of labs.
#[derive(Debug)]
pub(crate) enum WithLabs<V: Extensible> {
    Own(V),
    OfLab(&'static LabCommand<V::Output>, ArgMatches),
}

fn find<V: Extensible>(name: &str) -> Option<&'static LabCommand<V::Output>> {
    V::of_labs().into_iter().find(|known| known.command.get_name() == name)
}

impl<V: Extensible> FromArgMatches for WithLabs<V> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        match matches.subcommand().and_then(|(name, arguments)| Some((find::<V>(name)?, arguments))) {
            Some((command, arguments)) => Ok(WithLabs::OfLab(command, arguments.clone())),
            None => V::from_arg_matches(matches).map(WithLabs::Own),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<V: Extensible> Subcommand for WithLabs<V> {
    fn augment_subcommands(command: Command) -> Command {
        let own = V::augment_subcommands(command);
        V::of_labs().into_iter().fold(own, |command, lab| command.subcommand(lab.command.clone()))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find::<V>(name).is_some() || V::has_subcommand(name)
    }
}
