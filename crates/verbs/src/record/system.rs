//! Records a whole machine: which architecture its emulator has, and how the plugin learns where the machine's memory
//! is.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use results::files;
use serde_json::{Value, json};
use trace::executable::Architecture;
use tracer::Supervised;

use super::error::RecordError;
use super::exchange::Exchange;
use super::qmp::{Monitor, QmpListener};

/// The architecture that a command's emulator emulates.
pub fn architecture(path: &Path) -> Result<Architecture, RecordError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let named = |of: &str| Architecture::ALL.into_iter().find(|known| known.name() == of);
    let found = name.strip_prefix("qemu-system-").and_then(named);
    found.ok_or_else(|| RecordError::NotASystemEmulator(path.to_owned()))
}

/// Accelerators that run machines in hardware, as listed by `qemu-system-x86_64 -accel help` and the like.
const HARDWARE: [&str; 7] = ["kvm", "xen", "hvf", "hax", "whpx", "nvmm", "mshv"];

/// Refuses arguments that select hardware acceleration, because a machine that hardware executes cannot be recorded. Files
/// that QEMU reads (`-readconfig`) are not checked here; [`start_machine`] asks QEMU itself.
pub fn refuse_acceleration(arguments: &[OsString]) -> Result<(), RecordError> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    for (place, word) in words.iter().enumerate() {
        // QEMU accepts one dash or two before an option. It does not accept `=` after it, but it is handled here
        // because QEMU's error for that is less clear.
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, value),
            None => (option, words.get(place + 1).map_or("", String::as_str)),
        };
        let asks = match option {
            "enable-kvm" => true,
            "accel" => is_hardware(value.split(',').next().unwrap_or_default()) || has_hardware(value),
            "machine" | "M" => has_hardware(value),
            _ => false,
        };
        if asks {
            let value = if word.contains('=') || option == "enable-kvm" { "" } else { value };
            return Err(RecordError::Accelerated(format!("{word} {value}").trim_end().to_owned()));
        }
    }
    Ok(())
}

/// Whether hardware is among the accelerators that QEMU tries in turn (`kvm:tcg`).
fn is_hardware(accelerators: &str) -> bool {
    accelerators.split(':').any(|name| HARDWARE.contains(&name))
}

/// Whether machine properties (`pc,accel=kvm`) select hardware acceleration.
fn has_hardware(properties: &str) -> bool {
    properties.split(',').filter_map(|property| property.strip_prefix("accel=")).any(is_hardware)
}

/// Whether the user wants the machine to be stopped when it starts.
pub fn stays_stopped(arguments: &[OsString]) -> bool {
    arguments.iter().any(|word| word == "-S" || word == "--S")
}

/// The result of an attempt to start a machine.
#[derive(Debug)]
pub enum MachineStart {
    /// The machine runs. Dropping the monitor disconnects it.
    Running { monitor: Monitor },
    /// QEMU ended before the machine could start.
    Ended,
    /// Hardware would execute the machine, so it was not started.
    Accelerated,
}

/// Asks QEMU for the memory layout of the stopped machine, passes it to the plugin, and starts the machine.
pub fn start_machine(listener: &QmpListener, qemu: &Supervised, stays_stopped: bool) -> io::Result<MachineStart> {
    let Some(mut monitor) = listener.accept(|| qemu.status().is_some())? else { return Ok(MachineStart::Ended) };
    if monitor.has_kvm()? {
        return Ok(MachineStart::Accelerated);
    }
    let view = monitor.ask("info mtree -f")?;
    let ranges = ranges(&view);
    if ranges.is_empty() {
        return Err(io::Error::other("QEMU reports no memory (info mtree -f)"));
    }
    let mut regions: Vec<Value> = Vec::new();
    for range in &ranges {
        let answer = monitor.ask(&format!("gpa2hva {:#x}", range.address))?;
        let host =
            hex_after(&answer, " is ").ok_or_else(|| io::Error::other(format!("gpa2hva: QEMU says {answer:?}")))?;
        regions.push(json!({
            "address": range.address, "bytes": range.bytes, "offset": range.offset, "host": host, "name": range.name,
        }));
    }
    files::create_new(&listener.file("memory"))?.write_all(Value::Array(regions).to_string().as_bytes())?;
    if !stays_stopped {
        monitor.resume()?;
    }
    Ok(MachineStart::Running { monitor })
}

/// The interval between checks whether the recording is complete.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until the machine has ended, or until the requested recording is complete. In the second case quits QEMU and
/// returns true.
pub fn end_when_complete(monitor: &mut Monitor, qemu: &Supervised, exchange: &Exchange) -> io::Result<bool> {
    while qemu.status().is_none() {
        if exchange.is_complete() {
            return monitor.quit().map(|()| true);
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(false)
}

/// A range of a machine's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    /// The physical address of the range.
    address: u64,
    bytes: u64,
    /// The offset of the range in its memory block.
    offset: u64,
    /// QEMU's name of the memory block.
    name: String,
}

/// Parses the memory ranges in the output of `info mtree -f`, in the view shared by all devices and processors.
fn ranges(view: &str) -> Vec<Range> {
    let mut found: Vec<Range> = Vec::new();
    let mut is_memory = false;
    for line in view.lines().map(str::trim) {
        if line.starts_with("FlatView") {
            is_memory = false;
        } else if let Some(name) = line.strip_prefix("AS \"") {
            is_memory |= name.starts_with("memory\"");
        } else if let Some(range) = parse_range(line).filter(|_| is_memory) {
            match found.last_mut() {
                Some(before) if before.continues_in(&range) => before.bytes += range.bytes,
                _ => found.push(range),
            }
        }
    }
    found
}

impl Range {
    fn continues_in(&self, next: &Range) -> bool {
        self.name == next.name && self.address + self.bytes == next.address && self.offset + self.bytes == next.offset
    }
}

/// Parses `0000000000100000-0000000003ffffff (prio 0, ram): pc.ram @0000000000100000`
fn parse_range(line: &str) -> Option<Range> {
    let (addresses, rest) = line.split_once(" (")?;
    let (begin, last) = addresses.split_once('-')?;
    let (kind, name) = rest.split_once("): ")?;
    if !kind.ends_with(", ram") {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (name, offset) = match name.split_once(" @") {
        Some((name, offset)) => (name, hex(offset.split(' ').next().unwrap_or_default())?),
        None => (name, 0),
    };
    let (address, last) = (hex(begin)?, hex(last)?);
    let bytes = last.checked_sub(address)?.checked_add(1)?;
    Some(Range { address, bytes, offset, name: name.split(' ').next().unwrap_or_default().to_owned() })
}

fn hex_after(text: &str, mark: &str) -> Option<u64> {
    let (_, number) = text.split_once(mark)?;
    u64::from_str_radix(number.trim().strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: &str = "\
FlatView #0\r
 AS \"cpu-smm-0\", root: memory\r
  0000000000000000-00000000000fffff (prio 0, ram): pc.ram\r
\r
FlatView #1\r
 AS \"memory\", root: system\r
 AS \"cpu-memory-0\", root: system\r
 Root memory region: system\r
  0000000000000000-000000000009ffff (prio 0, ram): pc.ram KVM\r
  00000000000a0000-00000000000bffff (prio 1, i/o): vga-lowmem\r
  00000000000c0000-00000000000dffff (prio 1, rom): pc.rom\r
  0000000000100000-00000000bfffffff (prio 0, ram): pc.ram @0000000000100000\r
  0000000100000000-000000013fffffff (prio 0, ram): pc.ram @00000000c0000000 KVM\r
  0000000140000000-000000014fffffff (prio 0, ram): pc.ram @0000000100000000\r
";

    #[test]
    fn reads_memory_from_the_shared_view() {
        let range = |address, bytes, offset| Range { address, bytes, offset, name: "pc.ram".to_owned() };
        let expected = [
            range(0, 0xa_0000, 0),
            range(0x10_0000, 0xbff0_0000, 0x10_0000),
            range(0x1_0000_0000, 0x5000_0000, 0xc000_0000),
        ];
        assert_eq!(ranges(VIEW), expected);
        assert_eq!(ranges("FlatView #1\n AS \"memory\"\n  zz-1 (prio 0, ram): x\n  5-1 (prio 0, ram): y\n"), []);
    }

    #[test]
    fn reads_the_host_address() {
        assert_eq!(hex_after("Host virtual address for 0x1 (pc.ram) is 0x7f00\r\n", " is "), Some(0x7f00));
        assert_eq!(hex_after("No memory is mapped at address 0x1", " is "), None);
    }

    #[test]
    fn accepts_only_system_emulators() {
        assert_eq!(architecture(Path::new("/usr/bin/qemu-system-aarch64")).unwrap(), Architecture::Aarch64);
        for other in ["/usr/bin/qemu-x86_64", "/usr/bin/qemu-system-sparc", "/bin/true"] {
            assert!(matches!(architecture(Path::new(other)), Err(RecordError::NotASystemEmulator(_))), "{other}");
        }
    }

    #[test]
    fn refuses_hardware_acceleration() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (wrong, refused_word) in [
            ("-enable-kvm", "-enable-kvm"),
            ("--enable-kvm -m 1G", "--enable-kvm"),
            ("-m 1G -accel kvm", "-accel kvm"),
            ("--accel kvm", "--accel kvm"),
            ("-accel=kvm", "-accel=kvm"),
            ("-accel kvm,thread=single", "-accel kvm,thread=single"),
            ("-accel accel=kvm", "-accel accel=kvm"),
            ("-accel tcg -accel xen", "-accel xen"),
            ("-accel tcg:kvm", "-accel tcg:kvm"),
            ("-machine pc,accel=kvm:tcg", "-machine pc,accel=kvm:tcg"),
            ("-machine accel=kvm", "-machine accel=kvm"),
            ("-machine=accel=kvm", "-machine=accel=kvm"),
            ("-M virt,accel=kvm", "-M virt,accel=kvm"),
            ("-M q35,accel=kvm", "-M q35,accel=kvm"),
            ("-M q35 -machine accel=kvm", "-machine accel=kvm"),
        ] {
            let refused = refuse_acceleration(&words(wrong));
            assert!(
                matches!(&refused, Err(RecordError::Accelerated(word)) if word == refused_word),
                "{wrong}: {refused:?}"
            );
        }
        for right in
            ["-accel tcg -machine pc -name kvm", "-M q35,kernel-irqchip=off", "-accel tcg,thread=multi", "-accel"]
        {
            assert!(refuse_acceleration(&words(right)).is_ok(), "{right}");
        }
    }
}
