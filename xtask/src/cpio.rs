//! An initramfs as the kernel reads it: cpio, "newc" (Documentation/driver-api/early-userspace/buffer-format.rst).

/// Packs files: name, mode and content of each.
pub fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (number, (name, mode, content)) in (1..).zip(files) {
        entry(&mut archive, number, name, *mode, content);
    }
    entry(&mut archive, 0, "TRAILER!!!", 0, &[]);
    archive
}

fn entry(archive: &mut Vec<u8>, inode: u32, name: &str, mode: u32, content: &[u8]) {
    let length = |bytes: usize| u32::try_from(bytes).expect("an initramfs of less than 4 GiB");
    let [user, group, time, major, minor, device_major, device_minor, check] = [0; 8];
    let (links, name_bytes) = (1, length(name.len() + 1));
    let fields = [
        inode,
        mode,
        user,
        group,
        links,
        time,
        length(content.len()),
        major,
        minor,
        device_major,
        device_minor,
        name_bytes,
        check,
    ];
    archive.extend(b"070701");
    fields.iter().for_each(|field| archive.extend(format!("{field:08x}").bytes()));
    archive.extend(name.bytes().chain([0]));
    pad(archive);
    archive.extend(content);
    pad(archive);
}

/// Names and contents begin and end at multiples of 4.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_contents_are_aligned() {
        let archive = archive(&[("init", 0o100_755, b"12345")]);
        let text = String::from_utf8_lossy(&archive);
        assert!(text.starts_with("07070100000001000081ed0000000000000000000000010000000000000005"), "{text}");
        assert_eq!((&text[94..110], text[110..].find("init")), ("0000000500000000", Some(0)));
        assert_eq!(&archive[116..121], b"12345");
        assert_eq!((&text[124..130], archive.len() % 4), ("070701", 0));
        assert!(text.contains("TRAILER!!!"));
    }
}
