//! The first process of a guest. It loads the modules, mounts an overlayfs of a tmpfs on the host's files, runs the job in it, and
//! powers the guest off.
//!
//! ```text
//! /host    the host's files, read-only (9p)       ┐
//! /memory  what is written, until the guest ends  ┴─► /root (overlayfs), in which the job runs
//! ```
//! The job sees the guest's own /proc, /sys and /dev. It sees neither the host's /run nor what pagelab keeps in the host's
//! /var/lib/pagelab: a lease there concerns the host's settings.
#![expect(clippy::disallowed_methods, reason = "the first process of a guest: there is no other user yet")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::initrd::{JOB, MODULES};
use crate::machine::TAG;
use crate::{FIRST, PORT, SAYS};

/// Mount options for the host's files. The guest keeps each page of them in its page cache (`cache=loose`), because nothing in the
/// guest depends on later changes.
const SHARE_OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";
/// The timeout for the port to appear after its module is loaded.
const PORT_PATIENCE: Duration = Duration::from_secs(30);
/// The mount point of the job's file system.
const ROOT: &str = "/root";

/// Why the job did not run.
#[derive(Debug, thiserror::Error)]
enum FirstError {
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    #[error("the module {0} cannot be loaded: {1}")]
    Module(String, #[source] nix::Error),
    #[error("{what} cannot be mounted: {error}")]
    Mount {
        what: &'static str,
        #[source]
        error: nix::Error,
    },
    #[error("there is no port {PORT}")]
    NoPort,
    #[error("the job cannot be run: {0}")]
    Run(#[source] io::Error),
    #[error("{0}")]
    System(#[from] nix::Error),
}

/// Whether this process is the first one of a guest. The kernel passes words that it does not know itself (`nokaslr` on some) on as
/// arguments, before those after `--`.
pub fn is_first() -> bool {
    std::process::id() == 1 && std::env::args_os().skip(1).any(|word| word == FIRST)
}

/// Runs a guest from its first process to its end. `command` makes the command of the job, whose standard output becomes the port.
pub fn run(command: impl FnOnce(&[u8]) -> io::Result<Command>) -> ! {
    if let Err(error) = job(command) {
        print_on_console(&error.to_string());
    }
    let _ = io::stdout().flush();
    nix::unistd::sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        // The kernel panics when its first process exits, which ends QEMU too.
        Err(_) => std::process::exit(1),
    }
}

/// Prints a line on the console, with a prefix that marks it as coming from this process.
fn print_on_console(what: &str) {
    eprintln!("\n{SAYS}{what}");
}

fn job(command: impl FnOnce(&[u8]) -> io::Result<Command>) -> Result<(), FirstError> {
    mounted("proc", "/proc", "proc", "", MsFlags::empty())?;
    mounted("sysfs", "/sys", "sysfs", "", MsFlags::empty())?;
    mounted("devtmpfs", "/dev", "devtmpfs", "", MsFlags::empty())?;
    load_modules()?;
    let job = fs::read(Path::new("/").join(JOB)).map_err(|error| FirstError::File(JOB.into(), error))?;
    let port = port()?;
    assemble_root()?;
    nix::unistd::chroot(ROOT)?;
    nix::unistd::chdir("/")?;
    bring_loopback_up();
    let mut command = command(&job).map_err(FirstError::Run)?;
    let child = command.stdin(Stdio::null()).stdout(port).spawn().map_err(FirstError::Run)?;
    wait_for(Pid::from_raw(child.id().cast_signed()))
}

/// Waits until the job's process has exited. Orphans that it leaves behind become children of this process and are reaped
/// meanwhile.
fn wait_for(job: Pid) -> Result<(), FirstError> {
    loop {
        match waitpid(None, None)? {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) if pid == job => return Ok(()),
            _ => {}
        }
    }
}

/// Loads the modules in the order of their files' names.
fn load_modules() -> Result<(), FirstError> {
    let place = Path::new("/").join(MODULES);
    let unreadable = |error| FirstError::File(place.clone(), error);
    let entries = fs::read_dir(&place).map_err(unreadable)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(unreadable)?;
    files.sort();
    for path in files {
        let file = File::open(&path).map_err(|error| FirstError::File(path.clone(), error))?;
        let loaded = nix::kmod::finit_module(file.as_fd(), c"", nix::kmod::ModuleInitFlags::empty());
        loaded.map_err(|error| FirstError::Module(name_of(&path), error))?;
    }
    Ok(())
}

/// The name of a module from its path: `9p` of `/modules/004-9p`.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split_once('-').map_or(name.clone(), |(_, name)| name.to_owned())
}

/// Opens the port as soon as it exists.
fn port() -> Result<File, FirstError> {
    let until = Instant::now() + PORT_PATIENCE;
    loop {
        if let Some(device) = device_of_port() {
            let opened = File::options().write(true).open(&device);
            return opened.map_err(|error| FirstError::File(device, error));
        }
        if Instant::now() > until {
            return Err(FirstError::NoPort);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn device_of_port() -> Option<PathBuf> {
    let ports = fs::read_dir(Path::new("/sys").join("class/virtio-ports")).ok()?.flatten();
    let is_own = |path: &PathBuf| fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() == PORT);
    let port = ports.map(|entry| entry.path()).find(is_own)?;
    Some(Path::new("/dev").join(port.file_name()?))
}

/// Assembles the job's file system.
fn assemble_root() -> Result<(), FirstError> {
    mounted(TAG, "/host", "9p", SHARE_OPTIONS, MsFlags::MS_RDONLY)?;
    mounted("memory", "/memory", "tmpfs", "", MsFlags::empty())?;
    for part in ["/memory/upper", "/memory/work"] {
        fs::create_dir(part).map_err(|error| FirstError::File(part.into(), error))?;
    }
    let layers = "lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work";
    mounted("overlay", ROOT, "overlay", layers, MsFlags::empty())?;
    for (kind, place) in [("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev")] {
        within(kind, place, kind, "")?;
    }
    for (place, kind) in [("dev/pts", "devpts"), ("dev/shm", "tmpfs"), ("run", "tmpfs")] {
        within(kind, place, kind, "")?;
    }
    // Only root may write the file from which a lease is restored.
    within("leases", "var/lib/pagelab", "tmpfs", "mode=0700")
}

/// Mounts something in the job's file system, and makes the mount point if it is missing.
fn within(what: &'static str, place: &str, kind: &'static str, options: &str) -> Result<(), FirstError> {
    let place = Path::new(ROOT).join(place);
    fs::create_dir_all(&place).map_err(|error| FirstError::File(place.clone(), error))?;
    mounted(what, &place.to_string_lossy(), kind, options, MsFlags::empty())
}

fn mounted(
    what: &'static str,
    place: &str,
    kind: &'static str,
    options: &str,
    flags: MsFlags,
) -> Result<(), FirstError> {
    mount(Some(what), place, Some(kind), flags, Some(options)).map_err(|error| FirstError::Mount { what, error })
}

/// Brings up the loopback interface, which programs that connect to themselves need. If that fails, prints a line on the console.
fn bring_loopback_up() {
    let mut command = Command::new("ip");
    command.args(["link", "set", "lo", "up"]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").stdout(Stdio::null());
    let brought = command.status();
    if !brought.as_ref().is_ok_and(std::process::ExitStatus::success) {
        print_on_console("the loopback interface is down: there is no `ip` that brings it up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_its_own_name_and_no_test_is_a_first_process() {
        assert_eq!(name_of(Path::new("/modules/004-9p")), "9p");
        assert!(!is_first());
    }
}
