//! `--primary`: the metric that decides a comparison. The user names it, or pagelab chooses it by the load of other programs.

use study::comparison::{Contention, Design, OwnSession};
use study::metric::{AUTO, SHORT_NAMES, names};

use super::arguments::Compare;
use crate::failure::{Failure, report};

/// How the primary metric, which decides the comparison, is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primary {
    /// The metric that the user named; if the user named none, wall time without a suggestion to use CPU time (`--repeat-inside`
    /// rules that out).
    Fixed,
    /// Wall time of a client, which CPU time of its server cannot replace. The load of other programs is only named.
    OfClient,
    /// Wall time, by default. If CPU time is steadier, a message suggests it.
    Suggested,
    /// CPU time if it is steadier, else wall time.
    Auto,
}

impl Primary {
    /// How these arguments choose the metric.
    ///
    /// # Errors
    /// `--primary auto` with `--arm-of-boot`, or with `--server`, where CPU time cannot replace wall time.
    pub fn of(arguments: &Compare) -> Result<Primary, Failure> {
        let Compare { stopping, measuring, .. } = arguments;
        if arguments.arm_of_boot {
            refuse_auto(arguments, "with --arm-of-boot")?;
        }
        let is_repeated = measuring.repeat_inside.is_some();
        match stopping.primary.as_deref() {
            Some(AUTO) if measuring.server.is_some() => Err(Failure::Input(
                "--primary auto: with --server the wall time is the client's and the CPU time the server's, so neither \
                 replaces the other; name one (wall, cpu)"
                    .into(),
            )),
            Some(AUTO) => Ok(Primary::Auto),
            None if is_repeated || arguments.arm_of_boot => Ok(Primary::Fixed),
            None if measuring.server.is_some() => Ok(Primary::OfClient),
            None => Ok(Primary::Suggested),
            _ => Ok(Primary::Fixed),
        }
    }

    /// Whether the load of other programs must be observed. A mere suggestion does not need it if the command runs in a session
    /// of top weight: its precedence over other programs keeps wall time steady.
    pub fn depends_on_load(self, design: &Design) -> bool {
        let has_precedence = design.own_session == Some(OwnSession::TopWeight);
        self == Primary::Auto || (self != Primary::Fixed && !has_precedence)
    }

    /// Records the load of other programs in the design, sets the primary metric for `auto`, and reports the choice or
    /// suggestion.
    pub fn choose(self, design: &mut Design, load: Contention) {
        let load = Contention { decides: self == Primary::Auto, ..load };
        if load.decides {
            load.steadier_metric().clone_into(&mut design.primary);
        }
        if let Some(advice) = load.advice(self == Primary::OfClient) {
            report(format_args!("pagelab: {advice}{}", own_session_hint(design, &load)));
        }
        design.contention = Some(load);
    }
}

/// A clause for the advice that suggests `--own-session`; empty where CPU time decides, or if that option was given.
fn own_session_hint(design: &Design, load: &Contention) -> &'static str {
    if load.is_high() && !load.decides && design.own_session.is_none() {
        "; --own-session (as root) gives the command precedence over programs of other sessions"
    } else {
        ""
    }
}

/// Refuses `--primary auto` for arguments under which several comparisons must have the same metric. `place` names these
/// arguments in the message.
///
/// # Errors
/// `--primary auto` was given.
pub fn refuse_auto(arguments: &Compare, place: &str) -> Result<(), Failure> {
    if arguments.stopping.primary.as_deref() != Some(AUTO) {
        return Ok(());
    }
    let why = "the metric would depend on the load of each of several runs that are compared; name it (wall, cpu)";
    Err(Failure::Input(format!("--primary auto {place}: {why}")))
}

/// The full name of the primary metric, from the argument of `--primary`. Without an argument, and for `auto` until
/// [`Primary::choose`], this is the name of wall time.
///
/// # Errors
/// The design has no such metric.
pub fn metric(name: Option<&str>, design: &Design) -> Result<String, Failure> {
    let name = name.filter(|name| *name != AUTO).unwrap_or(names::WALL_S);
    let full = SHORT_NAMES.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full);
    if design.metrics.iter().any(|metric| metric.name == full) {
        return Ok(full.to_string());
    }
    let short = SHORT_NAMES.map(|(short, _)| short).join(", ");
    let known: Vec<&str> = design.metrics.iter().map(|metric| metric.name.as_str()).collect();
    Err(Failure::Input(format!(
        "--primary: there is no metric {name:?}; there are {short}, {AUTO}, {}",
        known.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::parsed;

    fn of(words: &[&str]) -> Result<Primary, Failure> {
        Primary::of(&parsed([words, &["--", "true"]].concat()).unwrap())
    }

    #[test]
    fn cpu_time_is_suggested_only_where_it_can_replace_wall_time() {
        assert_eq!(of(&[]).unwrap(), Primary::Suggested);
        assert_eq!(of(&["--metric", "a_s=([0-9])"]).unwrap(), Primary::Suggested);
        assert_eq!(of(&["--primary", "auto"]).unwrap(), Primary::Auto);
        assert_eq!(of(&["--primary", "auto", "--metric", "a_s=([0-9])"]).unwrap(), Primary::Auto);
        let server = &["--server", "a", "--ready", "b"];
        for fixed in [&["--primary", "wall"][..], &[&["--primary", "wall"][..], server].concat()] {
            assert_eq!(of(fixed).unwrap(), Primary::Fixed, "{fixed:?}");
        }
        assert_eq!(of(server).unwrap(), Primary::OfClient);
        for refused in [&["--server", "a", "--ready", "b"][..], &["--arm-of-boot"]] {
            assert!(of(&[&["--primary", "auto"], refused].concat()).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn short_names_and_names_of_the_design_are_metrics() {
        let design = Design::new(Vec::new(), 0, 1);
        let found = |name| metric(Some(name), &design);
        let short = ["wall", "cpu", "user", "system", "auto", "minor_faults"].map(|name| found(name).unwrap());
        assert_eq!(short, ["wall_s", "cpu_s", "user_s", "system_s", "wall_s", "minor_faults"]);
        assert_eq!(metric(None, &design).unwrap(), "wall_s");
        assert!(found("apples").unwrap_err().to_string().contains("there are wall, cpu, user, system, auto, wall_s"));
    }
}
