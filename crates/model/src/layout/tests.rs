//! Translates recorded addresses to those that Linux chooses.

use super::linux::{HUGE, MMAP_BASE, PROGRAM, STACK_END, VDSO_BYTES};
use super::*;

fn told(layout: &mut Layout, call: Call, result: u64) -> Vec<Event> {
    let changes = layout.translate(&Event { run: 0, order: 0, call, result: result as i64 }).into_iter();
    let calls = changes.map(|change| match change {
        Change::Call(event) => event,
        other => panic!("{other:?} without a policy"),
    });
    calls.collect()
}

fn mmap(layout: &mut Layout, recorded: u64, bytes: u64) -> u64 {
    let call = Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    let told = told(layout, call, recorded);
    assert_eq!(told.len(), 1);
    told[0].result as u64
}

fn calls(layout: &mut Layout, call: Call, result: u64) -> Vec<Call> {
    told(layout, call, result).into_iter().map(|event| event.call).collect()
}

const TOP: u64 = MMAP_BASE - VDSO_BYTES;

#[test]
fn mappings_go_downwards_and_whole_huge_pages_are_aligned() {
    let mut layout = Layout::default();
    assert_eq!(mmap(&mut layout, EMULATED, 8192), TOP - 8192);
    assert_eq!(mmap(&mut layout, EMULATED + 8192, 4096), TOP - 12288);
    let huge = mmap(&mut layout, EMULATED + 12288, 32 << 20);
    assert_eq!(huge % HUGE, 0);
    assert!(huge + (32 << 20) <= TOP - 12288 && huge + (32 << 20) + HUGE > TOP - 12288);
    // A small mapping fits in the hole above it.
    assert!(mmap(&mut layout, EMULATED + (64 << 20), 4096) > huge);
    assert_eq!(layout.address(EMULATED + 8192 + 5), TOP - 12288 + 5);
    assert_eq!(layout.address(77), 77);
    // Unmapping leaves a gap, which is used again.
    assert_eq!(calls(&mut layout, Call::Munmap { address: EMULATED, bytes: 8192 }, 0).len(), 1);
    assert_eq!(mmap(&mut layout, EMULATED, 4096), TOP - 4096);
}

fn mmap_at(layout: &mut Layout, hint: u64, recorded: u64, bytes: u64, flags: u64) -> u64 {
    let call = Call::Mmap { address: hint, bytes, protection: 3, flags, file: -1, offset: 0, file_system: None };
    told(layout, call, recorded)[0].result as u64
}

const PRIVATE: u64 = 0x22;

/// The results of Linux 6.18 without randomisation.
#[test]
fn what_a_program_asks_for_it_gets_where_there_is_room() {
    let mut layout = Layout::default();
    // A constant of the program, which is not aligned for large pages.
    assert_eq!(mmap_at(&mut layout, 0x1234_5678_9000, EMULATED, 2 * HUGE, PRIVATE), 0x1234_5678_9000);
    assert_eq!(mmap_at(&mut layout, 0x1000, EMULATED + 2 * HUGE, 4096, PRIVATE), 0x10000);
    assert_eq!(mmap_at(&mut layout, 0x2000_0000_0123, EMULATED + 3 * HUGE, 4096, PRIVATE), 0x2000_0000_0000);
    let above_all = mmap_at(&mut layout, 0x8000_0000_0000, EMULATED + 4 * HUGE, 4096, PRIVATE);
    assert_eq!(above_all, TOP - 4096);
    // The address is already in use.
    let taken = mmap_at(&mut layout, 0x1234_5678_a000, EMULATED + 5 * HUGE, 2 * HUGE, PRIVATE);
    assert_eq!(taken, TOP - 4096 - 2 * HUGE);
}

#[test]
fn what_is_asked_for_beside_a_mapping_is_beside_it_here() {
    let mut layout = Layout::default();
    let (first, second) = (mmap(&mut layout, EMULATED, 8192), mmap(&mut layout, EMULATED + HUGE, 4096));
    // Behind the second, where the first is; far behind it; below it.
    let behind = mmap_at(&mut layout, EMULATED + HUGE + 4096, EMULATED + HUGE + 4096, 4096, PRIVATE);
    assert_eq!((behind, second), (second - 4096, first - 4096));
    let below = mmap_at(&mut layout, EMULATED - (1 << 30), EMULATED - (1 << 30), 4096, PRIVATE);
    assert_eq!(below, first - (1 << 30));
    let own = EMULATED - (9 << 30);
    assert_eq!(mmap_at(&mut layout, own, own, 4096, PRIVATE), own);
}

/// The results of Linux 6.18, with large pages of shared memory disabled.
#[test]
fn only_what_can_have_a_large_page_is_aligned() {
    let mut layout = Layout::default();
    mmap(&mut layout, EMULATED, 4096);
    let (hint, shared) = (EMULATED, 0x21);
    assert_eq!(mmap_at(&mut layout, hint, EMULATED + HUGE, 2 * HUGE, PRIVATE), TOP - 4096 - 2 * HUGE);
    assert_eq!(mmap_at(&mut layout, 0, EMULATED + 3 * HUGE, HUGE, shared), TOP - 4096 - 3 * HUGE);
    let (ext4, tmpfs) = (Some(0xef53), Some(0x0102_1994));
    let mut file = |recorded, bytes, offset, file_system| {
        let call = Call::Mmap { address: 0, bytes, protection: 1, flags: 2, file: 3, offset, file_system };
        told(&mut layout, call, recorded)[0].result as u64
    };
    assert_eq!(file(EMULATED + 4 * HUGE, HUGE + 4096, 0, ext4) % HUGE, 0);
    assert_eq!(file(EMULATED + 6 * HUGE, 2 * HUGE, 4096, None) % HUGE, 4096);
    // It contains no whole 2M of the file, so it is placed where there is room.
    assert_ne!(file(EMULATED + 9 * HUGE, HUGE + 4096, 4096, ext4) % HUGE, 4096);
    // tmpfs without large pages places it where there is room, directly below the last one.
    let bytes = 3 * HUGE + 4096;
    let last = file(EMULATED + 12 * HUGE, bytes, 0, tmpfs);
    assert_eq!(file(EMULATED + 16 * HUGE, bytes, 0, tmpfs), last - bytes);
}

/// glibc's arenas, with the ranges that it unmaps on both sides under QEMU.
#[test]
fn an_aligned_part_that_is_cut_out_is_aligned_here() {
    const ARENA: u64 = 64 << 20;
    let mut layout = Layout::default();
    mmap(&mut layout, EMULATED, 12288);
    let recorded = EMULATED + 12288;
    let reserve = Call::Mmap {
        address: 0,
        bytes: 2 * ARENA,
        protection: 0,
        flags: 0x4022,
        file: -1,
        offset: 0,
        file_system: None,
    };
    let reserved = told(&mut layout, reserve, recorded)[0].result as u64;
    let arena = recorded.next_multiple_of(ARENA);
    let mut gone = calls(&mut layout, Call::Munmap { address: recorded, bytes: arena - recorded }, 0);
    let rest = recorded + ARENA - arena;
    gone.extend(calls(&mut layout, Call::Munmap { address: arena + ARENA, bytes: rest }, 0));
    let bytes = |call: &Call| if let Call::Munmap { bytes, .. } = call { *bytes } else { 0 };
    assert_eq!(gone.iter().map(bytes).sum::<u64>(), ARENA);
    assert_eq!(layout.address(arena), reserved.next_multiple_of(ARENA));
    assert_eq!(layout.address(arena + ARENA - 1), reserved.next_multiple_of(ARENA) + ARENA - 1);
    // The unmapped range is free.
    let next = mmap(&mut layout, EMULATED + 4 * ARENA, 4096);
    assert!(next < TOP - 12288 && next >= reserved.next_multiple_of(ARENA) + ARENA, "{next:#x}");
}

#[test]
fn a_call_over_mappings_that_lie_apart_becomes_several() {
    let mut layout = Layout::default();
    mmap(&mut layout, EMULATED, HUGE);
    mmap(&mut layout, EMULATED + HUGE, 4096);
    let protect = Call::Mprotect { address: EMULATED, bytes: HUGE + 4096, protection: 1 };
    let told = calls(&mut layout, protect, 0);
    let total: u64 = told.iter().map(|call| if let Call::Mprotect { bytes, .. } = call { *bytes } else { 0 }).sum();
    assert_eq!((told.len(), total), (2, HUGE + 4096));
}

#[test]
fn a_program_its_heap_and_its_stack_are_where_linux_puts_them() {
    let mut layout = Layout::default();
    let region = |layout: &mut Layout, address, bytes, name: &str| {
        let told = calls(layout, Call::Region { address, bytes, protection: 3, name: name.into() }, 0);
        if let Call::Region { address, .. } = told[0] { address } else { 0 }
    };
    assert_eq!(region(&mut layout, EMULATED, 8192, "/bin/a"), PROGRAM);
    assert_eq!(region(&mut layout, EMULATED + 12288, 4096, "/bin/a"), PROGRAM + 12288);
    assert_eq!(region(&mut layout, EMULATED + 5 * HUGE, 4096, "/bin/a"), PROGRAM + 5 * HUGE);
    assert_eq!(region(&mut layout, EMULATED + (16 << 20), 8192, "[stack]"), STACK_END - 8192);
    let ld = region(&mut layout, EMULATED + (32 << 20), 4096, "/lib/ld.so");
    assert_eq!(region(&mut layout, EMULATED + (32 << 20) + 8192, 4096, "/lib/ld.so"), ld + 8192);
    assert_eq!(ld, MMAP_BASE - INTERPRETER_BYTES);
    assert_eq!(mmap(&mut layout, EMULATED + (40 << 20), 8192), ld - VDSO_BYTES - 8192);
    let brk = |layout: &mut Layout, end| told(layout, Call::Brk { address: end }, end)[0].result as u64;
    let begin = brk(&mut layout, EMULATED + 5 * HUGE + 20480);
    assert_eq!(begin, PROGRAM + 5 * HUGE + 4096);
    assert_eq!(brk(&mut layout, EMULATED + 5 * HUGE + 20480 + 135168), begin + 135168);
    assert_eq!(layout.address(EMULATED + 5 * HUGE + 20480 + 4096), begin + 4096);
    // A program that is linked for an address stays there, and its heap behind it.
    let mut layout = Layout::default();
    assert_eq!(region(&mut layout, 0x40_0000, 4096, "/bin/static"), 0x40_0000);
    assert_eq!(region(&mut layout, EMULATED + (16 << 20), 8192, "[stack]"), STACK_END - 8192);
    let mut looks = layout.clone();
    assert_eq!(region(&mut layout, EMULATED + (16 << 20) + 8192, 8192, ""), MMAP_BASE - 8192);
    assert_eq!(region(&mut looks, EMULATED + (16 << 20) + 8192, 4096, "[vdso]"), MMAP_BASE - 4096);
    assert_eq!(brk(&mut layout, 0x40_1000), 0x40_1000);
    assert_eq!(mmap(&mut layout, EMULATED + (40 << 20), 8192), MMAP_BASE - VDSO_BYTES - 8192);
}

/// As in /proc/self/maps of Linux 6.12 and 7.2 on arm64, with 48-bit addresses, and of 6.12 with pages of 16K.
#[test]
fn a_program_of_arm64_has_all_addresses_up_to_its_stack() {
    const END: u64 = 1 << 47;
    for (page, vdso_pages, vdso_bytes) in [(4096, Some(4), 0x4000), (4096, None, 0x6000), (16384, Some(3), 0xc000)] {
        let scheme = Scheme { home: Home::of("aarch64", page, Some(page * page / 8), vdso_pages), ..Scheme::default() };
        let mut layout = Layout::new(scheme, Image::default());
        let stack = Call::Region { address: EMULATED, bytes: page, protection: 3, name: "[stack]".into() };
        let told = calls(&mut layout, stack, 0).remove(0);
        assert!(matches!(told, Call::Region { address, .. } if address == END - page), "{told:?}");
        assert_eq!(mmap(&mut layout, EMULATED + HUGE, 4 * page), END - (128 << 20) - vdso_bytes - 4 * page);
    }
    let of_risc_v = Home::of("riscv64", 4096, Some(HUGE), Some(6));
    assert_eq!((of_risc_v.stack_end, of_risc_v.vdso_bytes), (END, 0x6000));
    assert_eq!(Home::of("x86_64", 4096, Some(HUGE), None), Home::default());
    assert_eq!(Home::of("x86_64", 4096, Some(HUGE), Some(6)).vdso_bytes, 0x6000);
}

/// As in /proc/self/maps of Linux 6.12 for arm64: with pages of 16K, memory of whole 32M is aligned, and memory of
/// whole 2M is not.
#[test]
fn mappings_have_the_pages_of_their_kernel() {
    const KIB: u64 = 1 << 10;
    let layout = |page: u64| {
        let home = Home::of("aarch64", page, Some(page * page / 8), Some(3));
        Layout::new(Scheme { home, ..Scheme::default() }, Image::default())
    };
    let (mut of_4k, mut of_16k) = (layout(4 * KIB), layout(16 * KIB));
    let base = |page: u64| (1 << 47) - (128 << 20) - 3 * page;
    assert_eq!(mmap(&mut of_4k, EMULATED, 2 * HUGE) % HUGE, 0);
    assert_eq!(mmap(&mut of_16k, EMULATED, 2 * HUGE), base(16 * KIB) - 2 * HUGE);
    assert_eq!(mmap(&mut of_16k, EMULATED + 8 * HUGE, 32 << 20) % (32 << 20), 0);
    // The rest of the last page belongs to the mapping, and is freed with it.
    assert_eq!(mmap(&mut of_4k, EMULATED + 4 * HUGE, 20 * KIB), base(4 * KIB) - 20 * KIB);
    let (two, next) = (base(16 * KIB) - 2 * HUGE - 32 * KIB, base(16 * KIB) - 2 * HUGE - 48 * KIB);
    assert_eq!(mmap(&mut of_16k, EMULATED + 4 * HUGE, 20 * KIB), two);
    assert_eq!(mmap(&mut of_16k, EMULATED + 5 * HUGE, 16 * KIB), next);
    calls(&mut of_16k, Call::Munmap { address: EMULATED + 4 * HUGE, bytes: 20 * KIB }, 0);
    assert_eq!(mmap(&mut of_16k, EMULATED + 6 * HUGE, 32 * KIB), two);
    // A file's address has the same offset in a large page as in the file; an offset inside a base page is rounded down.
    let file = |offset| Call::Mmap {
        address: 0,
        bytes: 64 << 20,
        protection: 1,
        flags: 2,
        file: 3,
        offset,
        file_system: None,
    };
    assert_eq!(told(&mut of_16k, file(20 * KIB), EMULATED + 64 * HUGE)[0].result as u64 % (32 << 20), 16 * KIB);
}

#[test]
fn what_grows_inside_its_last_base_page_stays() {
    const KIB: u64 = 1 << 10;
    let home = Home::of("aarch64", 16 * KIB, Some(32 << 20), None);
    let mut layout = Layout::new(Scheme { home, ..Scheme::default() }, Image::default());
    mmap(&mut layout, EMULATED, 16 * KIB);
    let first = mmap(&mut layout, EMULATED + HUGE, 20 * KIB);
    let grow = |old_bytes, new_bytes| Call::Mremap {
        address: EMULATED + HUGE,
        old_bytes,
        new_bytes,
        flags: 1,
        new_address: 0,
    };
    let grown = |layout: &mut Layout, call| told(layout, call, EMULATED + HUGE)[0].result as u64;
    assert_eq!(grown(&mut layout, grow(20 * KIB, 24 * KIB)), first, "both are 32K");
    assert_ne!(grown(&mut layout, grow(24 * KIB, 36 * KIB)), first, "the neighbour is in the way");
}

#[test]
fn a_program_that_can_be_anywhere_is_where_its_architecture_has_it() {
    let program = |architecture: &str, page: u64| Home::of(architecture, page, Some(page * page / 8), None).program;
    // Linux 6.12 for arm64 puts them at 0xaaaaaaaa0000, and with 47-bit addresses at 0x555555550000.
    assert_eq!(program("aarch64", 4096) % (1 << 30), 0xaaaa_aaaa_0000 % (1 << 30));
    assert_eq!(program("aarch64", 16384), 0x5555_5555_0000);
    assert_eq!(program("aarch64", 65536) % (512 << 20), 0xaaaa_aaaa_0000 % (512 << 20));
    assert_eq!(program("riscv64", 4096), 0x5555_5555_5000);
    assert_eq!(program("x86_64", 4096), PROGRAM);
}

#[test]
fn a_heap_that_would_end_before_it_begins_is_left_where_it_is() {
    let mut layout = Layout::default();
    let begin = EMULATED + 5 * HUGE;
    let to = |layout: &mut Layout, end: u64| told(layout, Call::Brk { address: end }, end)[0].result as u64;
    let placed = to(&mut layout, begin);
    assert_eq!(to(&mut layout, begin - 4096), begin - 4096);
    assert_eq!(to(&mut layout, begin + 4096), placed + 4096);
}

#[test]
fn what_grows_in_place_does_so_only_where_there_is_room() {
    let mut layout = Layout::default();
    let first = mmap(&mut layout, EMULATED, 8192);
    let second = mmap(&mut layout, EMULATED + (1 << 20), 8192);
    assert_eq!(first, second + 8192);
    let grow = |address, to| Call::Mremap { address, old_bytes: 8192, new_bytes: to, flags: 1, new_address: 0 };
    // It was recorded to move, but there is room here; unless the program passes an address, or keeps the old mapping.
    let move_first =
        |flags| Call::Mremap { address: EMULATED, old_bytes: 8192, new_bytes: 4096, flags, new_address: 0 };
    let moved = |layout: &mut Layout, flags| calls(layout, move_first(flags), EMULATED + (2 << 20)).remove(0);
    let to = |call| if let Call::Mremap { address, .. } = call { address } else { 0 };
    assert_eq!(to(moved(&mut layout.clone(), 1)), first);
    let address = |flags: u64| {
        let mut layout = layout.clone();
        moved(&mut layout, flags);
        layout.address(EMULATED + (2 << 20))
    };
    assert_eq!(address(1), first);
    assert_ne!(address(1 | MREMAP_DONTUNMAP), first);
    // A mapping is moved to a fixed address; the rest stays where it was.
    let own = mmap(&mut layout.clone(), EMULATED + (2 << 20), 1 << 20);
    let fixed = |flags| {
        let mut layout = layout.clone();
        mmap(&mut layout, EMULATED + (2 << 20), 1 << 20);
        let (old_bytes, new_address) = (8192, EMULATED + (2 << 20) + 4096);
        let call = Call::Mremap { address: EMULATED, old_bytes, new_bytes: 8192, flags, new_address };
        (to(calls(&mut layout, call, new_address).remove(0)), layout.address(new_address), layout.address(EMULATED))
    };
    assert_eq!(fixed(1 | MREMAP_FIXED), (first, own + 4096, EMULATED));
    assert_eq!(fixed(1 | MREMAP_FIXED | MREMAP_DONTUNMAP), (first, own + 4096, first));
    // It was recorded to stay in place, but its neighbour is in the way here.
    let told = told(&mut layout, grow(EMULATED + (1 << 20), 16384), EMULATED + (1 << 20));
    assert_ne!(told[0].result as u64, second);
    assert_eq!(layout.address(EMULATED + (1 << 20)), told[0].result as u64);
}

#[test]
fn a_layout_of_randomisation_has_its_parts_where_they_were_drawn() {
    let image = Image { process: 7, execs: 0 };
    let scheme =
        |seed| Scheme { draw: Some(Draw { seed, bits: Bits::of_addresses(47) }), pool: None, home: Home::default() };
    let lay_out = |scheme: Scheme, image: Image| {
        let mut layout = Layout::new(scheme, image);
        let mut region = |address, bytes, name: &str| {
            let told = calls(&mut layout, Call::Region { address, bytes, protection: 3, name: name.into() }, 0);
            if let Call::Region { address, .. } = told[0] { address } else { 0 }
        };
        let program = region(EMULATED, 8192, "/bin/a");
        let stack = region(EMULATED + (16 << 20), 8192, "[stack]");
        let linker = region(EMULATED + (32 << 20), 4096, "/lib/ld.so");
        let brk = Call::Brk { address: 0 };
        let heap = EMULATED + 5 * HUGE;
        let heap = told(&mut layout, brk, heap)[0].result as u64;
        let first = mmap(&mut layout, EMULATED + (64 << 20), 8192);
        [program, stack + 8192, linker, heap, first]
    };
    for seed in 0..20 {
        let places = Places::of(scheme(seed), image);
        let [program, stack_end, linker, heap, first] = lay_out(scheme(seed), image);
        assert_eq!((program, stack_end), (places.program, places.stack_end));
        assert_eq!(linker, places.mmap_base - INTERPRETER_BYTES);
        assert_eq!(first, linker - VDSO_BYTES - 8192);
        assert_eq!(heap, program + 8192 + places.heap_gap_bytes);
        assert_eq!(lay_out(scheme(seed), image), [program, stack_end, linker, heap, first], "the same again");
        assert_ne!(lay_out(scheme(seed), image.next())[0], program, "another program lies elsewhere");
    }
    let fixed = lay_out(Scheme::default(), image);
    assert_eq!((fixed[0], fixed[1], fixed[2]), (PROGRAM, STACK_END, MMAP_BASE - INTERPRETER_BYTES));
}
