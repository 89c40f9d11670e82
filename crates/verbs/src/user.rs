//! The user and the environment variables of the measured command.

use std::ffi::OsString;

use tracer::User;
use tracer::environment::Variables;

use crate::failure::Failure;
use crate::words::Variable;

/// The user named with --user, or under sudo the user who called sudo. Only root can switch to another user.
pub fn to_run_as(named: Option<&str>) -> Result<Option<User>, Failure> {
    let is_root = tracer::user::effective_id() == 0;
    match named {
        Some(_) if !is_root => Err(Failure::Input("--user: only root can run a command as another user".into())),
        Some(name) => tracer::user::by_name(name).map(Some).map_err(Failure::input),
        None if is_root => tracer::user::of_sudo().map_err(Failure::input),
        None => Ok(None),
    }
}

/// The environment variables of `--env`. A name without a value takes the value in pagelab's own environment.
pub fn variables(options: &[Variable]) -> Result<Variables, Failure> {
    options.iter().map(|option| option.resolve(std::env::var_os(&option.name))).collect()
}

impl Variable {
    fn resolve(&self, own: Option<OsString>) -> Result<(OsString, OsString), Failure> {
        let name = &self.name;
        let unset = || {
            Failure::Input(format!(
                "--env {name}: pagelab's environment has no such variable; give a value, {name}=VALUE"
            ))
        };
        let value = self.value.clone().or(own).ok_or_else(unset)?;
        Ok((name.into(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_value_takes_pagelabs_value() {
        let named = Variable { name: "A".into(), value: None };
        assert_eq!(named.resolve(Some("1".into())).unwrap(), ("A".into(), "1".into()));
        assert!(named.resolve(None).unwrap_err().to_string().contains("A=VALUE"));
        let valued = Variable { name: "A".into(), value: Some("".into()) };
        assert_eq!(valued.resolve(Some("1".into())).unwrap(), ("A".into(), "".into()));
    }
}
