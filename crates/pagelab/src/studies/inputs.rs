//! Inputs of workloads: made once, kept in the cache directory, and known by the hash of their content, which is part of their
//! path and so of every command line that is stored.
//!
//! As root, only root can change the cache directory: in it are the reasons why an input could not be made, and an input while it is
//! being made. What an unprivileged user owns there is one directory for each input, with the finished content and copies of it.
//! In that one, root follows no link and opens nothing but regular files.

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
use study::definition::{Input, Workload};
use tracer::User;
use tracer::signals::{self, PassOn};

use super::partial;
use crate::failure::{Failure, say};
use crate::user;
use content::{hash, hexadecimal};

/// Where inputs are where root runs pagelab: other users, as whom programs are run, can go there.
const OF_ROOT: &str = "/var/cache";
/// What stands for an input that has not been made.
const UNMADE: &str = "not-made-yet";
/// How the name of the file ends that says why an input could not be made when that was last tried.
const WHY_NOT: &str = ".why-not-made";
/// How the name of a copy of an input ends that a workload makes for a trial.
const OF_TRIAL: &str = ".trial";
/// Letters of the hash of a recipe in the name of its directory.
const KEY_LETTERS: usize = 16;

/// An input as a user has it, made or not.
pub struct Place<'a> {
    input: &'a Input,
    user: Option<User>,
    /// A directory of its own, the user's: it has one directory that is called by the hash of its content.
    directory: PathBuf,
}

/// Everything of a recipe that decides what is made.
pub fn key(input: &Input) -> String {
    let recipe = json!([input.command, input.script, input.output]).to_string();
    hexadecimal(&Sha256::digest(recipe))[..KEY_LETTERS].to_owned()
}

/// What stands for an input where it must be the same on every machine.
pub fn known_as(input: &Input) -> String {
    format!("{}-{}", input.name, key(input))
}

/// The user as whom a workload is run and its inputs are made; `None`: the one who runs pagelab.
///
/// # Errors
/// There is no such user.
pub fn user(workload: &Workload) -> Result<Option<User>, Failure> {
    user::to_run_as(named_user(workload))
}

/// The user whom a workload names, where that counts: root runs pagelab, and not by sudo for somebody else.
pub fn named_user(workload: &Workload) -> Option<&str> {
    let is_root_itself = tracer::user::effective_id() == 0 && !matches!(user::to_run_as(None), Ok(Some(_)));
    workload.user.as_deref().filter(|_| is_root_itself)
}

/// The workload with its inputs where they are now; one that is not made, or cannot be, has a path that says so.
pub fn as_they_are(workload: &Workload) -> Workload {
    let places = user(workload).and_then(|user| places(workload, &user)).unwrap_or_default();
    workload.placed(|input| path_of(&places, input))
}

/// The workload with its inputs, which are made where they have not been, and checked where they have.
///
/// # Errors
/// One cannot be made, or is not what it was.
pub fn ready(workload: &Workload) -> Result<Workload, Failure> {
    let user = user(workload)?;
    let places = places(workload, &user)?;
    if !places.is_empty() {
        let cache = files::sheltered_directory(&directory()?).map_err(Failure::input)?;
        for place in &places {
            match place.made() {
                Some(content) => place.check(&content)?,
                None => place.made_or_said(&cache)?,
            }
        }
    }
    Ok(workload.placed(|input| path_of(&places, input)))
}

/// Removes what a workload has beside its inputs for the trial that was the last one: `.trial` at the end of an input's path.
///
/// # Errors
/// It is there and cannot be removed.
pub fn clear(workload: &Workload) -> Result<(), Failure> {
    let user = user(workload)?;
    for content in places(workload, &user)?.iter().filter_map(Place::made) {
        let mut copy = content.into_os_string();
        copy.push(OF_TRIAL);
        files::remove_tree(Path::new(&copy)).map_err(|error| Failure::about(Path::new(&copy), error))?;
    }
    Ok(())
}

/// Whether one of a workload's inputs must be made first.
pub fn is_any_unmade(workload: &Workload) -> bool {
    let places = user(workload).and_then(|user| places(workload, &user));
    places.is_ok_and(|places| places.iter().any(|place| place.made().is_none()))
}

/// Why one of a workload's inputs, which is not made, could not be when that was last tried here.
pub fn failure(workload: &Workload) -> Option<String> {
    let user = user(workload).ok()?;
    let places = places(workload, &user).ok()?;
    let why = |place: &Place<'_>| files::open_to_read(&place.why_not()).and_then(io::read_to_string).ok();
    places.iter().filter(|place| place.made().is_none()).find_map(why)
}

fn places<'a>(workload: &'a Workload, user: &Option<User>) -> Result<Vec<Place<'a>>, Failure> {
    workload.inputs.iter().map(|input| Place::of(input, user.clone())).collect()
}

fn path_of(places: &[Place<'_>], input: &Input) -> String {
    let place = places.iter().find(|place| place.input == input).map(Place::path);
    place.unwrap_or_else(|| PathBuf::from(known_as(input)).join(UNMADE)).to_string_lossy().into_owned()
}

/// The directory of all inputs: of the cache directory of whoever runs pagelab.
///
/// # Errors
/// There is none.
pub fn directory() -> Result<PathBuf, Failure> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_root = (tracer::user::effective_id() == 0).then(|| PathBuf::from(OF_ROOT));
    let cache = named("XDG_CACHE_HOME").or(of_root).or_else(|| named("HOME").map(|home| home.join(".cache")));
    let none = || Failure::Input("there is no place for inputs of workloads: set XDG_CACHE_HOME or HOME".to_owned());
    Ok(cache.ok_or_else(none)?.join("pagelab/inputs"))
}

impl<'a> Place<'a> {
    fn of(input: &'a Input, user: Option<User>) -> Result<Place<'a>, Failure> {
        let of_user = user.as_ref().filter(|user| user.is_another());
        let of_user = of_user.map(|user| format!("-{}", user.name)).unwrap_or_default();
        Ok(Place { input, directory: directory()?.join(known_as(input) + &of_user), user })
    }

    /// The directory with the content, where it has been made.
    fn made(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.directory).ok()?.flatten();
        let is_hash = |name: &str| name.len() == 64 && name.bytes().all(|letter| letter.is_ascii_hexdigit());
        entries.filter(|entry| is_hash(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).min()
    }

    /// The file next to the directory, with the reason why it is not made.
    fn why_not(&self) -> PathBuf {
        let mut path = self.directory.clone().into_os_string();
        path.push(WHY_NOT);
        path.into()
    }

    /// The unprivileged user whose it is, where root runs pagelab.
    fn owner(&self) -> Option<Owner> {
        let another = self.user.as_ref().filter(|user| user.is_another());
        another.map(|user| Owner { user: user.uid, group: user.gid })
    }

    fn path(&self) -> PathBuf {
        let content = self.made().unwrap_or_else(|| self.directory.join(UNMADE));
        self.input.output.as_ref().map_or(content.clone(), |output| content.join(output))
    }

    /// Whether it still is what it was when it was made.
    fn check(&self, content: &Path) -> Result<(), Failure> {
        let found = hash(content).map_err(|error| Failure::about(content, error))?;
        if content.file_name().is_some_and(|name| *name == *found) {
            return Ok(());
        }
        let name = &self.input.name;
        Err(Failure::Input(format!(
            "the input {name} is not what it was when it was made ({}; its content has the hash {found}); \
             remove that directory, and it is made again",
            content.display()
        )))
    }

    /// Makes it, or keeps the reason why it cannot be beside where it would be. A signal is no reason.
    fn made_or_said(&self, cache: &Path) -> Result<(), Failure> {
        let why_not = self.why_not();
        let made = self.make(cache);
        let kept = match &made {
            Ok(()) => files::remove_file(&why_not).map_err(|error| Failure::about(&why_not, error)),
            Err(Failure::Stopped(..)) => Ok(()),
            Err(failure) => files::write(&why_not, failure.to_string().as_bytes()).map_err(Failure::input),
        };
        if let Err(error) = kept {
            say(format_args!("{error}"));
        }
        made
    }

    /// Makes it in the cache directory, and puts it into its own when it is whole.
    fn make(&self, cache: &Path) -> Result<(), Failure> {
        say(format_args!("making the input {}, once: {}", self.input.name, self.directory.display()));
        let about = |path: &Path| {
            let path = path.to_path_buf();
            move |error: io::Error| Failure::about(&path, error)
        };
        let give = |path: &Path| self.owner().map_or(Ok(()), |owner| files::give_directory(path, owner));
        files::make_directories(&self.directory).map_err(Failure::input)?;
        give(&self.directory).map_err(about(&self.directory))?;
        partial::remove_left_in(cache);
        let partial = partial::directory_in(cache).map_err(about(cache))?;
        let output = self.output(partial.path()).map_err(about(partial.path()))?;
        // Root makes nothing in it from here on.
        give(partial.path()).map_err(about(partial.path()))?;
        self.run(partial.path(), output)?;
        let hash = hash(partial.path()).map_err(about(partial.path()))?;
        let whole = self.directory.join(&hash);
        match files::rename(partial.path(), &whole) {
            // Another pagelab has just made the same.
            Err(error) if !fs::symlink_metadata(&whole).is_ok_and(|there| there.is_dir()) => {
                return Err(about(&whole)(error));
            }
            _ => {}
        }
        say(format_args!("the input {} has the hash {hash}", self.input.name));
        Ok(())
    }

    /// The standard output of the command.
    fn output(&self, directory: &Path) -> io::Result<Stdio> {
        let Some(name) = &self.input.output else { return Ok(Stdio::null()) };
        let file = files::create_new(&directory.join(name))?;
        self.owner().map_or(Ok(()), |owner| place::give(&file, owner))?;
        Ok(file.into())
    }

    /// Runs the command in a directory.
    fn run(&self, directory: &Path, output: Stdio) -> Result<(), Failure> {
        let name = &self.input.name;
        let failed = |what: &dyn std::fmt::Display| Failure::Input(format!("the input {name} cannot be made: {what}"));
        let words: Vec<OsString> = self.input.command.iter().map(OsString::from).collect();
        let mut script = tempfile::tempfile().map_err(|error| failed(&error))?;
        let text = self.input.script.as_deref().unwrap_or_default();
        script.write_all(text.as_bytes()).map_err(|error| failed(&error))?;
        script.seek(SeekFrom::Start(0)).map_err(|error| failed(&error))?;
        signals::catch(PassOn::Kill).map_err(|error| failed(&error))?;
        let made = platform::make(&words, &self.user, directory, script, output);
        signals::release();
        match signals::arrived() {
            Some(signal) => Err(Failure::Stopped(signal, "the input is not made")),
            None => made.map_err(|error| failed(&error)),
        }
    }
}
