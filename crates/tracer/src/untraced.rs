//! [`run_untraced`] runs programs that need no tracer.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use policy::Exit;

use super::launch::{self, Launch, LaunchError};
use crate::environment;
use crate::signals;
use crate::user::{self, User};

/// Replaces pagelab itself by a program that needs no tracer; the function then returns only an error. A program of another
/// user runs as a child instead, and the function waits for its end. Call this after [`signals::catch`].
pub fn run_untraced(launch: &Launch) -> Result<Exit, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(OsString::new()))?)?;
    if launch.user.as_ref().is_some_and(User::is_another) {
        run_as_child(launch, &path)
    } else {
        Err(replace_self(launch, &path))
    }
}

fn run_as_child(launch: &Launch, path: &Path) -> Result<Exit, LaunchError> {
    let mut started = launch::start_untraced(launch)?;
    signals::forward_in_session(started.tid, started.session);
    started.release()?;
    let exit = started.wait();
    signals::stop_forwarding();
    started.finish();
    started.failure(path).map_or(Ok(exit?), Err)
}

fn replace_self(launch: &Launch, path: &Path) -> LaunchError {
    let thp = if launch.disable_thp { launch::disable_thp_permanently() } else { Ok(()) };
    let no_new_privileges = user::must_not_gain_privileges(launch.user.as_ref());
    let switched = thp.and_then(|()| if no_new_privileges { launch::set_no_new_privileges() } else { Ok(()) });
    if let Err(error) = switched {
        return error;
    }
    let mut command = Command::new(path);
    command.arg0(&launch.command[0]).args(&launch.command[1..]);
    command.env_clear().envs(environment::of(launch.user.as_ref(), &launch.variables));
    if let Some(user) = &launch.user {
        let groups: Vec<_> = user.groups.iter().map(|group| nix::unistd::Gid::from_raw(*group)).collect();
        if let Err(error) = nix::unistd::setgroups(&groups) {
            return launch::step_failed(4, error.into());
        }
        command.uid(user.uid).gid(user.gid);
    }
    launch::exec_failed(path, command.exec())
}
