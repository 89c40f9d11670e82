//! [`KernelConfig`]: the kernel's configuration, from /proc/config.gz or the file that distributions keep in /boot.

use std::io::{self, Read};

use flate2::read::GzDecoder;
use policy::size::format_bytes;

use crate::{Host, Root};

/// A configuration has some hundred kilobytes; a longer file is not one.
const MAX_BYTES: u64 = 8 << 20;

/// The kernel's configuration, where it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// The file that it was read from; absent where there is none.
    pub file: Option<String>,
    /// Why an existing file was not read.
    pub problem: Option<String>,
    text: String,
}

impl KernelConfig {
    pub fn read(host: &Host) -> KernelConfig {
        let release = host.root().required("/proc/sys/kernel/osrelease");
        let mut problem = release.as_ref().err().map(ToString::to_string);
        let of_release = release.iter().map(|release| format!("/boot/config-{}", release.trim()));
        for path in std::iter::once("/proc/config.gz".to_string()).chain(of_release) {
            match content(host.root(), &path) {
                Ok(text) => return KernelConfig { file: Some(path), problem: None, text },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => problem = problem.or(Some(format!("{path}: {error}"))),
            }
        }
        KernelConfig { file: None, problem, text: String::new() }
    }

    /// The value of an option (`CONFIG_SECRETMEM`): `y`, `m`, a number; `n` if the file marks it as not set or omits it; `None` if
    /// there is no file.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.file.as_ref()?;
        let value = |line| str::strip_prefix(line, option)?.strip_prefix('=');
        Some(self.text.lines().find_map(value).unwrap_or("n"))
    }
}

/// The complete configuration, unpacked if necessary. A part would make options look unset.
fn content(root: &Root, path: &str) -> io::Result<String> {
    let file = root.file(path)?;
    let is_packed = path.ends_with(".gz");
    let mut bytes = Vec::new();
    if is_packed {
        GzDecoder::new(file).take(MAX_BYTES + 1).read_to_end(&mut bytes)?
    } else {
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?
    };
    if bytes.len() as u64 > MAX_BYTES {
        let greatest = format_bytes(MAX_BYTES);
        return Err(io::Error::other(format!("expected the configuration of a kernel, found more than {greatest}")));
    }
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::fs;
    use std::io::Write;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_configuration_is_read_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let (plain, gz) = ("/config-6.18", "/config.gz");
        let mut text = b"CONFIG_SECRETMEM=y\n".to_vec();
        text.resize(MAX_BYTES as usize, b'\n');
        for (path, of) in [(plain, &(|text: &[u8]| text.to_vec()) as &dyn Fn(&[u8]) -> Vec<u8>), (gz, &packed)] {
            fs::write(root.under(path), of(&text)).unwrap();
            assert_eq!(content(&root, path).unwrap().len() as u64, MAX_BYTES);
            fs::write(root.under(path), of(&[&text[..], b"\n"].concat())).unwrap();
            assert!(content(&root, path).unwrap_err().to_string().contains("found more than 8M"));
        }
        let half = packed(b"CONFIG_SECRETMEM=y\n");
        fs::write(root.under(gz), &half[..half.len() / 2]).unwrap();
        assert!(content(&root, gz).is_err());
        assert_eq!(content(&root, "/none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
