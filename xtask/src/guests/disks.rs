//! The disks of a guest, each with a file system, and the modules that the guest needs to mount them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::is_in_path;
use crate::command::succeed;

/// The file systems, in the order of the disks, each with the program that makes it and the package of that program.
const FILE_SYSTEMS: [(&str, &str, &str); 3] =
    [("ext4", "mkfs.ext4", "e2fsprogs"), ("xfs", "mkfs.xfs", "xfsprogs"), ("btrfs", "mkfs.btrfs", "btrfs-progs")];

/// The size of a disk. It is larger than the smallest file system that `mkfs.xfs` makes, and than two files of the size
/// of a 512M PMD leaf.
const DISK_BYTES: u64 = 2 << 30;

/// The modules for disks, file systems and zram. The file systems need crc32c, and zram needs lzo-rle; the kernel would request these
/// two by name from modprobe, which the guest does not have.
const MODULES: [&str; 12] = [
    "virtio_pci",
    "virtio_blk",
    "crc32c_generic",
    "crc32c_cryptoapi",
    "xxhash_generic",
    "ext4",
    "xfs",
    "btrfs",
    "overlay",
    "lzo",
    "lzo_rle",
    "zram",
];

/// The files of the modules in the guest, and the list of their names in the order in which they are loaded.
pub fn modules(kernel: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let image = guest::Image::read(kernel).map_err(|error| error.to_string())?;
    let found = guest::existing_modules(&image, &MODULES).map_err(|error| error.to_string())?;
    let order: Vec<String> = found.iter().map(|module| format!("{}.ko\n", module.name)).collect();
    let mut files = vec![("modules/order".to_owned(), order.concat().into_bytes())];
    files.extend(found.into_iter().map(|module| (format!("modules/{}.ko", module.name), module.content)));
    Ok(files)
}

/// The image of each file system, made if it is missing.
pub fn images(directory: &Path) -> Result<Vec<PathBuf>, String> {
    FILE_SYSTEMS.iter().map(|(name, program, package)| image(directory, name, program, package)).collect()
}

fn image(directory: &Path, name: &str, program: &str, package: &str) -> Result<PathBuf, String> {
    let path = directory.join(name).with_extension("disk");
    if path.is_file() {
        return Ok(path);
    }
    if !is_in_path(program) {
        return Err(format!("needs {program}; apt-get install {package}"));
    }
    let partial = path.with_extension("partial");
    let made = File::create(&partial).and_then(|file| file.set_len(DISK_BYTES));
    made.map_err(|error| format!("cannot make {}: {error}", partial.display()))?;
    succeed(Command::new(program).arg("-q").arg(&partial))?;
    fs::rename(&partial, &path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    Ok(path)
}
