//! Installs Python modules that Debian does not package and that tests use to read files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names the directory of the modules. A test passes it only to its own Python, so that measured programs get
/// their usual environment.
pub const MODULES: &str = "PAGELAB_TEST_MODULES";

/// The version of DuckDB to install, which reads Parquet files.
const VERSION: &str = "2.0.1";
const PACKAGE: &str = "duckdb";
/// The accepted digests of the package: for Python 3.11 and later, on x86-64 and arm64.
const DIGESTS: [&str; 4] = [
    "eb32b389d99d14cbbec4c110f58237c77eacefc65ef6f737619f413c97a91a77",
    "dd8961476eb9e048d1e784eb6bad7aad39304d72b4e4fd8c021f1863b7ee6425",
    "39ffeb136abed770a496e5592a464f18a07b1543e7ddb1ff6453215e179f1647",
    "ba06918b64d4061bd9ed722dc10adf66f9a10f96426e2403db93a36f590ba3dc",
];

/// The directory of the modules, from an earlier run or newly installed.
pub fn find_or_install(root: &Path) -> Result<PathBuf, String> {
    let directory = root.join("target").join(format!("{PACKAGE}-{VERSION}"));
    if is_usable(&directory) {
        return Ok(directory);
    }
    println!("==> installing {PACKAGE} {VERSION}");
    pip_install(&directory, PACKAGE, VERSION, &DIGESTS)?;
    if is_usable(&directory) {
        Ok(directory)
    } else {
        Err(format!("{PACKAGE} {VERSION} is installed, but python3 cannot import it"))
    }
}

fn is_usable(directory: &Path) -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", &format!("import {PACKAGE}")]).env("PYTHONPATH", directory);
    directory.is_dir()
        && python.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Installs exactly this version of a package from the Python package index into a directory, and only files with one of the
/// digests.
pub fn pip_install(directory: &Path, package: &str, version: &str, digests: &[&str]) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let digests: Vec<String> = digests.iter().map(|digest| format!("--hash=sha256:{digest}")).collect();
    let required = directory.join("required.txt");
    let text = format!("{package}=={version} {}\n", digests.join(" "));
    fs::write(&required, text).map_err(|error| format!("{}: {error}", required.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]);
    pip.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--upgrade"]);
    pip.arg("--target").arg(directory).arg("--requirement").arg(&required);
    crate::command::succeed(&mut pip).map_err(|problem| format!("pip cannot install {package} {version}: {problem}"))
}
