//! The Debian packages that the tests use, and their installation.

use crate::command::is_in_path;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

/// A package, and how to detect that it is installed.
struct Package {
    /// The package's name in Debian.
    name: &'static str,
    /// A program or a file of the package, by which it is found to be installed. A program is searched in PATH and in
    /// the administrator's directories.
    marker: &'static str,
    /// What tests use it for.
    reason: &'static str,
}

const PACKAGES: [Package; 39] = [
    Package { name: "chromium", marker: "chromium", reason: "the HTML report as a browser shows it" },
    Package { name: "gcc", marker: "gcc", reason: "test programs in C, and a compile as a measured command" },
    Package { name: "gcc-aarch64-linux-gnu", marker: "aarch64-linux-gnu-gcc", reason: "an arm64 program to record" },
    Package { name: "gcc-riscv64-linux-gnu", marker: "riscv64-linux-gnu-gcc", reason: "a riscv64 program to record" },
    Package { name: "gdb", marker: "gdb", reason: "the error for a program that a debugger already traces" },
    Package { name: "gnugo", marker: "/usr/games/gnugo", reason: "a game against itself, as a program of a suite" },
    Package { name: "golang-go", marker: "go", reason: "a Go program: static, threaded, preempted by signals" },
    Package { name: "iperf3", marker: "iperf3", reason: "a server and client of a suite" },
    Package { name: "libc6-dev", marker: "/usr/include/stdio.h", reason: "test programs in C" },
    Package {
        name: "libc6-dev-arm64-cross",
        marker: "/usr/aarch64-linux-gnu/include/stdint.h",
        reason: "arm64 programs in C",
    },
    Package {
        name: "libc6-dev-riscv64-cross",
        marker: "/usr/riscv64-linux-gnu/include/stdint.h",
        reason: "riscv64 programs in C",
    },
    Package { name: "liblemon-utils", marker: "dimacs-solver", reason: "network simplex, as a program of a suite" },
    Package {
        name: "libquantum-dev",
        marker: "/usr/include/quantum.h",
        reason: "a program of a suite that is compiled first",
    },
    Package { name: "make", marker: "make", reason: "make -j2 as a measured tree of processes" },
    Package { name: "mariadb-server", marker: "/usr/sbin/mariadbd", reason: "a database as a measured server" },
    Package { name: "munge", marker: "munged", reason: "authentication of users in the Slurm of the tests" },
    Package { name: "musl-tools", marker: "musl-gcc", reason: "static and static-pie programs" },
    Package { name: "postgresql", marker: "pg_isready", reason: "a database as a measured server" },
    Package { name: "postgresql-contrib", marker: "pgbench", reason: "the client of that database" },
    Package { name: "procps", marker: "pgrep", reason: "tests look for processes that were left behind" },
    Package { name: "prometheus", marker: "promtool", reason: "Prometheus reads the exported OpenMetrics" },
    Package { name: "python3", marker: "python3", reason: "an interpreter as a measured command" },
    Package { name: "python3-pip", marker: "pip3", reason: "nextest, which runs the tests, comes as a Python package" },
    Package {
        name: "qemu-system-arm",
        marker: "qemu-system-aarch64",
        reason: "an oracle of arm64 page tables, and of TCG regions",
    },
    Package { name: "qemu-system-misc", marker: "qemu-system-riscv64", reason: "an oracle of RISC-V page tables" },
    Package { name: "qemu-system-x86", marker: "qemu-system-x86_64", reason: "an oracle of x86-64 page tables" },
    Package { name: "qemu-user", marker: "qemu-x86_64", reason: "programs are recorded in it" },
    Package { name: "redis-server", marker: "redis-server", reason: "a server that disables THP for itself" },
    Package { name: "redis-tools", marker: "redis-benchmark", reason: "the client that drives the server" },
    Package {
        name: "sjeng",
        marker: "/usr/games/sjeng",
        reason: "a program of a suite that keeps files in the home directory",
    },
    Package { name: "slurm-client", marker: "sbatch", reason: "studies are submitted to a real Slurm of one node" },
    Package { name: "slurmctld", marker: "slurmctld", reason: "the controller of that Slurm" },
    Package { name: "slurmd", marker: "slurmd", reason: "the node of that Slurm" },
    Package { name: "sqlite3", marker: "sqlite3", reason: "stores are read and damaged by another program" },
    Package { name: "strace", marker: "strace", reason: "the error for a program that strace already traces" },
    Package { name: "sysbench", marker: "sysbench", reason: "the client of a database" },
    Package { name: "tmux", marker: "tmux", reason: "a real terminal for the live view" },
    Package { name: "util-linux", marker: "setpriv", reason: "running as another user, in other namespaces" },
    Package { name: "xz-utils", marker: "xz", reason: "a compressor as a measured command" },
];

/// The script that Debian runs to decide whether the installation of a package may start its service (invoke-rc.d(8)).
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs missing packages if this is root on Debian; otherwise prints their names. Returns the packages that are still
/// missing.
pub fn install_or_name() -> Vec<String> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| !is_there(package)).collect();
    if !missing.is_empty() && is_debian_root() {
        println!("==> installing {} Debian packages that the tests use:", missing.len());
        missing.iter().for_each(|package| println!("      {}: {}", package.name, package.reason));
        let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
        if let Err(problem) = install(&names) {
            eprintln!("xtask: {problem}; the tests that need the packages are skipped");
        }
    }
    let still_missing = missing.into_iter().filter(|package| !is_there(package));
    still_missing.map(|package| format!("{} ({}); apt-get install {0}", package.name, package.reason)).collect()
}

/// Whether every package must be installed, so that no test is skipped. True on a CI machine that can install all
/// packages.
pub fn must_have_all() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true") && is_debian_root()
}

fn is_there(package: &Package) -> bool {
    if package.marker.starts_with('/') {
        return Path::new(package.marker).exists();
    }
    is_in_path(package.marker)
}

fn is_debian_root() -> bool {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_debian(&release) && effective_uid(&status) == Some(0)
}

fn is_debian(release: &str) -> bool {
    let value =
        |key: &str| release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
    let words = format!("{} {}", value("ID"), value("ID_LIKE"));
    words.split([' ', '"', '\'']).any(|word| word == "debian")
}

fn effective_uid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

fn install(names: &[&str]) -> Result<(), String> {
    let _services_stay_off = ServicesStayOff::begin();
    apt_get(&["update", "-q"])?;
    let options = ["install", "-q", "-y", "--no-install-recommends"];
    apt_get(&[&options, names].concat())
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    crate::command::succeed(&mut command).map_err(|problem| format!("apt-get {}: {problem}", arguments[0]))
}

/// While this exists, newly installed packages do not start their services: a system redis would use the port and the memory that
/// tests need. An existing policy is kept.
struct ServicesStayOff {
    made: bool,
}

impl ServicesStayOff {
    fn begin() -> ServicesStayOff {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        let made = file.and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n")).is_ok();
        ServicesStayOff { made }
    }
}

impl Drop for ServicesStayOff {
    fn drop(&mut self) {
        if self.made
            && let Err(error) = std::fs::remove_file(POLICY)
        {
            eprintln!(
                "xtask: cannot remove {POLICY}: {error}; remove it, or services do not start after an installation"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_debian_and_its_derivatives() {
        assert!(is_debian("NAME=x\nID=debian\n") && is_debian("ID=ubuntu\nID_LIKE=\"debian\"\n"));
        assert!(!is_debian("ID=fedora\n") && !is_debian("ID=notdebian\n") && !is_debian(""));
    }

    #[test]
    fn the_effective_user_decides() {
        assert_eq!(effective_uid("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_uid("Uid:\t0\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_uid(""), None);
    }

    #[test]
    fn packages_are_sorted_and_each_has_a_reason() {
        assert!(PACKAGES.is_sorted_by_key(|package| package.name));
        assert!(PACKAGES.iter().all(|package| !package.reason.is_empty()));
        let absent = Package { name: "x", marker: "no-such-program-anywhere", reason: "" };
        assert!(!is_there(&absent) && is_there(&Package { marker: "sh", ..absent }));
    }
}
