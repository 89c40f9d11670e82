//! [`Machine`]: the virtual machine of a guest, which becomes arguments of QEMU.

use std::path::PathBuf;

use crate::image::Architecture;
use crate::{FIRST, PORT};

/// How the instructions of a guest are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the host's processor, with KVM.
    Kvm,
    /// By QEMU's translator (TCG).
    Emulation,
    /// By QEMU's translator, on one processor whose clock advances by exactly one nanosecond per instruction.
    Counting,
}

/// The virtual machine of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The architecture of the guest.
    pub architecture: Architecture,
    /// How the guest's instructions are executed.
    pub accelerator: Accelerator,
    /// Memory of the guest, in bytes.
    pub memory_bytes: u64,
    pub cpus: u32,
    /// Additional words of the kernel's command line.
    pub kernel_words: Vec<String>,
    /// The directory that the guest sees as its files, read-only.
    pub files: PathBuf,
    /// Whether all boots of an image begin equal: the kernel randomises no address, and the machine's random numbers and its calendar
    /// are the same in every boot.
    pub is_reproducible: bool,
}

/// Words of the kernel's command line that turn off the randomisation of addresses, of the kernel's and of programs'.
const NOT_RANDOM: [&str; 2] = ["nokaslr", "norandmaps"];
/// QEMU's arguments for equal boots: the seed of the random numbers that the guest gets (RDRAND, RNDR, the seed that the boot loader
/// passes on), and a calendar that begins at the same second and advances with the guest's instructions.
const EQUAL_BOOTS: [&str; 4] = ["-seed", "1", "-rtc", "base=2026-01-01,clock=vm"];

/// The 9p mount tag of the host's files.
pub(crate) const TAG: &str = "pagelab-host";

impl Architecture {
    /// The program name of QEMU, and Debian's package that contains it.
    pub fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Architecture::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Architecture::Arm64 => ("qemu-system-aarch64", "qemu-system-arm"),
            Architecture::Riscv64 => ("qemu-system-riscv64", "qemu-system-misc"),
        }
    }

    /// The kernel's name of the console device.
    fn console(self) -> &'static str {
        match self {
            Architecture::X86_64 | Architecture::Riscv64 => "ttyS0",
            Architecture::Arm64 => "ttyAMA0",
        }
    }

    fn board(self, accelerator: Accelerator) -> &'static str {
        match (self, accelerator) {
            (Architecture::X86_64, _) => "q35",
            (Architecture::Arm64, Accelerator::Kvm) => "virt,gic-version=host",
            (Architecture::Arm64, _) => "virt,gic-version=3",
            (Architecture::Riscv64, _) => "virt",
        }
    }

    fn processor(self, accelerator: Accelerator) -> &'static str {
        match (self, accelerator) {
            (_, Accelerator::Kvm) => "host",
            (Architecture::X86_64, _) => "max",
            // `pauth-impdef` is a cheap implementation of pointer authentication. The default one takes half of the time.
            (Architecture::Arm64, _) => "max,pauth-impdef=on,lpa2=off",
            (Architecture::Riscv64, _) => "rv64,svnapot=on",
        }
    }

    /// Further words of the kernel's command line. At boot on x86-64 the kernel waits for timer ticks, and panics if QEMU delivers
    /// none meanwhile, which happens on a busy host.
    fn kernel_words(self, accelerator: Accelerator) -> &'static [&'static str] {
        match (self, accelerator) {
            (Architecture::X86_64, Accelerator::Emulation | Accelerator::Counting) => &["no_timer_check"],
            _ => &[],
        }
    }
}

impl Machine {
    /// QEMU's arguments. The initrd is standard input, the port is standard output, and the console is standard error. QEMU opens
    /// each of them again by its name in /proc, so none of them needs a file with a name.
    pub fn words(&self, kernel: &str) -> Vec<String> {
        let Machine { architecture, accelerator, memory_bytes, cpus, .. } = self;
        let accel = match accelerator {
            Accelerator::Kvm => "kvm",
            // --icount requires one thread for all processors.
            Accelerator::Emulation => "tcg",
            Accelerator::Counting => "tcg,thread=single",
        };
        let pairs = [
            ("-machine", architecture.board(*accelerator).to_owned()),
            ("-cpu", architecture.processor(*accelerator).to_owned()),
            ("-accel", accel.to_owned()),
            ("-m", format!("{}M", memory_bytes >> 20)),
            ("-smp", cpus.to_string()),
            ("-display", "none".to_owned()),
            ("-monitor", "none".to_owned()),
            ("-serial", "file:/proc/self/fd/2".to_owned()),
            ("-fsdev", self.share()),
            ("-device", format!("virtio-9p-pci,fsdev=host,mount_tag={TAG}")),
            ("-chardev", "file,id=port,path=/proc/self/fd/1".to_owned()),
            ("-device", "virtio-serial-pci".to_owned()),
            ("-device", format!("virtserialport,chardev=port,name={PORT}")),
            ("-kernel", kernel.to_owned()),
            ("-initrd", "/proc/self/fd/0".to_owned()),
            ("-append", self.command_line()),
        ];
        let mut words: Vec<String> = pairs.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
        if *accelerator == Accelerator::Counting {
            words.extend(["-icount", "shift=0,sleep=off"].map(str::to_owned));
        }
        if self.is_reproducible {
            words.extend(EQUAL_BOOTS.map(str::to_owned));
        }
        words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
        words
    }

    /// The directory in the syntax of a QEMU option: a comma in a path is doubled.
    fn share(&self) -> String {
        let path = self.files.display().to_string().replace(',', ",,");
        format!("local,id=host,path={path},security_model=none,readonly=on,multidevs=remap")
    }

    /// The kernel's command line. The words after `--` are arguments of the first process.
    fn command_line(&self) -> String {
        let own =
            [format!("console={}", self.architecture.console()), "panic=-1".to_owned(), "rdinit=/pagelab".to_owned()];
        let fixed = self.architecture.kernel_words(self.accelerator).iter().map(|word| (*word).to_owned());
        let not_random = if self.is_reproducible { &NOT_RANDOM[..] } else { &[] };
        let fixed = fixed.chain(not_random.iter().map(|word| (*word).to_owned()));
        let words = own.into_iter().chain(fixed).chain(self.kernel_words.iter().cloned());
        format!("{} -- {FIRST}", words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(architecture: Architecture, accelerator: Accelerator) -> Machine {
        let kernel_words = vec!["transparent_hugepage=never".to_owned()];
        let files = "/a,b".into();
        Machine {
            architecture,
            accelerator,
            memory_bytes: 4 << 30,
            cpus: 1,
            kernel_words,
            files,
            is_reproducible: false,
        }
    }

    #[test]
    fn reproducible_boots_have_one_seed_and_no_randomisation() {
        let machine = machine(Architecture::X86_64, Accelerator::Counting);
        assert!(!machine.words("/boot/vmlinuz").join(" ").contains("-seed"));
        let words = Machine { is_reproducible: true, ..machine }.words("/boot/vmlinuz").join(" ");
        for part in ["-seed 1", "clock=vm", "nokaslr norandmaps transparent_hugepage=never"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn the_host_is_read_only_and_the_clock_counts_where_it_was_asked_for() {
        let words = machine(Architecture::X86_64, Accelerator::Counting).words("/boot/vmlinuz").join(" ");
        for part in [
            "-m 4096M -smp 1",
            "path=/a,,b,security_model=none,readonly=on",
            "-icount shift=0,sleep=off",
            "-initrd /proc/self/fd/0",
            "no_timer_check transparent_hugepage=never -- guest-first",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let words = machine(Architecture::Arm64, Accelerator::Kvm).words("/boot/vmlinuz").join(" ");
        assert!(words.contains("-accel kvm") && words.contains("-cpu host") && words.contains("console=ttyAMA0"));
        assert!(!words.contains("icount") && !words.contains("no_timer_check"), "{words}");
    }
}
