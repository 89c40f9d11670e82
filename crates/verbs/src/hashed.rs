//! Identifies a file by the hash of its content.

use std::io::{self, Read};
use std::path::Path;

use results::input;
use sha2::{Digest, Sha256};

/// The SHA-256 of a regular file, in hexadecimal.
pub fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut hash) = (input::open(path)?, Sha256::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => hash.update(&buffer[..length]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
