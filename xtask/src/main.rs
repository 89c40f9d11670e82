//! Tasks of the workspace. `cargo xtask test` runs all tests. `cargo xtask tidy` runs only the checks of rules that no compiler
//! checks. `cargo xtask truth` compares programs on the running kernel with their simulations. `cargo xtask docs` builds the book,
//! and `cargo xtask dist` builds for other machines. `cargo xtask guests` boots other kernels. `cargo xtask kvm-arm64` measures
//! changes of KVM, `cargo xtask base-pages` and `contpte` compare kernels that are built from one source, and `cargo xtask tcg-guest` makes the
//! guest of a workload.
#![forbid(unsafe_code)]

mod cache;
mod command;
mod debian;
mod dist;
mod docs;
mod guests;
mod kernel_studies;
mod kvm_arm64;
mod linux;
mod tcg_guest;
mod test;
mod tidy;
mod truth;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str =
    "usage: cargo xtask test [--quick | --soak N] | tidy [--draw] [--root DIR] | truth [...] | docs [...] | dist [...] | guests [...] | kvm-arm64 [...] | base-pages [...] | contpte [...] | tcg-guest [--again] [--system]
  test       install or list the Debian packages that the tests need; run tidy, rustfmt, clippy and all tests; see `test --help`
  tidy       check the rules of this workspace: dependencies between crates and files, unsafe code, links, leftovers;
             --root checks another checkout; --draw writes the graph of the crates to docs/reference/modules.md
  truth      compare programs on the running kernel with their simulations, as root; see `truth --help`
  docs       build the book as a site, and check its links and the age of its outputs; see `docs --help`
  dist       build static, reproducible programs for x86-64, arm64 and riscv64; see `dist --help`
  guests     run the same checks on Debian's kernels in QEMU; see `guests --help`
  kvm-arm64  measure KVM's eager split on arm64, built from Linux's source with changes of its walk; see `kvm-arm64 --help`
  base-pages build Linux for arm64 with base pages of 4K, 16K and 64K, and study the same programs on all; see `base-pages --help`
  contpte    build Linux for arm64 without and with contiguous PTEs, and count what they cost; see `contpte --help`
  tcg-guest  fetch and assemble the arm64 Linux of `pagelab workload tcg-boot`, and print its directory;
             --system also makes the whole Debian of --until system, which takes 250 MB";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test", ..] => test::run(&root, &arguments[1..]),
        ["tidy"] => tidy::run(&root),
        ["tidy", "--draw"] => tidy::draw(&root),
        ["tidy", "--root", other] => tidy::run(Path::new(other)),
        ["tidy", "--draw", "--root", other] => tidy::draw(Path::new(other)),
        ["truth", ..] => truth::run(&root, &arguments[1..]),
        ["docs", ..] => docs::run(&root, &arguments[1..]),
        ["dist", ..] => dist::run(&root, &arguments[1..]),
        ["guests", ..] => guests::run(&root, &arguments[1..]),
        ["base-pages", ..] => kernel_studies::BASE_PAGES.run(&root, &arguments[1..]),
        ["contpte", ..] => kernel_studies::CONTPTE.run(&root, &arguments[1..]),
        ["kvm-arm64", ..] => kvm_arm64::run(&root, &arguments[1..]),
        ["tcg-guest", options @ ..] if options.iter().all(|option| ["--again", "--system"].contains(option)) => {
            let is_given = |option: &str| options.contains(&option);
            tcg_guest::run(tcg_guest::GuestParts { again: is_given("--again"), system: is_given("--system") })
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The parent directory of this package, which cargo passes in the environment.
fn workspace_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|directory| directory.parent().map(Path::to_path_buf)).unwrap_or_else(|| PathBuf::from("."))
}

/// The cargo that runs this program, in the workspace directory.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}
