//! The second guest, which boots Debian's installer until udev has set up the devices. QEMU translates three times as much code
//! for it as for a kernel alone, and runs it four times as long.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use guest::cpio;

use super::init::READY_LINE;

/// A script that replaces the installer's own init. It does the same until the devices are set up, and then what the program of the
/// first guest does. It does this only as process 1, so that it cannot power off a real machine by mistake.
const SCRIPT: &str = "#!/bin/sh
[ $$ = 1 ] || exit 1
mount -t tmpfs run /run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
/lib/debian-installer/start-udev
";

/// Makes the initrd from the installer's compressed one. It is decompressed, so that the guest spends no time on that, and the
/// script is appended: a later file replaces an earlier file with the same name
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
pub fn make(compressed: &Path, initrd: &Path) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot unpack {}: {error}", compressed.display());
    let mut file = File::create(initrd).map_err(cannot)?;
    let from = File::open(compressed).map_err(cannot)?;
    let mut gzip = Command::new("gzip");
    gzip.arg("-dc").stdin(from).stdout(file.try_clone().map_err(cannot)?);
    let unpacked = gzip.status().map_err(|error| format!("cannot run gzip: {error}"))?;
    if !unpacked.success() {
        return Err(format!("gzip could not unpack {}", compressed.display()));
    }
    let bytes = file.metadata().map_err(cannot)?.len();
    let mut added = vec![0; (bytes.next_multiple_of(4) - bytes) as usize];
    added.extend(cpio::archive(&[("init", 0o100_755, script().as_bytes())]));
    file.write_all(&added).map_err(cannot)
}

fn script() -> String {
    format!("{SCRIPT}echo '{}'\npoweroff -f\n", READY_LINE.trim_end())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn the_script_is_the_last_file_of_the_archive_and_aligned() {
        let directory = std::env::temp_dir().join(format!("pagelab-xtask-installer-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (compressed, initrd) = (directory.join("in.gz"), directory.join("out"));
        let mut gzip = Command::new("gzip");
        let mut piped = gzip.stdin(Stdio::piped()).stdout(File::create(&compressed).unwrap()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(b"12345").unwrap();
        assert!(piped.wait().unwrap().success());
        make(&compressed, &initrd).unwrap();
        let made = std::fs::read(&initrd).unwrap();
        std::fs::write(&compressed, "no gzip").unwrap();
        let refused = make(&compressed, &initrd);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(made.starts_with(b"12345\0\0\x00070701"), "{:?}", &made[..16]);
        let text = String::from_utf8_lossy(&made);
        assert!(text.contains("start-udev\necho 'pagelab guest: init reached, powering off'\npoweroff -f\n"), "{text}");
        assert!(refused.unwrap_err().contains("could not unpack"));
    }

    #[test]
    fn only_process_1_runs_the_script() {
        let ran = Command::new("sh").args(["-c", &script().replace("poweroff -f", "true")]).output().unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0));
    }
}
