//! A kernel to be booted in a guest ([`Kernel`]). Everything that can be refused before a guest starts is refused here.

use std::path::Path;

use guest::{Architecture, Image, Module, Sysroot};
use policy::size::{format_bytes, parse_bytes};
use study::guest::{image_word, kernel_word, system_word};
use study_files::definition::{Boot, Guest};

use crate::failure::Failure;
use crate::guest_arguments::Guests;
use crate::hashed::sha256;

/// The default memory of a guest.
const MEMORY_BYTES: u64 = 4 << 30;
/// The minimum memory: a Debian kernel with a debug build of pagelab in its initramfs does not boot with less.
const MIN_BYTES: u64 = 512 << 20;

/// A kernel that can be booted.
#[derive(Debug)]
pub struct Kernel {
    /// The name in the tables, unique among the kernels.
    pub name: String,
    pub image: Image,
    /// A hash of the image file, which distinguishes images of the same name.
    pub hash: String,
    /// The modules that the guest loads first.
    pub modules: Vec<Module>,
    /// The user's words for the kernel's command line.
    pub words: Vec<String>,
    /// The memory of its guests, in bytes.
    pub memory_bytes: u64,
    /// The root file system of its guests; `None` means this host's.
    pub sysroot: Option<Sysroot>,
    /// A hash of the pagelab binary in that file system, if there is one.
    pub system: Option<String>,
}

impl Kernel {
    /// Reads a kernel image and its modules. Refuses a file that is not a kernel, is for another architecture, or cannot mount
    /// the host's files.
    fn read(
        name: Option<&str>,
        path: &Path,
        cmdline: &str,
        memory_bytes: u64,
        sysroot: Option<&Path>,
    ) -> Result<Kernel, Failure> {
        if !path.exists() {
            return Err(Failure::Input(format!(
                "{}: expected the image of a kernel, such as /boot/vmlinuz-6.12, found no such file",
                path.display()
            )));
        }
        let image = Image::read(path).map_err(Failure::input)?;
        let sysroot = sysroot.map(|sysroot| Sysroot::open(sysroot, image.architecture)).transpose();
        let sysroot = sysroot.map_err(Failure::input)?;
        if sysroot.is_none() && Architecture::own() != Some(image.architecture) {
            return Err(Failure::Input(format!(
                "{}: expected a kernel for {}, because a guest runs the programs of this host, found one for {}; give another image, \
                 or the root of a system for {} (--sysroot DIR; in a study: sysroot = \"DIR\")",
                path.display(),
                std::env::consts::ARCH,
                image.architecture,
                image.architecture
            )));
        }
        let words = cmdline.split_whitespace().map(str::to_owned).collect();
        let modules = guest::modules(&image).map_err(Failure::input)?;
        let image_hash = hash(&image.path)?;
        let system = sysroot.as_ref().map(|sysroot| hash(&sysroot.file())).transpose()?;
        let name = name.unwrap_or(&image.release).to_owned();
        Ok(Kernel { name, image, hash: image_hash, modules, words, memory_bytes, sysroot, system })
    }

    /// The kernel's command line: words that identify the kernel, and the user's words.
    pub fn command_line(&self) -> impl Iterator<Item = String> {
        let system = self.system.iter().map(|hash| system_word(hash));
        [kernel_word(&self.name), image_word(&self.hash)].into_iter().chain(system).chain(self.words.iter().cloned())
    }

    /// The kernel in the form of a boot of a study.
    pub fn boot(&self, is_baseline: bool) -> Boot {
        let guest = Guest {
            image: self.image.path.display().to_string(),
            cmdline: self.words.join(" "),
            memory: Some(format_bytes(self.memory_bytes)),
            icount: false,
            sysroot: self.sysroot.as_ref().map(|sysroot| sysroot.path.display().to_string()),
        };
        Boot::of_guest(&self.name, is_baseline, guest)
    }
}

/// The first digits of a file's hash.
fn hash(path: &Path) -> Result<String, Failure> {
    let mut hash = sha256(path).map_err(|error| Failure::about(path, error))?;
    hash.truncate(16);
    Ok(hash)
}

/// The kernels named on a command line. Names must differ, and the number of command lines must match.
pub fn from_arguments(guests: &Guests) -> Result<Vec<Kernel>, Failure> {
    let (kernels, cmdlines) = (&guests.kernels, &guests.cmdline);
    if cmdlines.len() > 1 && cmdlines.len() != kernels.len() {
        return Err(Failure::Input(format!(
            "--cmdline: expected one for all, or one for each of {} kernels, found {}",
            kernels.len(),
            cmdlines.len()
        )));
    }
    let memory_bytes = guests.memory.unwrap_or(MEMORY_BYTES);
    check_memory(memory_bytes)?;
    let cmdline = |at: usize| cmdlines.get(at).or(cmdlines.first()).map_or("", String::as_str);
    let mut all: Vec<Kernel> = Vec::new();
    for (at, one) in kernels.iter().enumerate() {
        let mut kernel =
            Kernel::read(one.name.as_deref(), &one.image, cmdline(at), memory_bytes, guests.sysroot.as_deref())?;
        let is_taken = |name: &str| all.iter().any(|other| other.name == name);
        if is_taken(&kernel.name) {
            if one.name.is_some() {
                return Err(Failure::Input(format!(
                    "--kernel: duplicate name {:?}; give each kernel its own",
                    kernel.name
                )));
            }
            let numbered = (2..).map(|number| format!("{}#{number}", kernel.name));
            kernel.name = numbered.into_iter().find(|name| !is_taken(name)).unwrap_or_default();
        }
        all.push(kernel);
    }
    Ok(all)
}

/// The kernels that the boots of a study name.
pub fn of_boots(boots: &[Boot]) -> Result<Vec<Kernel>, Failure> {
    let of_boot = |boot: &Boot| {
        let Some(guest) = &boot.guest else { return Ok(None) };
        let about = |what: &dyn std::fmt::Display| Failure::Input(format!("boots.{}: {what}", boot.name));
        let memory = guest.memory.as_deref().map(parse_bytes).transpose().map_err(|error| about(&error))?;
        let memory_bytes = memory.unwrap_or(MEMORY_BYTES);
        check_memory(memory_bytes).map_err(|error| about(&error))?;
        let (image, sysroot) = (Path::new(&guest.image), guest.sysroot.as_deref().map(Path::new));
        let kernel = Kernel::read(Some(&boot.name), image, &guest.cmdline, memory_bytes, sysroot);
        kernel.map(Some).map_err(|error| about(&error))
    };
    Ok(boots.iter().map(of_boot).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Fails if a guest would need more memory than this host has available now.
fn check_memory(bytes: u64) -> Result<(), Failure> {
    if bytes < MIN_BYTES {
        let (found, min) = (format_bytes(bytes), format_bytes(MIN_BYTES));
        return Err(Failure::Input(format!("memory of a guest: expected {min} or more, found {found}")));
    }
    let meminfo =
        std::fs::read_to_string("/proc/meminfo").map_err(|error| Failure::about(Path::new("/proc/meminfo"), error))?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok());
    match kilobytes.map(|kilobytes| kilobytes << 10) {
        Some(available) if available < bytes => Err(Failure::Input(format!(
            "memory of a guest: expected at most {}, which this host has available, found {}; give less with --memory SIZE (in a \
             study: memory = \"SIZE\")",
            format_bytes(available >> 20 << 20),
            format_bytes(bytes)
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_too_little_and_too_much_memory() {
        assert!(check_memory(1 << 20).unwrap_err().to_string().contains("expected 512M or more, found 1M"));
        assert!(check_memory(1 << 60).unwrap_err().to_string().contains("give less with --memory"));
        check_memory(MIN_BYTES).unwrap();
    }
}
