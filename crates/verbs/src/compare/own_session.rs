//! `--own-session`: runs every trial in a new session. If that has an effect on this host, the session's autogroup gets
//! the top weight.

use std::io::ErrorKind;

use host::{Autogroups, Host};
use platform::Work;
use study::comparison::{Design, OwnSession};
use tracer::SessionWeight;

use crate::failure::{Failure, report};

/// The session that every run gets, if `--own-session` is given. If the scheduler does not prefer that session, reports why,
/// with the remedy.
///
/// # Errors
/// The host cannot be read, or no process can be made.
pub fn of(is_requested: bool, host: &Host) -> Result<Option<OwnSession>, Failure> {
    if !is_requested {
        return Ok(None);
    }
    let own = match host.autogroups().map_err(Failure::input)? {
        Autogroups::InForce if host.is_live() => weight()?,
        Autogroups::InForce => OwnSession::TopWeight,
        Autogroups::Absent => OwnSession::NoAutogroups,
        Autogroups::Off => OwnSession::AutogroupsOff,
        Autogroups::CpuGroup { group } => OwnSession::CpuGroup { group },
        Autogroups::HiddenGroup => OwnSession::HiddenGroup,
    };
    if let Some(remedy) = own.remedy() {
        let what = results::printable(&own.describe());
        report(format_args!("pagelab: --own-session: {what}; {remedy}"));
    }
    Ok(Some(own))
}

/// The weight that the kernel lets this process give to a session.
fn weight() -> Result<OwnSession, Failure> {
    match tracer::try_top_weight() {
        Ok(()) => Ok(OwnSession::TopWeight),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(OwnSession::UsualWeight),
        Err(error) => Err(Failure::Input(format!(
            "--own-session: expected to write /proc/self/autogroup in a new session, found: {error}; leave it out"
        ))),
    }
}

/// Gives each of the commands the session of the design. The weight is raised only if that has an effect.
pub fn give<'a>(design: &Design, works: impl IntoIterator<Item = &'a mut Work>) {
    let weight = design.own_session.as_ref().map(|own| match own {
        OwnSession::TopWeight => SessionWeight::Top,
        _ => SessionWeight::Usual,
    });
    works.into_iter().for_each(|work| work.own_session = weight);
}
