//! The guest that does the most: a whole Debian, up and down again. It generates ten times the code of a kernel alone.
//!
//! It is what debootstrap installs, and some services besides, out of packages that are unpacked and not configured: that
//! would take programs of arm64. systemd starts it without: it makes users and directories itself at the first boot.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::init::SAYS;
use crate::cache::Work;
use crate::debian::{Archive, merged, unpack_among};
use guest::cpio;

/// Debian's base system as debootstrap installs it, by apt's patterns, and what a server has beside it.
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
/// Services that their packages would have enabled.
const SERVICES: [&str; 6] =
    ["cron", "e2scrub_reap", "networking", "rsyslog", "systemd-networkd", "unattended-upgrades"];
/// What the boot reads nothing of: it would only fill the guest's memory.
const LEFT_OUT: [&str; 5] = ["boot", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"];

/// Says that the system is up, and takes it down.
fn unit() -> String {
    format!(
        "[Unit]\nDescription=Powers off as soon as the system is up\nAfter=multi-user.target\n\n[Service]\nType=oneshot\n\
         StandardOutput=tty\nTTYPath=/dev/console\nExecStart=/bin/echo '{}'\n\
         ExecStart=/bin/systemctl --no-block poweroff\n",
        SAYS.trim_end()
    )
}

/// Makes the initrd out of the newest packages, and returns what it is, as one word.
///
/// # Errors
/// apt's, and what cannot be unpacked or written.
pub fn make(archive: &Archive, work: &Work, initrd: &Path) -> Result<String, String> {
    let packages = archive.fetch_all(&PACKAGES, work)?;
    let root = work.path.join("root");
    let cannot = |error: io::Error| format!("cannot make {}: {error}", root.display());
    merged(&root).map_err(cannot)?;
    packages.iter().try_for_each(|package| unpack_among(package, &root))?;
    configured(&root).map_err(cannot)?;
    let cannot = |error: io::Error| format!("cannot make {}: {error}", initrd.display());
    let mut file = BufWriter::new(File::create(initrd).map_err(cannot)?);
    cpio::of_directory(&root, &LEFT_OUT, &mut file).map_err(cannot)?;
    file.into_inner().map_err(|error| cannot(error.into_error()))?;
    Ok(name(archive, &packages))
}

/// Release, architecture, how many packages, and a number that changes with any version of them.
fn name(archive: &Archive, packages: &[PathBuf]) -> String {
    let files = packages.iter().flat_map(|package| package.file_name());
    // FNV-1a, 64 bits (Fowler, Noll, Vo): it tells builds apart, and guards against nobody.
    let bytes = files.flat_map(|file| file.as_encoded_bytes().iter().chain(b"\n"));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("debian-{}-{}_{}_packages_{hash:016x}", archive.release, archive.architecture, packages.len())
}

/// What configuring the packages, and an installer, would have left.
fn configured(root: &Path) -> io::Result<()> {
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
        // The console is for the line of the unit.
        ("etc/systemd/system.conf.d/pagelab.conf", "[Manager]\nShowStatus=no\n".to_owned()),
        ("etc/hostname", "debian\n".to_owned()),
        ("etc/fstab", String::new()),
        // One that is there: without it the first boot asks at the console.
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
        assert!(configured(root).is_err(), "there is no list of groups");
        fs::remove_dir_all(root.join("etc")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("usr/share/base-passwd/group.master"), "root:*:0:\n").unwrap();
        configured(root).unwrap();
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
