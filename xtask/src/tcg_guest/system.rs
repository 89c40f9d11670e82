//! The largest guest, which boots a whole Debian and shuts it down. QEMU translates ten times as much code for it as for a
//! kernel alone.
//!
//! It contains the packages that debootstrap installs and some services. The packages are unpacked but not configured, because
//! configuring runs arm64 programs. systemd boots the system anyway: it creates users and directories at the first boot.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::init::READY_LINE;
use crate::cache::Work;
use crate::debian::{Archive, merged, unpack_among};
use guest::cpio;

/// apt patterns for Debian's base system as debootstrap installs it, and for typical packages of a server.
const PACKAGES: [&str; 9] = [
    "?essential",
    "?priority(required)",
    "?priority(important)",
    "systemd-sysv",
    "dbus",
    "udev",
    "polkitd",
    "rsyslog",
    "unattended-upgrades",
];
/// Services that would be enabled by configuring their packages.
const SERVICES: [&str; 6] =
    ["cron", "e2scrub_reap", "networking", "rsyslog", "systemd-networkd", "unattended-upgrades"];
/// Directories that are left out, because the boot does not read them and they would only fill the guest's memory.
const LEFT_OUT: [&str; 5] = ["boot", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"];

/// The systemd unit that prints that the system is up, and shuts it down.
fn unit() -> String {
    format!(
        "[Unit]\nDescription=Powers off as soon as the system is up\nAfter=multi-user.target\n\n[Service]\nType=oneshot\n\
         StandardOutput=tty\nTTYPath=/dev/console\nExecStart=/bin/echo '{}'\n\
         ExecStart=/bin/systemctl --no-block poweroff\n",
        READY_LINE.trim_end()
    )
}

/// Makes the initrd from the newest packages, and returns its description as one word.
pub fn make(archive: &Archive, work: &Work, initrd: &Path) -> Result<String, String> {
    let packages = archive.fetch_all(&PACKAGES, work)?;
    let root = work.path.join("root");
    let cannot = |error: io::Error| format!("cannot make {}: {error}", root.display());
    merged(&root).map_err(cannot)?;
    packages.iter().try_for_each(|package| unpack_among(package, &root))?;
    configure(&root).map_err(cannot)?;
    let cannot = |error: io::Error| format!("cannot make {}: {error}", initrd.display());
    let mut file = BufWriter::new(File::create(initrd).map_err(cannot)?);
    cpio::of_directory(&root, &LEFT_OUT, &mut file).map_err(cannot)?;
    file.into_inner().map_err(|error| cannot(error.into_error()))?;
    Ok(name(archive, &packages))
}

/// A description in one word: the release, the architecture, the number of packages, and a hash of their versions.
fn name(archive: &Archive, packages: &[PathBuf]) -> String {
    let files = packages.iter().flat_map(|package| package.file_name());
    // FNV-1a, 64 bits (Fowler, Noll, Vo). It only distinguishes builds; it is not a security measure.
    let bytes = files.flat_map(|file| file.as_encoded_bytes().iter().chain(b"\n"));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("debian-{}-{}_{}_packages_{hash:016x}", archive.release, archive.architecture, packages.len())
}

/// Makes the files that configuring the packages, and an installer, would have made.
fn configure(root: &Path) -> io::Result<()> {
    let units = root.join("etc/systemd/system");
    let wanted = units.join("multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    fs::create_dir_all(units.join("graphical.target.wants"))?;
    fs::create_dir_all(root.join("etc/systemd/system.conf.d"))?;
    for list in ["passwd", "group"] {
        fs::copy(root.join(format!("usr/share/base-passwd/{list}.master")), root.join("etc").join(list))?;
    }
    for service in SERVICES {
        symlink(format!("/lib/systemd/system/{service}.service"), wanted.join(format!("{service}.service")))?;
    }
    symlink("/lib/systemd/system/rsyslog.service", units.join("syslog.service"))?;
    symlink("../pagelab.service", units.join("graphical.target.wants/pagelab.service"))?;
    symlink("sbin/init", root.join("init"))?;
    let files = [
        ("etc/systemd/system/pagelab.service", unit()),
        // Keeps systemd's messages off the console, on which only the line of the unit is expected.
        ("etc/systemd/system.conf.d/pagelab.conf", "[Manager]\nShowStatus=no\n".to_owned()),
        ("etc/hostname", "debian\n".to_owned()),
        ("etc/fstab", String::new()),
        // This file must exist. Without it the first boot asks questions on the console.
        ("etc/machine-id", format!("{:032x}\n", 0x7061_6765_6c61_6221_u64)),
    ];
    files.iter().try_for_each(|(name, content)| fs::write(root.join(name), content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    #[test]
    fn a_root_is_configured_once_and_starts_its_services() {
        let scratch = Scratch::new("system");
        let root = &scratch.0;
        merged(root).unwrap();
        fs::create_dir_all(root.join("usr/share/base-passwd")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("usr/share/base-passwd/passwd.master"), "root:*:0:0::/root:/bin/sh\n").unwrap();
        assert!(configure(root).is_err(), "there is no list of groups");
        fs::remove_dir_all(root.join("etc")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("usr/share/base-passwd/group.master"), "root:*:0:\n").unwrap();
        configure(root).unwrap();
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        assert!(
            read("etc/systemd/system/pagelab.service").contains("echo 'pagelab guest: init reached, powering off'\n")
        );
        assert_eq!(read("etc/machine-id").trim_end().len(), 32);
        assert_eq!(fs::read_link(root.join("lib")).unwrap(), Path::new("usr/lib"));
        let services = fs::read_dir(root.join("etc/systemd/system/multi-user.target.wants")).unwrap();
        assert_eq!(services.count(), SERVICES.len());
    }
}
