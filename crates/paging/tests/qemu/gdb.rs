//! A minimal client of the gdb remote protocol.
//!
//! Source: the GDB manual, appendix "GDB Remote Serial Protocol". QEMU takes a new packet as the acknowledgement of its
//! last reply, so several packets can be in flight at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Timeout for one reply of a machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Packets in flight at once: few enough that neither side blocks on a full buffer.
const BATCH: usize = 64;
/// Bytes of memory per packet; QEMU's packets have at most 4096 characters.
const CHUNK: usize = 1024;

/// A register's number and size.
#[derive(Clone, Copy, Debug)]
struct Register {
    number: u64,
    bytes: usize,
}

/// A connection to the gdb stub of a machine.
pub struct Gdb {
    stream: BufReader<UnixStream>,
    registers: BTreeMap<String, Register>,
}

impl Gdb {
    /// Connects to the machine at the other end of `stream`: reads its list of registers and selects physical addresses
    /// for memory access.
    pub fn connect(stream: UnixStream) -> Gdb {
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(REPLY_TIMEOUT)).unwrap();
        let mut gdb = Gdb { stream: BufReader::new(stream), registers: BTreeMap::new() };
        gdb.ask("qSupported:xmlRegisters=i386");
        let target = gdb.feature("target.xml");
        let included = target.split("<xi:include href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut next = 0;
        for file in included {
            let feature = gdb.feature(file);
            gdb.add_registers(&feature, &mut next);
        }
        assert_eq!(gdb.ask("Qqemu.PhyMemMode:1"), "OK");
        gdb
    }

    /// Reads a document that describes registers.
    fn feature(&mut self, name: &str) -> String {
        let mut document = String::new();
        loop {
            let part = self.ask(&format!("qXfer:features:read:{name}:{:x},{CHUNK:x}", document.len()));
            document.push_str(&part[1..]);
            match part.as_bytes()[0] {
                b'm' => {}
                b'l' => return document,
                _ => panic!("expected registers in {name}, found {part}"),
            }
        }
    }

    /// Registers are numbered consecutively, except where `regnum` sets the number.
    fn add_registers(&mut self, feature: &str, next: &mut u64) {
        for tag in without_comments(feature).split("<reg ").skip(1) {
            let tag = tag.split('>').next().unwrap();
            let attribute =
                |name: &str| tag.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
            let number = attribute("regnum").and_then(|number| number.parse().ok()).unwrap_or(*next);
            let bits: usize = attribute("bitsize").unwrap().parse().unwrap();
            self.registers.insert(attribute("name").unwrap().to_string(), Register { number, bytes: bits / 8 });
            *next = number + 1;
        }
    }

    /// Sets a register by its name.
    pub fn set(&mut self, name: &str, value: u64) {
        let Register { number, bytes } =
            *self.registers.get(name).unwrap_or_else(|| panic!("the machine has no register {name}"));
        let value = hexadecimal(&value.to_le_bytes()[..bytes.min(8)]);
        assert_eq!(self.ask(&format!("P{number:x}={value}")), "OK", "{name}");
    }

    /// Executes one instruction.
    pub fn step(&mut self) {
        self.stopped("s");
    }

    /// Runs the machine from `pc_name` = `from` until it is about to execute the instruction at `until`.
    pub fn run(&mut self, pc_name: &str, from: u64, until: u64) {
        self.set(pc_name, from);
        assert_eq!(self.ask(&format!("Z0,{until:x},4")), "OK");
        self.stopped("c");
        assert_eq!(self.ask(&format!("z0,{until:x},4")), "OK");
    }

    fn stopped(&mut self, how: &str) {
        let reply = self.ask(how);
        assert!(reply.starts_with("T05") || reply.starts_with("S05"), "expected SIGTRAP after {how}, found {reply}");
    }

    /// The monitor's output for each of `commands`.
    pub fn monitor(&mut self, commands: &[String]) -> Vec<String> {
        let packets: Vec<String> =
            commands.iter().map(|command| format!("qRcmd,{}", hexadecimal(command.as_bytes()))).collect();
        self.ask_all(&packets, Gdb::output)
    }

    /// Reads `bytes` of physical memory from `pa` on, as words.
    pub fn words(&mut self, pa: u64, bytes: u64) -> Vec<u64> {
        let packet = |at: u64| format!("m{:x},{:x}", pa + at, (bytes - at).min(CHUNK as u64));
        let packets: Vec<String> = (0..bytes).step_by(CHUNK).map(packet).collect();
        let memory: Vec<u8> = self.ask_all(&packets, |gdb| binary(&gdb.receive())).concat();
        memory.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Receives the output of a command, which arrives in separate packets before the reply `OK`.
    fn output(&mut self) -> String {
        let mut output = Vec::new();
        loop {
            let packet = self.receive();
            match packet.strip_prefix('O') {
                Some("K") => return String::from_utf8(output).unwrap(),
                Some(text) => output.extend(binary(text)),
                None => panic!("expected a command's output, found {packet}"),
            }
        }
    }

    fn ask(&mut self, packet: &str) -> String {
        self.ask_all(&[packet.to_string()], Gdb::receive).remove(0)
    }

    fn ask_all<T>(&mut self, packets: &[String], mut reply: impl FnMut(&mut Gdb) -> T) -> Vec<T> {
        let mut replies = Vec::with_capacity(packets.len());
        for batch in packets.chunks(BATCH) {
            let framed: String = batch.iter().map(|packet| framed(packet)).collect();
            self.stream.get_mut().write_all(framed.as_bytes()).expect("the machine takes packets");
            replies.extend(batch.iter().map(|_| reply(self)));
        }
        replies
    }

    /// The payload of the next packet.
    fn receive(&mut self) -> String {
        let mut packet = Vec::new();
        self.stream.read_until(b'#', &mut packet).expect("the machine replies in time");
        let mut sum = [0; 2];
        self.stream.read_exact(&mut sum).expect("the machine replies in time");
        // Acknowledgements precede it.
        let start = packet.iter().position(|byte| *byte == b'$').expect("a packet begins with $");
        let payload = &packet[start + 1..packet.len() - 1];
        assert_eq!(sum, *format!("{:02x}", checksum(payload)).as_bytes(), "the checksum of {payload:?}");
        self.stream.get_mut().write_all(b"+").expect("the machine takes acknowledgements");
        unescaped(payload)
    }
}

fn without_comments(document: &str) -> String {
    let mut parts = document.split("<!--");
    let first = parts.next().unwrap_or_default();
    let after = parts.map(|part| part.split_once("-->").map_or("", |(_, after)| after));
    std::iter::once(first).chain(after).collect()
}

fn framed(packet: &str) -> String {
    format!("${packet}#{:02x}", checksum(packet.as_bytes()))
}

fn checksum(payload: &[u8]) -> u8 {
    payload.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Decodes a binary payload, in which `}` means that bit 5 of the next byte is inverted.
fn unescaped(payload: &[u8]) -> String {
    let mut bytes = payload.iter();
    let mut plain = Vec::with_capacity(payload.len());
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'}' { bytes.next().unwrap() ^ 0x20 } else { *byte });
    }
    String::from_utf8(plain).expect("packets are text")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn binary(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.iter().map(byte).collect();
    bytes.unwrap_or_else(|| panic!("expected hexadecimal digits, found {text}"))
}

#[test]
fn packets_are_framed_and_unescaped() {
    assert_eq!(framed("OK"), "$OK#9a");
    assert_eq!(unescaped(b"a}\x03b"), "a#b");
    assert_eq!(binary(&hexadecimal(&[0, 0x7f, 0xff])), [0, 0x7f, 0xff]);
}
