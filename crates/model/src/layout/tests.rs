//! Compares translated addresses with the addresses that Linux chooses.

use super::linux::{HUGE, INTERPRETER_BYTES, MMAP_BASE, PROGRAM, QEMU_BASE, STACK_END, VDSO_BYTES};
use super::*;

fn translated(layout: &mut Layout, call: Call, result: u64) -> Vec<Event> {
    let changes = layout.translate(&Event { run: 0, order: 0, call, result: result as i64 }).into_iter();
    let calls = changes.map(|change| match change {
        Change::Call(event) => event,
        other => panic!("{other:?} without a policy"),
    });
    calls.collect()
}

fn mmap(layout: &mut Layout, recorded: u64, bytes: u64) -> u64 {
    let call = Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    let translated = translated(layout, call, recorded);
    assert_eq!(translated.len(), 1);
    translated[0].result as u64
}

fn calls(layout: &mut Layout, call: Call, result: u64) -> Vec<Call> {
    translated(layout, call, result).into_iter().map(|event| event.call).collect()
}

const TOP: u64 = MMAP_BASE - VDSO_BYTES;

#[test]
fn places_mappings_downwards_and_aligns_whole_huge_pages() {
    let mut layout = Layout::default();
    assert_eq!(mmap(&mut layout, QEMU_BASE, 8192), TOP - 8192);
    assert_eq!(mmap(&mut layout, QEMU_BASE + 8192, 4096), TOP - 12288);
    let huge = mmap(&mut layout, QEMU_BASE + 12288, 32 << 20);
    assert_eq!(huge % HUGE, 0);
    assert!(huge + (32 << 20) <= TOP - 12288 && huge + (32 << 20) + HUGE > TOP - 12288);
    // A small mapping fits into the gap above it.
    assert!(mmap(&mut layout, QEMU_BASE + (64 << 20), 4096) > huge);
    assert_eq!(layout.address(QEMU_BASE + 8192 + 5), TOP - 12288 + 5);
    assert_eq!(layout.address(77), 77);
    // The next mapping fills the gap that unmapping leaves.
    assert_eq!(calls(&mut layout, Call::Munmap { address: QEMU_BASE, bytes: 8192 }, 0).len(), 1);
    assert_eq!(mmap(&mut layout, QEMU_BASE, 4096), TOP - 4096);
}

fn mmap_at(layout: &mut Layout, hint: u64, recorded: u64, bytes: u64, flags: u64) -> u64 {
    let call = Call::Mmap { address: hint, bytes, protection: 3, flags, file: -1, offset: 0, file_system: None };
    translated(layout, call, recorded)[0].result as u64
}

const PRIVATE: u64 = 0x22;

/// The expected addresses are those that Linux 6.18 chooses without randomisation.
#[test]
fn a_hint_is_the_address_if_the_range_is_free() {
    let mut layout = Layout::default();
    // The hint is a constant in the program, so the mapping is not aligned to large pages.
    assert_eq!(mmap_at(&mut layout, 0x1234_5678_9000, QEMU_BASE, 2 * HUGE, PRIVATE), 0x1234_5678_9000);
    assert_eq!(mmap_at(&mut layout, 0x1000, QEMU_BASE + 2 * HUGE, 4096, PRIVATE), 0x10000);
    assert_eq!(mmap_at(&mut layout, 0x2000_0000_0123, QEMU_BASE + 3 * HUGE, 4096, PRIVATE), 0x2000_0000_0000);
    let above_all = mmap_at(&mut layout, 0x8000_0000_0000, QEMU_BASE + 4 * HUGE, 4096, PRIVATE);
    assert_eq!(above_all, TOP - 4096);
    // The range at the hint is in use.
    let taken = mmap_at(&mut layout, 0x1234_5678_a000, QEMU_BASE + 5 * HUGE, 2 * HUGE, PRIVATE);
    assert_eq!(taken, TOP - 4096 - 2 * HUGE);
}

#[test]
fn a_hint_moves_with_the_mapping_that_it_is_near() {
    let mut layout = Layout::default();
    let (first, second) = (mmap(&mut layout, QEMU_BASE, 8192), mmap(&mut layout, QEMU_BASE + HUGE, 4096));
    // Three hints. Directly behind the second mapping: on Linux the first mapping is there. 1G below the first mapping: it
    // moves with that mapping. 9G below: it counts as a constant.
    let behind = mmap_at(&mut layout, QEMU_BASE + HUGE + 4096, QEMU_BASE + HUGE + 4096, 4096, PRIVATE);
    assert_eq!((behind, second), (second - 4096, first - 4096));
    let below = mmap_at(&mut layout, QEMU_BASE - (1 << 30), QEMU_BASE - (1 << 30), 4096, PRIVATE);
    assert_eq!(below, first - (1 << 30));
    let constant = QEMU_BASE - (9 << 30);
    assert_eq!(mmap_at(&mut layout, constant, constant, 4096, PRIVATE), constant);
}

#[test]
fn a_fixed_mapping_in_a_hole_moves_with_the_hole() {
    let mut layout = Layout::default();
    let to = mmap(&mut layout, QEMU_BASE, 4 * HUGE + 4096);
    calls(&mut layout, Call::Munmap { address: QEMU_BASE + HUGE, bytes: 2 * HUGE }, 0);
    let hole = QEMU_BASE + HUGE + 8192;
    assert_eq!(mmap_at(&mut layout, hole, hole, HUGE, PRIVATE | MAP_FIXED), to + HUGE + 8192);
    let far = QEMU_BASE + (8 << 30);
    assert_eq!(mmap_at(&mut layout, far, far, HUGE, PRIVATE | MAP_FIXED), far);
    // In Linux's layout, another mapping now occupies the hole.
    calls(&mut layout, Call::Munmap { address: hole, bytes: HUGE }, 0);
    mmap(&mut layout, QEMU_BASE + (1 << 30), 2 * HUGE - 4096);
    assert_eq!(mmap_at(&mut layout, hole, hole, HUGE, PRIVATE | MAP_FIXED), hole);
}

/// The calls of glibc's `aligned_alloc(2M, 16M)`: a mapping with its first touches, and later the munmap that frees it.
#[test]
fn aligns_the_part_that_the_program_has_aligned() {
    let mut layout = Layout::default();
    let (recorded, bytes) = (QEMU_BASE + 12288, 9 * HUGE + 4096);
    let to = mmap(&mut layout, recorded, bytes);
    let (part, part_to) = (QEMU_BASE + HUGE, to.next_multiple_of(HUGE));
    assert_ne!(to % HUGE, recorded % HUGE);
    layout.first_touched(recorded, &[recorded, part - 4096]);
    assert_eq!([recorded, part - 4096, part].map(|at| layout.address(at)), [to, part_to - 4096, part_to]);
    assert_eq!(layout.address(part + 8 * HUGE - 1), part_to + 8 * HUGE - 1);
    let whole = Call::Munmap { address: recorded, bytes };
    assert_eq!(calls(&mut layout, whole, 0), [Call::Munmap { address: to, bytes }]);
    assert_eq!(mmap(&mut layout, recorded, bytes), to, "all of it is free again");
    let advice = Call::Madvise { address: part, bytes: 8 * HUGE, advice: 14 };
    let advised = calls(&mut layout, advice, 0);
    assert_eq!(advised, [Call::Madvise { address: part_to, bytes: 8 * HUGE, advice: 14 }]);
}

/// The expected addresses are those of Linux 6.18 with large pages of shared memory disabled.
#[test]
fn aligns_only_mappings_that_can_have_a_large_page() {
    let mut layout = Layout::default();
    mmap(&mut layout, QEMU_BASE, 4096);
    let (hint, shared) = (QEMU_BASE, 0x21);
    assert_eq!(mmap_at(&mut layout, hint, QEMU_BASE + HUGE, 2 * HUGE, PRIVATE), TOP - 4096 - 2 * HUGE);
    assert_eq!(mmap_at(&mut layout, 0, QEMU_BASE + 3 * HUGE, HUGE, shared), TOP - 4096 - 3 * HUGE);
    let (ext4, tmpfs) = (Some(0xef53), Some(0x0102_1994));
    let mut file = |recorded, bytes, offset, file_system| {
        let call = Call::Mmap { address: 0, bytes, protection: 1, flags: 2, file: 3, offset, file_system };
        translated(&mut layout, call, recorded)[0].result as u64
    };
    assert_eq!(file(QEMU_BASE + 4 * HUGE, HUGE + 4096, 0, ext4) % HUGE, 0);
    assert_eq!(file(QEMU_BASE + 6 * HUGE, 2 * HUGE, 4096, None) % HUGE, 4096);
    // The mapping contains no whole 2M of the file, so it is not aligned.
    assert_ne!(file(QEMU_BASE + 9 * HUGE, HUGE + 4096, 4096, ext4) % HUGE, 4096);
    // tmpfs without large pages does not align the mapping, so the next mapping is directly below it.
    let bytes = 3 * HUGE + 4096;
    let last = file(QEMU_BASE + 12 * HUGE, bytes, 0, tmpfs);
    assert_eq!(file(QEMU_BASE + 16 * HUGE, bytes, 0, tmpfs), last - bytes);
}

/// An arena of glibc, which unmaps both ends of its reservation under QEMU.
#[test]
fn aligns_the_part_to_which_a_reservation_is_trimmed() {
    const ARENA: u64 = 64 << 20;
    let mut layout = Layout::default();
    mmap(&mut layout, QEMU_BASE, 12288);
    let recorded = QEMU_BASE + 12288;
    let reserve = Call::Mmap {
        address: 0,
        bytes: 2 * ARENA,
        protection: 0,
        flags: 0x4022,
        file: -1,
        offset: 0,
        file_system: None,
    };
    let reserved = translated(&mut layout, reserve, recorded)[0].result as u64;
    let arena = recorded.next_multiple_of(ARENA);
    let mut unmapped = calls(&mut layout, Call::Munmap { address: recorded, bytes: arena - recorded }, 0);
    let rest = recorded + ARENA - arena;
    unmapped.extend(calls(&mut layout, Call::Munmap { address: arena + ARENA, bytes: rest }, 0));
    let bytes = |call: &Call| if let Call::Munmap { bytes, .. } = call { *bytes } else { 0 };
    assert_eq!(unmapped.iter().map(bytes).sum::<u64>(), ARENA);
    assert_eq!(layout.address(arena), reserved.next_multiple_of(ARENA));
    assert_eq!(layout.address(arena + ARENA - 1), reserved.next_multiple_of(ARENA) + ARENA - 1);
    // The unmapped range is free.
    let next = mmap(&mut layout, QEMU_BASE + 4 * ARENA, 4096);
    assert!(next < TOP - 12288 && next >= reserved.next_multiple_of(ARENA) + ARENA, "{next:#x}");
}

#[test]
fn splits_a_call_over_mappings_that_are_not_adjacent() {
    let mut layout = Layout::default();
    mmap(&mut layout, QEMU_BASE, HUGE);
    mmap(&mut layout, QEMU_BASE + HUGE, 4096);
    let protect = Call::Mprotect { address: QEMU_BASE, bytes: HUGE + 4096, protection: 1 };
    let translated = calls(&mut layout, protect, 0);
    let total: u64 =
        translated.iter().map(|call| if let Call::Mprotect { bytes, .. } = call { *bytes } else { 0 }).sum();
    assert_eq!((translated.len(), total), (2, HUGE + 4096));
}

#[test]
fn places_program_heap_stack_and_interpreter_as_linux_does() {
    let mut layout = Layout::default();
    let region = |layout: &mut Layout, address, bytes, name: &str| {
        let translated = calls(layout, Call::Region { address, bytes, protection: 3, name: name.into() }, 0);
        if let Call::Region { address, .. } = translated[0] { address } else { 0 }
    };
    assert_eq!(region(&mut layout, QEMU_BASE, 8192, "/bin/a"), PROGRAM);
    assert_eq!(region(&mut layout, QEMU_BASE + 12288, 4096, "/bin/a"), PROGRAM + 12288);
    assert_eq!(region(&mut layout, QEMU_BASE + 5 * HUGE, 4096, "/bin/a"), PROGRAM + 5 * HUGE);
    assert_eq!(region(&mut layout, QEMU_BASE + (16 << 20), 8192, "[stack]"), STACK_END - 8192);
    let ld = region(&mut layout, QEMU_BASE + (32 << 20), 4096, "/lib/ld.so");
    assert_eq!(region(&mut layout, QEMU_BASE + (32 << 20) + 8192, 4096, "/lib/ld.so"), ld + 8192);
    assert_eq!(ld, MMAP_BASE - INTERPRETER_BYTES);
    assert_eq!(mmap(&mut layout, QEMU_BASE + (40 << 20), 8192), ld - VDSO_BYTES - 8192);
    let brk = |layout: &mut Layout, end| translated(layout, Call::Brk { address: end }, end)[0].result as u64;
    let begin = brk(&mut layout, QEMU_BASE + 5 * HUGE + 20480);
    assert_eq!(begin, PROGRAM + 5 * HUGE + 4096);
    assert_eq!(brk(&mut layout, QEMU_BASE + 5 * HUGE + 20480 + 135168), begin + 135168);
    assert_eq!(layout.address(QEMU_BASE + 5 * HUGE + 20480 + 4096), begin + 4096);
    // A program at its link address is not moved, and its heap is behind it.
    let mut layout = Layout::default();
    assert_eq!(region(&mut layout, 0x40_0000, 4096, "/bin/static"), 0x40_0000);
    assert_eq!(region(&mut layout, QEMU_BASE + (16 << 20), 8192, "[stack]"), STACK_END - 8192);
    let mut reads_vdso = layout.clone();
    assert_eq!(region(&mut layout, QEMU_BASE + (16 << 20) + 8192, 8192, ""), MMAP_BASE - 8192);
    assert_eq!(region(&mut reads_vdso, QEMU_BASE + (16 << 20) + 8192, 4096, "[vdso]"), MMAP_BASE - 4096);
    assert_eq!(brk(&mut layout, 0x40_1000), 0x40_1000);
    assert_eq!(mmap(&mut layout, QEMU_BASE + (40 << 20), 8192), MMAP_BASE - VDSO_BYTES - 8192);
}

/// The expected addresses are those in /proc/self/maps on arm64: Linux 6.12 and 7.2 with 48-bit addresses, and Linux 6.12 with
/// pages of 16K.
#[test]
fn on_arm64_the_stack_ends_at_the_end_of_user_addresses() {
    const END: u64 = 1 << 47;
    for (page, vdso_pages, vdso_bytes) in [(4096, Some(4), 0x4000), (4096, None, 0x6000), (16384, Some(3), 0xc000)] {
        let parameters = LayoutParameters {
            platform: Platform::of("aarch64", page, Some(page * page / 8), vdso_pages),
            ..LayoutParameters::default()
        };
        let mut layout = Layout::new(parameters, Image::default());
        let stack = Call::Region { address: QEMU_BASE, bytes: page, protection: 3, name: "[stack]".into() };
        let translated = calls(&mut layout, stack, 0).remove(0);
        assert!(matches!(translated, Call::Region { address, .. } if address == END - page), "{translated:?}");
        assert_eq!(mmap(&mut layout, QEMU_BASE + HUGE, 4 * page), END - (128 << 20) - vdso_bytes - 4 * page);
    }
    let of_risc_v = Platform::of("riscv64", 4096, Some(HUGE), Some(6));
    assert_eq!((of_risc_v.stack_end, of_risc_v.vdso_bytes), (END, 0x6000));
    assert_eq!(Platform::of("x86_64", 4096, Some(HUGE), None), Platform::default());
    assert_eq!(Platform::of("x86_64", 4096, Some(HUGE), Some(6)).vdso_bytes, 0x6000);
}

/// As /proc/self/maps of Linux 6.12 on arm64 shows, a mapping of 32M is aligned with pages of 16K, and a mapping of 4M is not.
#[test]
fn rounds_and_aligns_mappings_to_the_pages_of_the_kernel() {
    const KIB: u64 = 1 << 10;
    let layout = |page: u64| {
        let platform = Platform::of("aarch64", page, Some(page * page / 8), Some(3));
        Layout::new(LayoutParameters { platform, ..LayoutParameters::default() }, Image::default())
    };
    let (mut of_4k, mut of_16k) = (layout(4 * KIB), layout(16 * KIB));
    let base = |page: u64| (1 << 47) - (128 << 20) - 3 * page;
    assert_eq!(mmap(&mut of_4k, QEMU_BASE, 2 * HUGE) % HUGE, 0);
    assert_eq!(mmap(&mut of_16k, QEMU_BASE, 2 * HUGE), base(16 * KIB) - 2 * HUGE);
    assert_eq!(mmap(&mut of_16k, QEMU_BASE + 8 * HUGE, 32 << 20) % (32 << 20), 0);
    // The rest of the last base page belongs to the mapping and is freed with it.
    assert_eq!(mmap(&mut of_4k, QEMU_BASE + 4 * HUGE, 20 * KIB), base(4 * KIB) - 20 * KIB);
    let (two, next) = (base(16 * KIB) - 2 * HUGE - 32 * KIB, base(16 * KIB) - 2 * HUGE - 48 * KIB);
    assert_eq!(mmap(&mut of_16k, QEMU_BASE + 4 * HUGE, 20 * KIB), two);
    assert_eq!(mmap(&mut of_16k, QEMU_BASE + 5 * HUGE, 16 * KIB), next);
    calls(&mut of_16k, Call::Munmap { address: QEMU_BASE + 4 * HUGE, bytes: 20 * KIB }, 0);
    assert_eq!(mmap(&mut of_16k, QEMU_BASE + 6 * HUGE, 32 * KIB), two);
    // The address has the same offset in a large page as the file offset, which is rounded down to a base page.
    let file = |offset| Call::Mmap {
        address: 0,
        bytes: 64 << 20,
        protection: 1,
        flags: 2,
        file: 3,
        offset,
        file_system: None,
    };
    assert_eq!(translated(&mut of_16k, file(20 * KIB), QEMU_BASE + 64 * HUGE)[0].result as u64 % (32 << 20), 16 * KIB);
}

#[test]
fn a_mapping_grows_in_place_within_its_last_base_page() {
    const KIB: u64 = 1 << 10;
    let platform = Platform::of("aarch64", 16 * KIB, Some(32 << 20), None);
    let mut layout = Layout::new(LayoutParameters { platform, ..LayoutParameters::default() }, Image::default());
    mmap(&mut layout, QEMU_BASE, 16 * KIB);
    let first = mmap(&mut layout, QEMU_BASE + HUGE, 20 * KIB);
    let grow = |old_bytes, new_bytes| Call::Mremap {
        address: QEMU_BASE + HUGE,
        old_bytes,
        new_bytes,
        flags: 1,
        new_address: 0,
    };
    let grown = |layout: &mut Layout, call| translated(layout, call, QEMU_BASE + HUGE)[0].result as u64;
    assert_eq!(grown(&mut layout, grow(20 * KIB, 24 * KIB)), first, "both are 32K");
    assert_ne!(grown(&mut layout, grow(24 * KIB, 36 * KIB)), first, "the neighbour is in the way");
}

#[test]
fn memory_that_a_child_does_not_get_may_move_before_the_fork() {
    let mut layout = Layout::default();
    mmap(&mut layout, QEMU_BASE, 2 * HUGE);
    let address = QEMU_BASE + 16 * HUGE;
    let placed = mmap(&mut layout, address, 2 * HUGE);
    translated(&mut layout, Call::Madvise { address, bytes: 2 * HUGE, advice: madv::DONTFORK }, 0);
    let grow = Call::Mremap { address, old_bytes: 2 * HUGE, new_bytes: 4 * HUGE, flags: 1, new_address: 0 };
    let moved = translated(&mut layout, grow, QEMU_BASE + 64 * HUGE)[0].result as u64;
    assert!(moved < placed, "the first mapping is in the way: {moved:#x} {placed:#x}");
    // The addresses are free in the child only.
    let new = |layout: &mut Layout| mmap(layout, QEMU_BASE + 128 * HUGE, 6 * HUGE);
    let (in_child, in_parent) = (new(&mut layout.forked()), new(&mut layout));
    assert!(in_child >= moved && in_parent + 6 * HUGE <= moved, "{in_child:#x} {in_parent:#x} {moved:#x}");
}

#[test]
fn the_architecture_determines_the_address_of_position_independent_programs() {
    let program = |architecture: &str, page: u64| Platform::of(architecture, page, Some(page * page / 8), None).program;
    // Linux 6.12 for arm64 places them at 0xaaaaaaaa0000, and with 47-bit addresses at 0x555555550000.
    assert_eq!(program("aarch64", 4096) % (1 << 30), 0xaaaa_aaaa_0000 % (1 << 30));
    assert_eq!(program("aarch64", 16384), 0x5555_5555_0000);
    assert_eq!(program("aarch64", 65536) % (512 << 20), 0xaaaa_aaaa_0000 % (512 << 20));
    assert_eq!(program("riscv64", 4096), 0x5555_5555_5000);
    assert_eq!(program("x86_64", 4096), PROGRAM);
}

#[test]
fn does_not_translate_a_heap_end_before_the_heap() {
    let mut layout = Layout::default();
    let begin = QEMU_BASE + 5 * HUGE;
    let to = |layout: &mut Layout, end: u64| translated(layout, Call::Brk { address: end }, end)[0].result as u64;
    let placed = to(&mut layout, begin);
    assert_eq!(to(&mut layout, begin - 4096), begin - 4096);
    assert_eq!(to(&mut layout, begin + 4096), placed + 4096);
}

#[test]
fn a_heap_that_ends_at_a_large_page_does_so_on_linux() {
    let begin = QEMU_BASE + 5 * HUGE + 20480;
    let mut layout = Layout::default();
    let brk = |layout: &mut Layout, end: u64| translated(layout, Call::Brk { address: end }, end)[0].result as u64;
    let placed = brk(&mut layout, begin);
    assert_eq!(brk(&mut layout, begin + HUGE), placed + HUGE, "not aligned yet");
    let end = brk(&mut layout, QEMU_BASE + 7 * HUGE);
    assert_eq!(end, (placed + 2 * HUGE - 20480).next_multiple_of(HUGE));
    let advice = Call::Madvise { address: begin + HUGE, bytes: HUGE - 20480, advice: 14 };
    let Call::Madvise { address, bytes, .. } = calls(&mut layout, advice, 0)[0] else {
        panic!("advice remains advice")
    };
    assert_eq!((address, address + bytes), (placed + HUGE, end));
    assert_eq!(brk(&mut layout, QEMU_BASE + 9 * HUGE), end + 2 * HUGE);
    assert_eq!(brk(&mut layout, QEMU_BASE + 8 * HUGE), end + HUGE);
    assert_eq!(layout.address(QEMU_BASE + 8 * HUGE - 4096), placed + 3 * HUGE - 20480 - 4096, "nothing in it moves");
    assert_eq!(brk(&mut layout, begin + 4096), placed + 4096);
    // No kernel places a heap at 0 or at the last address, but a damaged trace can.
    for begin in [0, u64::MAX - 3 * HUGE + 1] {
        let mut layout = Layout::default();
        for end in [begin, begin + 2 * HUGE, begin + HUGE, begin] {
            brk(&mut layout, end);
        }
    }
}

#[test]
fn a_mapping_grows_in_place_only_into_free_addresses() {
    let mut layout = Layout::default();
    let first = mmap(&mut layout, QEMU_BASE, 8192);
    let second = mmap(&mut layout, QEMU_BASE + (1 << 20), 8192);
    assert_eq!(first, second + 8192);
    let grow = |address, to| Call::Mremap { address, old_bytes: 8192, new_bytes: to, flags: 1, new_address: 0 };
    // In the recording the mapping moved. Linux does not move it, unless the program passes an address or keeps the old
    // mapping.
    let move_first =
        |flags| Call::Mremap { address: QEMU_BASE, old_bytes: 8192, new_bytes: 4096, flags, new_address: 0 };
    let moved = |layout: &mut Layout, flags| calls(layout, move_first(flags), QEMU_BASE + (2 << 20)).remove(0);
    let to = |call| if let Call::Mremap { address, .. } = call { address } else { 0 };
    assert_eq!(to(moved(&mut layout.clone(), 1)), first);
    let address = |flags: u64| {
        let mut layout = layout.clone();
        moved(&mut layout, flags);
        layout.address(QEMU_BASE + (2 << 20))
    };
    assert_eq!(address(1), first);
    assert_ne!(address(1 | MREMAP_DONTUNMAP), first);
    // The program moves the mapping to a fixed address inside another mapping.
    let target = mmap(&mut layout.clone(), QEMU_BASE + (2 << 20), 1 << 20);
    let fixed = |flags| {
        let mut layout = layout.clone();
        mmap(&mut layout, QEMU_BASE + (2 << 20), 1 << 20);
        let (old_bytes, new_address) = (8192, QEMU_BASE + (2 << 20) + 4096);
        let call = Call::Mremap { address: QEMU_BASE, old_bytes, new_bytes: 8192, flags, new_address };
        (to(calls(&mut layout, call, new_address).remove(0)), layout.address(new_address), layout.address(QEMU_BASE))
    };
    assert_eq!(fixed(1 | MREMAP_FIXED), (first, target + 4096, QEMU_BASE));
    assert_eq!(fixed(1 | MREMAP_FIXED | MREMAP_DONTUNMAP), (first, target + 4096, first));
    // In the recording the mapping grew in place. On Linux a neighbour is in the way.
    let translated = translated(&mut layout, grow(QEMU_BASE + (1 << 20), 16384), QEMU_BASE + (1 << 20));
    assert_ne!(translated[0].result as u64, second);
    assert_eq!(layout.address(QEMU_BASE + (1 << 20)), translated[0].result as u64);
}

#[test]
fn a_randomised_layout_has_its_parts_at_the_randomised_places() {
    let image = Image { process: 7, execs: 0 };
    let parameters = |seed| LayoutParameters {
        randomisation: Some(Randomisation { seed, bits: RandomBits::of_addresses(47) }),
        ..LayoutParameters::default()
    };
    let lay_out = |parameters: LayoutParameters, image: Image| {
        let mut layout = Layout::new(parameters, image);
        let mut region = |address, bytes, name: &str| {
            let translated = calls(&mut layout, Call::Region { address, bytes, protection: 3, name: name.into() }, 0);
            if let Call::Region { address, .. } = translated[0] { address } else { 0 }
        };
        let program = region(QEMU_BASE, 8192, "/bin/a");
        let stack = region(QEMU_BASE + (16 << 20), 8192, "[stack]");
        let linker = region(QEMU_BASE + (32 << 20), 4096, "/lib/ld.so");
        let brk = Call::Brk { address: 0 };
        let heap = QEMU_BASE + 5 * HUGE;
        let heap = translated(&mut layout, brk, heap)[0].result as u64;
        let first = mmap(&mut layout, QEMU_BASE + (64 << 20), 8192);
        [program, stack + 8192, linker, heap, first]
    };
    for seed in 0..20 {
        let places = Places::of(parameters(seed), image);
        let [program, stack_end, linker, heap, first] = lay_out(parameters(seed), image);
        assert_eq!((program, stack_end), (places.program, places.stack_end));
        assert_eq!(linker, places.mmap_base - INTERPRETER_BYTES);
        assert_eq!(first, linker - VDSO_BYTES - 8192);
        assert_eq!(heap, program + 8192 + places.heap_gap_bytes);
        assert_eq!(
            lay_out(parameters(seed), image),
            [program, stack_end, linker, heap, first],
            "the layout is deterministic"
        );
        assert_ne!(lay_out(parameters(seed), image.next())[0], program, "another program has another layout");
    }
    let fixed = lay_out(LayoutParameters::default(), image);
    assert_eq!((fixed[0], fixed[1], fixed[2]), (PROGRAM, STACK_END, MMAP_BASE - INTERPRETER_BYTES));
}
