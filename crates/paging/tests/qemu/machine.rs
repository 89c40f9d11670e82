//! An emulated QEMU machine, stopped before its first instruction.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use paging::{InputAddress, OutputAddress};

use crate::gdb::Gdb;

/// A QEMU program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the executable.
    pub name: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl Program {
    /// Whether it is installed; if not, reports this in the form that `cargo xtask test` reads.
    pub fn is_installed(self) -> bool {
        let is_installed = is_in_path(self.name);
        if !is_installed {
            testing::skip(format!("{} ({})", self.name, self.package));
        }
        is_installed
    }

    /// Its major and minor version.
    pub fn version(self) -> (u32, u32) {
        static VERSIONS: Mutex<BTreeMap<&str, (u32, u32)>> = Mutex::new(BTreeMap::new());
        *VERSIONS.lock().unwrap().entry(self.name).or_insert_with(|| self.query_version())
    }

    fn query_version(self) -> (u32, u32) {
        let output = Command::new(self.name).arg("--version").output().expect("QEMU prints its version");
        let text = String::from_utf8(output.stdout).unwrap();
        let version = text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        let mut numbers = version.unwrap_or_default().split('.').map_while(|number| number.parse().ok());
        (numbers.next().unwrap_or_else(|| panic!("expected a version, found {text}")), numbers.next().unwrap_or(0))
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// An image to load into memory, with its address.
pub struct Image {
    /// The physical address of its first byte.
    pub pa: OutputAddress,
    /// The content.
    pub bytes: Vec<u8>,
}

impl Image {
    /// An image of 8-byte words.
    pub fn of_words(pa: OutputAddress, words: &[u64]) -> Image {
        Image { pa, bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    }

    /// An image of addresses for code in the machine to access.
    pub fn of_addresses(pa: OutputAddress, addresses: &[InputAddress]) -> Image {
        Image { pa, bytes: addresses.iter().flat_map(|va| va.0.to_le_bytes()).collect() }
    }

    /// An image of 4-byte instructions.
    pub fn of_instructions(pa: OutputAddress, words: &[u32]) -> Image {
        Image { pa, bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    }
}

/// A QEMU process and its files, both of which are removed on drop.
struct Process {
    qemu: Child,
    directory: PathBuf,
}

impl Process {
    fn start(program: Program, arguments: &[&str], images: &[Image], debugger: UnixStream) -> Process {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("qemu-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut command = command(program);
        command.args(["-S", "-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg"]).args(arguments);
        command.args(["-chardev", "socket,id=gdb,fd=0", "-gdb", "chardev:gdb"]);
        for (index, image) in images.iter().enumerate() {
            let file = directory.join(format!("{index}.bin"));
            fs::write(&file, &image.bytes).unwrap();
            let file = file.to_str().expect("a path in UTF-8").replace(',', ",,");
            command.arg("-device").arg(format!("loader,file={file},addr={:#x},force-raw=on", image.pa));
        }
        let errors = fs::File::create(directory.join("stderr")).unwrap();
        command.stdin(Stdio::from(OwnedFd::from(debugger))).stdout(Stdio::null()).stderr(errors);
        let qemu = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.name));
        Process { qemu, directory }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            eprintln!("QEMU printed: {}", fs::read_to_string(self.directory.join("stderr")).unwrap_or_default());
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// QEMU exits with the test, even if the test is killed and runs no destructor.
fn command(program: Program) -> Command {
    if !is_in_path("setpriv") {
        return Command::new(program.name);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program.name]);
    command
}

/// A machine under a debugger.
pub struct Machine {
    /// The debugger connection.
    pub gdb: Gdb,
    _process: Process,
}

impl Machine {
    /// Starts `program` with `arguments` and `images` in memory.
    pub fn start(program: Program, arguments: &[&str], images: &[Image]) -> Machine {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = Process::start(program, arguments, images, theirs);
        Machine { gdb: Gdb::connect(ours), _process: process }
    }
}
