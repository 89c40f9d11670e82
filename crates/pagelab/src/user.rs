//! Whom the measured command runs as.

use metal::tracer::User;

use crate::failure::Failure;

/// The user named with --user, or under sudo the one who called it. Only root can become another user.
pub fn to_run_as(named: Option<&str>) -> Result<Option<User>, Failure> {
    let is_root = metal::user::effective_id() == 0;
    match named {
        Some(_) if !is_root => Err(Failure::Input("--user: only root can run a command as another user".into())),
        Some(name) => metal::user::by_name(name).map(Some).map_err(Failure::Input),
        None if is_root => metal::user::of_sudo().map_err(Failure::Input),
        None => Ok(None),
    }
}
