//! [`Debugger`]: reads registers and physical memory of a stopped guest over the GDB remote protocol (GDB manual,
//! appendix "GDB Remote Serial Protocol").

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The timeout for a reply from QEMU.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to QEMU's GDB stub. The guest is stopped until this is dropped.
pub struct Debugger {
    stream: BufReader<UnixStream>,
}

impl Debugger {
    /// Connects to the GDB stub that listens on a Unix socket. This stops the guest.
    pub fn stop(socket: &Path) -> Result<Debugger, String> {
        let cannot = |error: std::io::Error| format!("no debugger at {}: {error}", socket.display());
        let stream = UnixStream::connect(socket).map_err(cannot)?;
        stream
            .set_read_timeout(Some(REPLY_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(REPLY_TIMEOUT)))
            .map_err(cannot)?;
        let mut debugger = Debugger { stream: BufReader::new(stream) };
        debugger.ask("qSupported")?;
        debugger.ask("?")?;
        Ok(debugger)
    }

    /// Reads the register `name` of a processor. Processors are numbered from 1.
    pub fn register(&mut self, processor: u32, name: &str) -> Result<u64, String> {
        if self.ask(&format!("Hgp1.{processor:x}"))? != "OK" && self.ask(&format!("Hg{processor:x}"))? != "OK" {
            return Err(format!("no processor {processor}"));
        }
        let number = self.register_number(name)?;
        let answer = self.ask(&format!("p{number:x}"))?;
        let bytes = decode_hex(&answer).ok_or_else(|| format!("{name}: {answer}"))?;
        Ok(little_endian(&bytes))
    }

    /// The number of a register in the protocol. The target description consists of several documents. A register
    /// without the attribute `regnum` has the number after that of the register before it, even if that one is in the
    /// previous document.
    fn register_number(&mut self, name: &str) -> Result<u64, String> {
        let target = self.document("target.xml")?;
        let included = target.split("<xi:include href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut next = 0;
        for file in included.map(str::to_owned).collect::<Vec<_>>() {
            let document = self.document(&file)?;
            for tag in document.split("<reg ").skip(1).filter_map(|rest| rest.split('>').next()) {
                let number = attribute(tag, "regnum").and_then(|number| number.parse().ok()).unwrap_or(next);
                if attribute(tag, "name") == Some(name) {
                    return Ok(number);
                }
                next = number + 1;
            }
        }
        Err(format!("the machine has no register {name}"))
    }

    fn document(&mut self, name: &str) -> Result<String, String> {
        let mut document = String::new();
        loop {
            let part = self.ask(&format!("qXfer:features:read:{name}:{:x},400", document.len()))?;
            document.push_str(part.get(1..).unwrap_or_default());
            match part.bytes().next() {
                Some(b'm') => {}
                Some(b'l') => return Ok(document),
                _ => return Err(format!("expected registers in {name}, found {part}")),
            }
        }
    }

    /// Reads 8-byte words of physical memory.
    pub fn words(&mut self, address: u64, count: u64) -> Result<Vec<u64>, String> {
        let mode = self.ask("Qqemu.PhyMemMode:1")?;
        if mode != "OK" {
            return Err(format!("expected OK for physical memory (QEMU 4.1 and later), found {mode:?}"));
        }
        let mut words = Vec::new();
        for first in (0..count).step_by(64) {
            let bytes = (count - first).min(64) * 8;
            let at = address + first * 8;
            let answer = self.ask(&format!("m{at:x},{bytes:x}"))?;
            let memory = decode_hex(&answer).ok_or_else(|| format!("no memory at {at:#x}: {answer}"))?;
            words.extend(memory.chunks_exact(8).map(little_endian));
        }
        Ok(words)
    }

    fn ask(&mut self, packet: &str) -> Result<String, String> {
        self.send(packet)?;
        loop {
            let answer = self.receive(packet)?;
            // QEMU also sends unrequested stop replies. They are skipped.
            if packet == "?" || !answer.starts_with('T') {
                return Ok(answer);
            }
        }
    }

    fn send(&mut self, packet: &str) -> Result<(), String> {
        let framed = framed(packet);
        let cannot = |error: std::io::Error| format!("cannot send {packet} to the debugger: {error}");
        self.stream.get_mut().write_all(framed.as_bytes()).map_err(cannot)
    }

    fn receive(&mut self, packet: &str) -> Result<String, String> {
        let cannot = |error: std::io::Error| format!("no reply of the debugger to {packet}: {error}");
        let mut answer = Vec::new();
        self.stream.read_until(b'#', &mut answer).map_err(cannot)?;
        let mut sum = [0; 2];
        self.stream.read_exact(&mut sum).map_err(cannot)?;
        self.stream.get_mut().write_all(b"+").map_err(cannot)?;
        // Acknowledgements may precede the packet.
        let start = answer.iter().position(|byte| *byte == b'$').map_or(0, |at| at + 1);
        Ok(unescaped(&answer[start..answer.len() - 1]))
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        // Detaches, which resumes the guest.
        let _ = self.ask("D");
    }
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split(&format!("{name}=\"")).nth(1)?.split('"').next()
}

fn framed(packet: &str) -> String {
    let sum = packet.bytes().fold(0u8, u8::wrapping_add);
    format!("${packet}#{sum:02x}")
}

/// Undoes the escaping of a payload: in the byte after each `}`, bit 5 is inverted.
fn unescaped(payload: &[u8]) -> String {
    let mut bytes = payload.iter();
    let mut plain = Vec::with_capacity(payload.len());
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'}' { bytes.next().map_or(0, |byte| byte ^ 0x20) } else { *byte });
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    // An error is a letter and two digits: an odd number.
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_framed_and_unescaped() {
        assert_eq!(framed("OK"), "$OK#9a");
        assert_eq!(unescaped(b"a}\x03b"), "a#b");
        assert_eq!(decode_hex("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!((decode_hex("E01"), little_endian(&[1, 2])), (None, 0x201));
        assert_eq!(attribute("name=\"satp\" bitsize=\"64\" regnum=\"450\"", "regnum"), Some("450"));
    }
}
