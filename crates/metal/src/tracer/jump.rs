//! A jump in the program's text: the machine code that makes an mmap, and advises it, without a stop.
//!
//! glibc and Go call mmap by `mov eax, 9` and `syscall`. A jump in place of the first leads to a stub in a page
//! of the tracer's. Where the arguments are plain, the stub makes the call with a mark that the filter lets
//! pass, advises the mapping, and goes on behind the `syscall`. Else it goes to the `syscall`, which stops as
//! ever. So does whoever jumps there directly: that instruction stays as it is.
//!
//! The code keeps every register, the flags and the red zone; rcx and r11 are those behind a `syscall`. It holds
//! nothing of its own between its instructions but what is on the stack, so any number of threads and signal
//! handlers can be in it.

/// What the stub puts into the argument for the file, which the kernel does not read for anonymous memory
/// (`ksys_mmap_pgoff` in mm/mmap.c). As a descriptor it is negative, so that no open file has it, and it is not
/// the -1 that programs give.
pub const UNSTOPPED: u32 = 0xb7e1_7067;

/// `mov eax, SYS_mmap`.
const MOVE: [u8; 5] = [0xb8, 9, 0, 0, 0];
/// `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// From the place of a jump to behind the call.
pub const PLACE_BYTES: u64 = (MOVE.len() + SYSCALL.len()) as u64;
/// Where in the page of the stub the byte is that closes it, when it is not 0: away from the code.
pub const CLOSED_AT: u64 = 512;

/// The first instructions of a stub: `lea rsp, [rsp - 128]`, over the red zone, `pushfq`, and the beginning of
/// `cmp byte [rip + closed], 0`.
pub const BEGINNING: [u8; 8] = [0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c, 0x80, 0x3d];

const SYS_MMAP: u8 = MOVE[1];
const SYS_MADVISE: u8 = 28;
const NO_RESERVE: i32 = 0x4000;
const PRIVATE_ANONYMOUS: u8 = 0x22;

/// The bytes of a place that can be given a jump: two instructions that load the number of mmap and call.
pub fn untouched() -> [u8; PLACE_BYTES as usize] {
    let mut bytes = [0; PLACE_BYTES as usize];
    bytes[..MOVE.len()].copy_from_slice(&MOVE);
    bytes[MOVE.len()..].copy_from_slice(&SYSCALL);
    bytes
}

/// Whether the stub makes a call with these arguments: anonymous private memory of at least `large` bytes, of
/// which nothing else is asked.
pub fn is_plain([_, bytes, _, flags, ..]: [u64; 6], large_bytes: u64) -> bool {
    bytes >= large_bytes && flags & !(NO_RESERVE as u64) == u64::from(PRIVATE_ANONYMOUS)
}

/// The jump from a place to its stub; `None` where that is too far.
pub fn to_stub(place: u64, stub: u64) -> Option<[u8; MOVE.len()]> {
    let [a, b, c, d] = distance(place + MOVE.len() as u64, stub)?;
    Some([0xe9, a, b, c, d])
}

/// The instruction that the jump has replaced.
pub fn original() -> [u8; MOVE.len()] {
    MOVE
}

/// The code of a stub at `stub` for a place; `None` where it is too far, or a number is too large.
pub fn stub(stub: u64, place: u64, large_bytes: u64, advice: u64) -> Option<Vec<u8>> {
    let mut code = Code { at: stub, bytes: Vec::new() };
    let large = i32::try_from(large_bytes).ok()?.to_le_bytes();
    let advice = i32::try_from(advice).ok()?.to_le_bytes();
    code.add(&BEGINNING); // lea rsp, [rsp - 128]; pushfq; cmp byte [rip + closed], 0
    code.add(&distance(code.next(5), stub + CLOSED_AT)?);
    code.add(&[0]);
    let closed = code.jump_ahead(0x75); // jne stop
    code.add(&[0x48, 0x81, 0xfe]); // cmp rsi, large
    code.add(&large);
    let small = code.jump_ahead(0x72); // jb stop
    code.add(&[0x4c, 0x89, 0xd0]); // mov rax, r10: the flags
    code.add(&[0x48, 0x25]); // and rax, ~MAP_NORESERVE
    code.add(&(!NO_RESERVE).to_le_bytes());
    code.add(&[0x48, 0x83, 0xf8, PRIVATE_ANONYMOUS]); // cmp rax, MAP_PRIVATE | MAP_ANONYMOUS
    let special = code.jump_ahead(0x75); // jne stop
    code.add(&[0x41, 0x50]); // push r8
    code.add(&[0x41, 0xb8]); // mov r8d, UNSTOPPED
    code.add(&UNSTOPPED.to_le_bytes());
    code.add(&[0xb8, SYS_MMAP, 0, 0, 0]); // mov eax, SYS_mmap
    code.add(&SYSCALL);
    code.add(&[0x41, 0x58]); // pop r8
    code.add(&[0x48, 0x3d]); // cmp rax, -4095
    code.add(&(-4095i32).to_le_bytes());
    let failed = code.jump_ahead(0x73); // jae done
    code.add(&[0x57, 0x52, 0x50]); // push rdi, rdx, rax
    code.add(&[0x48, 0x89, 0xc7]); // mov rdi, rax
    code.add(&[0xba]); // mov edx, advice
    code.add(&advice);
    code.add(&[0xb8, SYS_MADVISE, 0, 0, 0]); // mov eax, SYS_madvise
    code.add(&SYSCALL);
    code.add(&[0x58, 0x5a, 0x5f]); // pop rax, rdx, rdi
    code.land(failed); // done:
    code.add(&[0x4c, 0x8b, 0x1c, 0x24]); // mov r11, [rsp]: the flags, where `syscall` puts them
    code.leave();
    code.add(&[0x48, 0x8d, 0x0d]); // lea rcx, [rip + behind]: where `syscall` puts its successor's address
    code.add(&distance(code.next(4), place + PLACE_BYTES)?);
    code.go_to(place + PLACE_BYTES)?; // jmp behind
    [closed, small, special].into_iter().for_each(|from| code.land(from)); // stop:
    code.leave();
    code.add(&[0xb8, SYS_MMAP, 0, 0, 0]); // mov eax, SYS_mmap
    code.go_to(place + MOVE.len() as u64)?; // jmp to the call
    debug_assert!((code.bytes.len() as u64) < CLOSED_AT, "the byte that closes is behind the code");
    Some(code.bytes)
}

/// Code that is being written for an address.
struct Code {
    at: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The address behind the next `bytes`.
    fn next(&self, bytes: u64) -> u64 {
        self.at + self.bytes.len() as u64 + bytes
    }

    /// Takes everything off the stack.
    fn leave(&mut self) {
        self.add(&[0x9d]); // popfq
        self.add(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    }

    /// A conditional jump to what [`Code::land`] names.
    fn jump_ahead(&mut self, condition: u8) -> usize {
        self.add(&[condition, 0]);
        self.bytes.len()
    }

    fn land(&mut self, from: usize) {
        let over = self.bytes.len() - from;
        self.bytes[from - 1] = u8::try_from(over).ok().filter(|over| *over < 0x80).expect("the code is short");
    }

    fn go_to(&mut self, to: u64) -> Option<()> {
        let [a, b, c, d] = distance(self.next(5), to)?;
        self.add(&[0xe9, a, b, c, d]); // jmp to
        Some(())
    }
}

/// The distance between two addresses as the processor adds it: 32 bits with a sign.
fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: u64 = 0x7f12_3456_789a;
    const LARGE: u64 = 2 << 20;

    fn target(code: &[u8], at: u64) -> u64 {
        assert_eq!(code[0], 0xe9);
        let distance = i32::from_le_bytes(code[1..5].try_into().unwrap());
        (at + 5).wrapping_add_signed(distance.into())
    }

    #[test]
    fn a_jump_reaches_two_gigabytes_and_no_further() {
        let behind = PLACE + 5;
        for stub in [behind + i32::MAX as u64, behind - (1 << 31), PLACE & !0xfff, PLACE + 5] {
            assert_eq!(target(&to_stub(PLACE, stub).unwrap(), PLACE), stub);
        }
        for stub in [behind + (1 << 31), behind - (1 << 31) - 1, 0x1000, u64::MAX] {
            assert_eq!(to_stub(PLACE, stub), None, "{stub:#x}");
        }
        assert_eq!(stub(PLACE - (1 << 32), PLACE, LARGE, 14), None, "nor does it come back from there");
        assert_eq!(stub(PLACE - 0x3000, PLACE, 1 << 31, 14), None, "no size that the comparison cannot hold");
    }

    #[test]
    fn the_stub_goes_on_behind_the_call_or_to_it() {
        let at = (PLACE & !0xfff) - 0x1000;
        let code = stub(at, PLACE, LARGE, 14).unwrap();
        assert!((code.len() as u64) < CLOSED_AT);
        let to_call = code.len() - 5;
        assert_eq!(target(&code[to_call..], at + to_call as u64), PLACE + 5, "to the `syscall`");
        // stop: popfq, lea, mov eax; in front of it the jump behind the call.
        let behind = to_call - 5 - 8 - 1 - 5;
        assert_eq!(target(&code[behind..], at + behind as u64), PLACE + PLACE_BYTES, "behind the `syscall`");
        assert_eq!(code.windows(2).filter(|bytes| *bytes == SYSCALL).count(), 2, "mmap and madvise");
    }

    #[test]
    fn a_place_and_its_number_are_those_of_mmap() {
        assert_eq!(untouched(), [0xb8, 9, 0, 0, 0, 0x0f, 0x05]);
        assert_eq!(original(), untouched()[..5]);
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!((i64::from(SYS_MMAP), i64::from(SYS_MADVISE)), (libc::SYS_mmap, libc::SYS_madvise));
            assert_eq!(NO_RESERVE, libc::MAP_NORESERVE);
            assert_eq!(i32::from(PRIVATE_ANONYMOUS), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        }
    }

    #[test]
    fn only_plain_arguments_need_no_stop() {
        let plain = |bytes, flags| is_plain([0, bytes, 3, flags, u64::MAX, 0], LARGE);
        assert!(plain(LARGE, 0x22) && plain(u64::MAX, 0x4022));
        assert!(!plain(LARGE - 1, 0x22), "too small");
        for flags in [0x21, 0x32, 0x62, 0x2022, 0x8022, 0x2_0022, 0x4_0022, 0x10_0022, 0x1_0000_0022] {
            assert!(!plain(LARGE, flags), "{flags:#x}");
        }
    }
}
