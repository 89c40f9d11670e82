//! The BPF program that copies, as instructions, and the types that the kernel wants to know of it: pure data.
//!
//! ```text
//! copy_all(context):  map[TASK] = bpf_get_current_task()
//!                     bpf_loop(context.calls, copy_some, NULL, 0)
//! copy_some(index):   for each of EACH_CALL requests from map[REQUESTS + index * EACH_CALL] on:
//!                         request.error = bpf_probe_read_kernel(map[DATA + request.at], request.bytes, request.address)
//! ```
//! One call of a function by bpf_loop takes as long as a small copy (a call by pointer, which mitigations make slow),
//! so each makes several. Place and length are masked, which the verifier wants to see; what is asked for is checked
//! before.
//!
//! Encoding: Documentation/bpf/standardization/instruction-set.rst. Helpers, by their numbers in
//! include/uapi/linux/bpf.h: bpf_get_current_task 35 (4.8), bpf_probe_read_kernel 113 (5.5), bpf_loop 181 (5.17). The
//! types: Documentation/bpf/btf.rst; the verifier wants them for the function that bpf_loop calls (`check_ld_imm`,
//! kernel/bpf/verifier.c).

/// Words of the map before the requests; the first of them is the address of the calling task.
pub const HEADER_WORDS: usize = 8;
/// Words of one request: address, place, length, error.
pub const REQUEST_WORDS: usize = 4;
/// Requests that one call of `copy_some` serves.
pub const EACH_CALL: usize = 16;
/// Requests of one run at most.
pub const MOST_REQUESTS: usize = 8192;
/// Where in the map the copies begin, in words.
pub const DATA: usize = (HEADER_WORDS + REQUEST_WORDS * MOST_REQUESTS).next_multiple_of(512);
/// Words that one request copies at most.
pub const MOST_WORDS: usize = 512;
/// Words that all requests of a run copy at most.
pub const DATA_WORDS: usize = 128 * MOST_WORDS;
/// Words of the map. What the masks let through fits: any place, and from there twice the most that is copied.
pub const MAP_WORDS: usize = DATA + DATA_WORDS + 2 * MOST_WORDS;

/// `license_is_gpl_compatible` (include/linux/license.h): bpf_probe_read_kernel serves such programs only. These few
/// instructions are offered under the GPL version 2 too.
pub const LICENSE: &[u8] = b"Dual MIT/GPL\0";

const WORD: i32 = 8;
const CURRENT_TASK: i32 = 35;
const PROBE_READ_KERNEL: i32 = 113;
const LOOP: i32 = 181;

const LOAD_WORD: u8 = 0x79;
const STORE_WORD: u8 = 0x7b;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD: u8 = 0x0f;
const AND_IMMEDIATE: u8 = 0x57;
const MULTIPLY_IMMEDIATE: u8 = 0x27;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_ADDRESS: u8 = 0x18;
/// What an address is: a place in the value of the map's only element (BPF_PSEUDO_MAP_VALUE), or a function
/// (BPF_PSEUDO_FUNC).
const OF_MAP_VALUE: u8 = 2;
const OF_FUNCTION: u8 = 4;

/// The instruction at which `copy_some` begins.
const COPY_SOME: usize = 13;

const fn encode(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let registers = (from << 4 | to) as u64;
    code as u64 | registers << 8 | (offset as u16 as u64) << 16 | (immediate as u32 as u64) << 32
}

const fn bytes(words: usize) -> i32 {
    words as i32 * WORD
}

/// The program, for a map with this file descriptor.
pub fn instructions(map: i32) -> Vec<u64> {
    let in_map = |to: u8, at: usize| [encode(LOAD_ADDRESS, to, OF_MAP_VALUE, 0, map), encode(0, 0, 0, 0, bytes(at))];
    let mut program = vec![encode(LOAD_WORD, 6, 1, 0, 0), encode(CALL, 0, 0, 0, CURRENT_TASK)];
    program.extend(in_map(7, 0));
    program.extend([
        encode(STORE_WORD, 7, 0, 0, 0),
        encode(MOVE, 1, 6, 0, 0),
        // Relative to the next instruction; the address takes two.
        encode(LOAD_ADDRESS, 2, OF_FUNCTION, 0, COPY_SOME as i32 - 7),
        0,
        encode(MOVE_IMMEDIATE, 3, 0, 0, 0),
        encode(MOVE_IMMEDIATE, 4, 0, 0, 0),
        encode(CALL, 0, 0, 0, LOOP),
        encode(MOVE_IMMEDIATE, 0, 0, 0, 0),
        encode(EXIT, 0, 0, 0, 0),
    ]);
    // copy_some: r1 is the index; r7 the first request, r8 the place of the copies.
    program.extend(in_map(7, HEADER_WORDS));
    program.extend(in_map(8, DATA));
    program.extend([
        encode(AND_IMMEDIATE, 1, 0, 0, (MOST_REQUESTS / EACH_CALL - 1) as i32),
        encode(MULTIPLY_IMMEDIATE, 1, 0, 0, bytes(REQUEST_WORDS * EACH_CALL)),
        encode(ADD, 7, 1, 0, 0),
    ]);
    program.extend((0..EACH_CALL).flat_map(copy_one));
    program.extend([encode(MOVE_IMMEDIATE, 0, 0, 0, 0), encode(EXIT, 0, 0, 0, 0)]);
    program
}

/// Serves the request at that place behind r7.
fn copy_one(at: usize) -> [u64; 9] {
    let field = |word: usize| bytes(REQUEST_WORDS * at + word) as i16;
    [
        encode(LOAD_WORD, 3, 7, field(0), 0),
        encode(LOAD_WORD, 4, 7, field(1), 0),
        encode(LOAD_WORD, 2, 7, field(2), 0),
        encode(AND_IMMEDIATE, 4, 0, 0, bytes(DATA_WORDS) - 1),
        encode(AND_IMMEDIATE, 2, 0, 0, bytes(2 * MOST_WORDS) - 1),
        encode(MOVE, 1, 8, 0, 0),
        encode(ADD, 1, 4, 0, 0),
        encode(CALL, 0, 0, 0, PROBE_READ_KERNEL),
        encode(STORE_WORD, 7, 0, field(3), 0),
    ]
}

/// One function of the program, for the verifier (`struct bpf_func_info`): its first instruction and its type.
pub const FUNCTIONS: [[u32; 2]; 2] = [[0, 4], [COPY_SOME as u32, 6]];

/// The program's types.
pub fn types() -> Vec<u8> {
    const NAMES: &[u8] = b"\0int\0copy_all\0copy_some\0context\0index\0";
    const MAGIC_AND_VERSION: u32 = 0x0001_eb9f;
    const HEADER_BYTES: u32 = 24;
    let kind = |kind: u32, elements: u32| kind << 24 | elements;
    let (int, pointer, function, prototype) = (kind(1, 0), kind(2, 0), 12, 13);
    let types: [&[u32]; 6] = [
        &[1, int, 4, 1 << 24 | 32],
        &[0, pointer, 0],
        &[0, kind(prototype, 1), 1, 24, 2],
        &[5, kind(function, 1), 3],
        &[0, kind(prototype, 2), 1, 32, 1, 24, 2],
        &[14, kind(function, 0), 5],
    ];
    let types: Vec<u32> = types.concat();
    let bytes = (types.len() * 4) as u32;
    let header = [MAGIC_AND_VERSION, HEADER_BYTES, 0, bytes, bytes, NAMES.len() as u32];
    let words = header.into_iter().chain(types).flat_map(u32::to_ne_bytes);
    words.chain(NAMES.iter().copied()).collect()
}
