//! The architectures for which packages are built ([`Target`]).

use crate::command::is_in_path;

#[derive(Debug, PartialEq)]
pub struct Target {
    /// rustc's name of the target (its triple).
    pub triple: &'static str,
    /// Debian's name of the architecture.
    pub architecture: &'static str,
    /// The C compiler and linker for this target, on a machine of another architecture.
    pub gcc: &'static str,
    /// The Debian packages of that compiler.
    pub packages: &'static str,
}

pub const TARGETS: [Target; 3] = [
    Target {
        triple: "x86_64-unknown-linux-gnu",
        architecture: "amd64",
        gcc: "x86_64-linux-gnu-gcc",
        packages: "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        architecture: "arm64",
        gcc: "aarch64-linux-gnu-gcc",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    },
    Target {
        triple: "riscv64gc-unknown-linux-gnu",
        architecture: "riscv64",
        gcc: "riscv64-linux-gnu-gcc",
        packages: "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    },
];

impl Target {
    /// The target with this triple or architecture.
    pub fn named(name: &str) -> Result<&'static Target, String> {
        let found = TARGETS.iter().find(|target| target.triple == name || target.architecture == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
            format!("unknown target {name:?}; expected one of {}", known.join(", "))
        })
    }

    /// The C compiler for the target, which is also the linker.
    pub fn compiler(&self) -> Result<&'static str, String> {
        let compiler = if self.is_here() { "cc" } else { self.gcc };
        if is_in_path(compiler) {
            return Ok(compiler);
        }
        Err(format!(
            "needs {compiler}, the C compiler and linker for {}; apt-get install {} (where one of them conflicts with \
             what is installed, as gcc-multilib does on Debian 12, build elsewhere)",
            self.architecture, self.packages
        ))
    }

    /// Whether programs for this target run on this machine.
    pub fn is_here(&self) -> bool {
        self.triple.starts_with(std::env::consts::ARCH)
            || (self.architecture == "riscv64" && std::env::consts::ARCH == "riscv64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_two_names() {
        assert_eq!(Target::named("arm64"), Target::named("aarch64-unknown-linux-gnu"));
        assert!(Target::named("sparc64").unwrap_err().contains("riscv64gc-unknown-linux-gnu"));
        assert_eq!(TARGETS.iter().filter(|target| target.is_here()).count(), 1);
    }
}
