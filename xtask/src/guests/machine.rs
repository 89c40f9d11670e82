//! Boots a guest in QEMU, reads its console, and ends it at its timeout ([`run`]).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::debugger::Debugger;
use super::tables::{TableRequest, entries};
use crate::linux::Granule;

/// The QEMU machine for an architecture and a size of base pages.
#[derive(Debug, PartialEq)]
pub struct Board {
    /// Debian's name of the architecture.
    pub architecture: &'static str,
    /// QEMU's program, and the package that contains it.
    pub program: (&'static str, &'static str),
    /// QEMU's options for the machine and its processor.
    ///
    /// arm64 has EL2, for KVM, and an inexpensive implementation of pointer authentication, which would otherwise take half of the
    /// time. It has no 52-bit physical addresses, because with them QEMU 7.2 never returns from a stage 2 fault. For pages of 16K
    /// `lpa2=off` removes them; for pages of 64K another processor is used.
    options: &'static [&'static str],
    /// The kernel's name of the console device.
    console: &'static str,
    /// Further words of the kernel's command line. At boot on x86-64, the kernel waits for timer ticks and panics if QEMU delivers
    /// none in time, which happens on a busy host. These words prevent that.
    arguments: &'static str,
}

const BOARDS: [Board; 3] = [
    Board {
        architecture: "amd64",
        program: ("qemu-system-x86_64", "qemu-system-x86"),
        options: &["-M", "q35", "-cpu", "max", "-accel", "tcg"],
        console: "ttyS0",
        arguments: "no_timer_check",
    },
    Board {
        architecture: "arm64",
        program: ("qemu-system-aarch64", "qemu-system-arm"),
        options: &["-M", "virt,virtualization=on,gic-version=3", "-cpu", "max,pauth-impdef=on,lpa2=off"],
        console: "ttyAMA0",
        arguments: "",
    },
    Board {
        architecture: "riscv64",
        program: ("qemu-system-riscv64", "qemu-system-misc"),
        options: &["-M", "virt", "-cpu", "rv64,svnapot=on"],
        console: "ttyS0",
        arguments: "",
    },
];

const ARM64_OF_64K: Board = Board {
    architecture: "arm64",
    program: ("qemu-system-aarch64", "qemu-system-arm"),
    options: &["-M", "virt,virtualization=on,gic-version=3", "-cpu", "neoverse-n1"],
    console: "ttyAMA0",
    arguments: "",
};

impl Board {
    /// The board for an architecture and a kernel. `built` is the base page size of a kernel that is built here; `None`
    /// means a package's kernel.
    pub fn of(architecture: &str, built: Option<Granule>) -> Option<&'static Board> {
        if (architecture, built) == ("arm64", Some(Granule::K64)) {
            return Some(&ARM64_OF_64K);
        }
        BOARDS.iter().find(|board| board.architecture == architecture)
    }

    /// The processor, in QEMU's syntax.
    pub fn processor(&self) -> &'static str {
        let after = self.options.iter().skip_while(|option| **option != "-cpu").nth(1);
        after.copied().unwrap_or_default()
    }
}

/// The parameters of a boot.
#[derive(Debug)]
pub struct Boot<'a> {
    pub board: &'static Board,
    /// The kernel image.
    pub kernel: &'a Path,
    /// The initial file system.
    pub initrd: &'a Path,
    /// The file to which the console output is written.
    pub log: PathBuf,
    /// The timeout.
    pub limit: Duration,
    /// Words of the kernel's command line, in addition to those of the board.
    pub arguments: &'a str,
    /// The guest's memory in QEMU's syntax.
    pub memory: &'a str,
    /// Disk images, which the guest sees as virtio disks and which stay as they are.
    pub disks: &'a [PathBuf],
    /// Whether to use one processor whose clock advances by one nanosecond per instruction.
    pub counts: bool,
}

/// How a guest ended.
#[derive(Debug, PartialEq)]
pub enum End {
    /// The guest powered off or crashed.
    Off,
    /// The guest reached its timeout.
    TooSlow,
}

/// The prefix of a line in which a guest requests entries of its page tables.
const REQUEST: &str = "@@ look ";
/// The line in which a guest asks to be ended immediately, as by a reset.
const RESET: &str = "@@ reset";

/// Runs a guest until it ends and returns its console output. Answers its requests for page table entries.
pub fn run(boot: &Boot) -> Result<(String, End), String> {
    let log = |error: std::io::Error| format!("cannot write {}: {error}", boot.log.display());
    let mut file = File::create(&boot.log).map_err(log)?;
    let (program, package) = boot.board.program;
    let socket = std::env::temp_dir().join(format!("pagelab-guest-{}.gdb", std::process::id()));
    let _ = fs::remove_file(&socket);
    let mut command = Command::new(program);
    command.args(boot.board.options).args(["-m", boot.memory, "-display", "none", "-nic", "none"]);
    command.args(if boot.counts { &["-smp", "1", "-icount", "shift=0,sleep=off"][..] } else { &["-smp", "2"] });
    command.args(["-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    command.arg("-gdb").arg(format!("unix:{},server=on,wait=off", socket.display()));
    for disk in boot.disks {
        let mut drive = OsString::from("if=virtio,format=raw,snapshot=on,file=");
        drive.push(disk);
        command.arg("-drive").arg(drive);
    }
    command.arg("-kernel").arg(boot.kernel).arg("-initrd").arg(boot.initrd);
    let Board { console, arguments, .. } = boot.board;
    // Without address randomisation: the addresses of mappings decide which of them can use large pages, and results of
    // different runs are compared.
    command
        .args(["-append", &format!("console={console} loglevel=4 panic=-1 norandmaps {arguments} {}", boot.arguments)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file.try_clone().map_err(log)?);
    let mut guest = Guest(command.spawn().map_err(|error| format!("cannot run {program} ({package}): {error}"))?);
    let (keyboard, lines) = guest.console();
    let listened = listen(boot, &socket, keyboard, &lines, &mut file).map_err(log);
    drop(guest);
    let _ = fs::remove_file(&socket);
    let end = listened?;
    let mut console = Vec::new();
    File::open(&boot.log).and_then(|mut file| file.read_to_end(&mut console)).map_err(log)?;
    Ok((String::from_utf8_lossy(&console).into_owned(), end))
}

/// Writes the console output into the log and answers requests, until the guest ends or reaches its timeout.
fn listen(
    boot: &Boot,
    socket: &Path,
    mut keyboard: Option<ChildStdin>,
    lines: &Receiver<Vec<u8>>,
    log: &mut File,
) -> std::io::Result<End> {
    let start = Instant::now();
    loop {
        let Some(left) = boot.limit.checked_sub(start.elapsed()) else { return Ok(End::TooSlow) };
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(End::TooSlow),
            Err(RecvTimeoutError::Disconnected) => return Ok(End::Off),
        };
        log.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if text.trim() == RESET {
            return Ok(End::Off);
        }
        if let (Some(words), Some(keyboard)) = (text.trim().strip_prefix(REQUEST), keyboard.as_mut()) {
            let answer = answer(boot.board, socket, words);
            writeln!(log, "{answer}")?;
            // If the guest does not read its console any more, its end shows that, so this error is ignored.
            let _ = writeln!(keyboard, "{answer}").and_then(|()| keyboard.flush());
        }
    }
}

/// The page table entries that a guest requests, in one line, or why they cannot be read.
fn answer(board: &Board, socket: &Path, words: &str) -> String {
    let found = TableRequest::read(words)
        .ok_or_else(|| format!("expected ADDRESS BYTES PAGE FRAME PROCESSOR, found {words}"))
        .and_then(|request| {
            let mut debugger = Debugger::stop(socket)?;
            entries(&mut debugger, board.architecture, &request)
        });
    match found {
        Ok((bits, entries)) => {
            let words: Vec<String> = entries.iter().map(|entry| format!("{entry:x}")).collect();
            format!("entries {bits} {}", words.join(" "))
        }
        Err(problem) => format!("problem {problem}"),
    }
}

/// A QEMU process that is killed when this is dropped.
struct Guest(Child);

impl Guest {
    /// The standard input of the guest's console, and the lines that the guest prints until it ends.
    fn console(&mut self) -> (Option<ChildStdin>, Receiver<Vec<u8>>) {
        // The channel is bounded: a guest that prints faster than its output is read has to wait.
        let (sender, lines) = sync_channel(1024);
        if let Some(output) = self.0.stdout.take() {
            std::thread::spawn(move || {
                let mut output = BufReader::new(output);
                let mut line = Vec::new();
                while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                    if sender.send(std::mem::take(&mut line)).is_err() {
                        return;
                    }
                }
            });
        }
        (self.0.stdin.take(), lines)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last line of a guest's log that reports a kernel panic, or else the last non-empty line.
pub fn last_line(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let panic = lines.iter().rfind(|line| line.contains("Kernel panic"));
    panic.or(lines.last()).map_or("nothing".to_owned(), |line| (*line).to_owned())
}

/// Waits until no other run uses the same guest, and locks the guest until the returned file is closed.
pub fn lock_guest(path: &Path) -> Result<File, String> {
    let locked = File::create(path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| format!("cannot lock {}: {error}", path.display()))
}

/// Makes the directory of the logs.
pub fn logs(root: &Path) -> Result<PathBuf, String> {
    let directory = root.join("target/guests");
    fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    fn boot<'a>(board: &'static Board, log: PathBuf, nothing: &'a Path) -> Boot<'a> {
        Boot {
            board,
            kernel: nothing,
            initrd: nothing,
            log,
            limit: Duration::from_secs(3),
            counts: false,
            arguments: "",
            disks: &[],
            memory: "2G",
        }
    }

    #[test]
    fn a_guest_that_hangs_is_ended_and_its_log_is_kept() {
        static SLEEPS: Board = Board {
            architecture: "none",
            program: ("sh", "dash"),
            options: &["-c", "echo $*; exec sleep 60", "sh"],
            console: "tty",
            arguments: "",
        };
        let scratch = Scratch::new("hangs");
        let (console, end) = run(&boot(&SLEEPS, scratch.0.join("log"), Path::new("/nowhere"))).unwrap();
        assert_eq!(end, End::TooSlow);
        assert!(console.starts_with("-m 2G") && console.contains("-kernel /nowhere"), "{console}");
    }

    #[test]
    fn a_missing_qemu_is_named_with_its_package() {
        static NONE: Board =
            Board { architecture: "none", program: ("no-qemu", "a-package"), options: &[], console: "", arguments: "" };
        let scratch = Scratch::new("no-qemu");
        let problem = run(&boot(&NONE, scratch.0.join("log"), Path::new("/nowhere"))).unwrap_err();
        assert!(problem.contains("cannot run no-qemu (a-package)"), "{problem}");
    }

    #[test]
    fn the_last_line_is_the_panic_if_there_is_one() {
        assert_eq!(last_line("a\n\n  b \n"), "b");
        assert_eq!(last_line("x Kernel panic - not syncing: y\nz\n"), "x Kernel panic - not syncing: y");
        assert_eq!(last_line(""), "nothing");
    }
}
