//! Makes the inputs of workloads. Each is made once, kept in the cache directory, and identified by the hash of its content.
//! The hash is part of the input's path, and so of every stored command line.
//!
//! If root runs pagelab, only root can change the cache directory itself, which contains inputs while they are being made,
//! and the reasons why inputs could not be made. An unprivileged user owns only one directory per input, with the finished
//! content and copies of it. In that directory, root follows no links and opens only regular files.

mod content;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use results::files;
use results::place::{self, Owner};
use serde_json::json;
use sha2::{Digest, Sha256};
use study_files::definition::{Input, Workload};
use tracer::User;
use tracer::signals::{self, Forward};

use super::partial;
use crate::failure::{Failure, report};
use crate::user;
use content::{hash, hexadecimal};

/// Root's cache directory: the users who run the programs can access it.
const ROOT_CACHE: &str = "/var/cache";
/// The placeholder for the hash of an input that has not been made.
const UNMADE: &str = "not-made-yet";
/// The suffix of the file with the reason why the last attempt to make an input failed.
const FAILURE_SUFFIX: &str = ".why-not-made";
/// The suffix of a copy of an input that a workload makes for one trial.
const TRIAL_SUFFIX: &str = ".trial";
/// The number of hexadecimal digits of a recipe's hash in its directory name.
const KEY_DIGITS: usize = 16;

/// Where an input of a user is, or will be when it is made.
pub struct Place<'a> {
    input: &'a Input,
    user: Option<User>,
    /// The input's directory, owned by the user. The content is in a subdirectory named by its hash.
    directory: PathBuf,
}

/// A hash of everything in a recipe that determines the content.
pub fn key(input: &Input) -> String {
    let recipe = json!([input.command, input.script, input.output]).to_string();
    hexadecimal(&Sha256::digest(recipe))[..KEY_DIGITS].to_owned()
}

/// A name of the input that is the same on every machine.
pub fn portable_name(input: &Input) -> String {
    format!("{}-{}", input.name, key(input))
}

/// The user who runs a workload and makes its inputs; `None` means the user who runs pagelab.
///
/// # Errors
/// The user does not exist.
pub fn user(workload: &Workload) -> Result<Option<User>, Failure> {
    user::to_run_as(named_user(workload))
}

/// The user that a workload names, if that user applies: only if root runs pagelab, and not through sudo for another
/// user.
pub fn named_user(workload: &Workload) -> Option<&str> {
    let is_root_itself = tracer::user::effective_id() == 0 && !matches!(user::to_run_as(None), Ok(Some(_)));
    workload.user.as_deref().filter(|_| is_root_itself)
}

/// The workload with the current paths of its inputs. If an input is not made yet, its path has a placeholder for the
/// hash.
pub fn with_current_paths(workload: &Workload) -> Workload {
    let places = user(workload).and_then(|user| places(workload, &user)).unwrap_or_default();
    workload.with_input_paths(|input| path_of(&places, input))
}

/// The workload with its inputs. Makes inputs that are missing, and checks the others.
///
/// # Errors
/// An input cannot be made, or its content has changed.
pub fn prepare(workload: &Workload) -> Result<Workload, Failure> {
    let user = user(workload)?;
    let places = places(workload, &user)?;
    if !places.is_empty() {
        let cache = files::sheltered_directory(&directory()?).map_err(Failure::input)?;
        for place in &places {
            match place.content() {
                Some(content) => place.check(&content)?,
                None => place.make_or_record_failure(&cache)?,
            }
        }
    }
    Ok(workload.with_input_paths(|input| path_of(&places, input)))
}

/// Removes the copies (suffix `.trial`) of inputs that a workload left next to them in the last trial.
///
/// # Errors
/// A copy exists and cannot be removed.
pub fn remove_trial_copies(workload: &Workload) -> Result<(), Failure> {
    let user = user(workload)?;
    for content in places(workload, &user)?.iter().filter_map(Place::content) {
        let mut copy = content.into_os_string();
        copy.push(TRIAL_SUFFIX);
        files::remove_tree(Path::new(&copy)).map_err(|error| Failure::about(Path::new(&copy), error))?;
    }
    Ok(())
}

/// Whether one of a workload's inputs has not been made.
pub fn has_unmade(workload: &Workload) -> bool {
    let places = user(workload).and_then(|user| places(workload, &user));
    places.is_ok_and(|places| places.iter().any(|place| place.content().is_none()))
}

/// Why one of a workload's inputs could not be made at the last attempt on this host.
pub fn failure(workload: &Workload) -> Option<String> {
    let user = user(workload).ok()?;
    let places = places(workload, &user).ok()?;
    let why = |place: &Place<'_>| files::open_to_read(&place.failure_file()).and_then(io::read_to_string).ok();
    places.iter().filter(|place| place.content().is_none()).find_map(why)
}

fn places<'a>(workload: &'a Workload, user: &Option<User>) -> Result<Vec<Place<'a>>, Failure> {
    workload.inputs.iter().map(|input| Place::of(input, user.clone())).collect()
}

fn path_of(places: &[Place<'_>], input: &Input) -> String {
    let place = places.iter().find(|place| place.input == input).map(Place::path);
    place.unwrap_or_else(|| PathBuf::from(portable_name(input)).join(UNMADE)).to_string_lossy().into_owned()
}

/// The directory of all inputs, in the cache directory of the user who runs pagelab.
///
/// # Errors
/// There is no cache directory.
pub fn directory() -> Result<PathBuf, Failure> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_root = (tracer::user::effective_id() == 0).then(|| PathBuf::from(ROOT_CACHE));
    let cache = named("XDG_CACHE_HOME").or(of_root).or_else(|| named("HOME").map(|home| home.join(".cache")));
    let none =
        || Failure::Input("there is no cache directory for inputs of workloads: set XDG_CACHE_HOME or HOME".to_owned());
    Ok(cache.ok_or_else(none)?.join("pagelab/inputs"))
}

impl<'a> Place<'a> {
    fn of(input: &'a Input, user: Option<User>) -> Result<Place<'a>, Failure> {
        let of_user = user.as_ref().filter(|user| user.is_another());
        let of_user = of_user.map(|user| format!("-{}", user.name)).unwrap_or_default();
        Ok(Place { input, directory: directory()?.join(portable_name(input) + &of_user), user })
    }

    /// The directory with the content, if the input has been made.
    fn content(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.directory).ok()?.flatten();
        let is_hash = |name: &str| name.len() == 64 && name.bytes().all(|letter| letter.is_ascii_hexdigit());
        entries.filter(|entry| is_hash(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).min()
    }

    /// The file next to the directory with the reason why the input is not made.
    fn failure_file(&self) -> PathBuf {
        let mut path = self.directory.clone().into_os_string();
        path.push(FAILURE_SUFFIX);
        path.into()
    }

    /// The unprivileged owner of the input, if root runs pagelab.
    fn owner(&self) -> Option<Owner> {
        let another = self.user.as_ref().filter(|user| user.is_another());
        another.map(|user| Owner { user: user.uid, group: user.gid })
    }

    fn path(&self) -> PathBuf {
        let content = self.content().unwrap_or_else(|| self.directory.join(UNMADE));
        self.input.output.as_ref().map_or(content.clone(), |output| content.join(output))
    }

    /// Checks that the content has not changed since it was made.
    fn check(&self, content: &Path) -> Result<(), Failure> {
        let found = hash(content).map_err(|error| Failure::about(content, error))?;
        if content.file_name().is_some_and(|name| *name == *found) {
            return Ok(());
        }
        let name = &self.input.name;
        Err(Failure::Input(format!(
            "the input {name} has changed since it was made ({}; its content now has the hash {found}); \
             remove that directory to make it again",
            content.display()
        )))
    }

    /// Makes the input, or stores the reason why it cannot be made next to its directory. A signal is not stored as a reason.
    fn make_or_record_failure(&self, cache: &Path) -> Result<(), Failure> {
        let failure_file = self.failure_file();
        let made = self.make(cache);
        let kept = match &made {
            Ok(()) => files::remove_file(&failure_file).map_err(|error| Failure::about(&failure_file, error)),
            Err(Failure::Stopped(..)) => Ok(()),
            Err(failure) => files::write(&failure_file, failure.to_string().as_bytes()).map_err(Failure::input),
        };
        if let Err(error) = kept {
            report(format_args!("{error}"));
        }
        made
    }

    /// Makes the input in the cache directory, and moves it into its own directory when it is complete.
    fn make(&self, cache: &Path) -> Result<(), Failure> {
        report(format_args!("making the input {}, once: {}", self.input.name, self.directory.display()));
        let about = |path: &Path| {
            let path = path.to_path_buf();
            move |error: io::Error| Failure::about(&path, error)
        };
        let give = |path: &Path| self.owner().map_or(Ok(()), |owner| files::give_directory(path, owner));
        files::make_directories(&self.directory).map_err(Failure::input)?;
        give(&self.directory).map_err(about(&self.directory))?;
        partial::remove_leftovers_in(cache);
        let partial = partial::directory_in(cache).map_err(about(cache))?;
        let output = self.output(partial.path()).map_err(about(partial.path()))?;
        // From here on the directory belongs to the user, so root creates nothing in it.
        give(partial.path()).map_err(about(partial.path()))?;
        self.run(partial.path(), output)?;
        let hash = hash(partial.path()).map_err(about(partial.path()))?;
        let complete = self.directory.join(&hash);
        match files::rename(partial.path(), &complete) {
            // Another pagelab has made the same input meanwhile.
            Err(error) if !fs::symlink_metadata(&complete).is_ok_and(|stat| stat.is_dir()) => {
                return Err(about(&complete)(error));
            }
            _ => {}
        }
        report(format_args!("the input {} has the hash {hash}", self.input.name));
        Ok(())
    }

    /// The file or null device for the command's standard output.
    fn output(&self, directory: &Path) -> io::Result<Stdio> {
        let Some(name) = &self.input.output else { return Ok(Stdio::null()) };
        let file = files::create_new(&directory.join(name))?;
        self.owner().map_or(Ok(()), |owner| place::give(&file, owner))?;
        Ok(file.into())
    }

    fn run(&self, directory: &Path, output: Stdio) -> Result<(), Failure> {
        let name = &self.input.name;
        let failed = |what: &dyn std::fmt::Display| Failure::Input(format!("the input {name} cannot be made: {what}"));
        let words: Vec<OsString> = self.input.command.iter().map(OsString::from).collect();
        let mut script = tempfile::tempfile().map_err(|error| failed(&error))?;
        let text = self.input.script.as_deref().unwrap_or_default();
        script.write_all(text.as_bytes()).map_err(|error| failed(&error))?;
        script.seek(SeekFrom::Start(0)).map_err(|error| failed(&error))?;
        signals::catch(Forward::Kill).map_err(|error| failed(&error))?;
        let made = platform::make(&words, &self.user, directory, script, output);
        signals::restore_defaults();
        match signals::arrived() {
            Some(signal) => Err(Failure::Stopped(signal, "the input is not made")),
            None => made.map_err(|error| failed(&error)),
        }
    }
}
