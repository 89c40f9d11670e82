// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;
use trace::{Chunk, Window};

fn header(addresses: bool, window: Option<Window>) -> Header {
    Header { columns: Columns { kinds: true, accesses: true, addresses }, window, ..Header::of("") }
}

fn vcpu(addresses: bool) -> Vcpu {
    let header = header(addresses, None);
    begun(&header, None)
}

fn begun(header: &Header, max: Option<u64>) -> Vcpu {
    Vcpu::new(0, header, Schedule::new(header, max), 0)
}

fn chunk(vcpu: &mut Vcpu, addresses: bool) -> Chunk {
    chunk_of(vcpu, addresses, 1 << 20, false)
}

fn chunk_of(vcpu: &mut Vcpu, addresses: bool, max_runs: usize, many: bool) -> Chunk {
    let header = header(addresses, None);
    let mut buffers = EncoderBuffers::new(header.columns).unwrap();
    let runs = vcpu.take(&mut buffers).unwrap();
    vcpu.written(&header, max_runs, many);
    Chunk::decode(&buffers.bytes, runs, header.columns).unwrap()
}

/// Accesses that resemble a program's; deterministic.
fn accesses(count: usize) -> impl Iterator<Item = (u64, Kind)> {
    let mut state = 1u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kind = [Kind::FETCH, Kind::LOAD, Kind::LOAD, Kind::STORE][(state >> 40) as usize % 4];
        ((state >> 61) << 12 | (state >> 50 & 0x3f) << 3, kind)
    })
    .take(count)
}

/// Does what a callback does if an access does not succeed at first: empties the buffer and tries again.
fn access(vcpu: &mut Vcpu, address: u64, kind: Kind) {
    if !vcpu.current().access(address, kind) && !vcpu.access_anywhere(address, 8, kind) {
        assert!(!vcpu.empty(usize::MAX));
        assert!(vcpu.access_anywhere(address, 8, kind));
    }
}

fn fetch(vcpu: &mut Vcpu, page: u64, fetches: u64) {
    let page = page << PAGE_SHIFT;
    if !vcpu.current().fetch(page, fetches) {
        assert!(!vcpu.empty(usize::MAX));
        assert!(vcpu.current().fetch(page, fetches));
    }
}

#[test]
fn runs_of_a_chunk_are_those_of_the_accesses() {
    // The buffers are emptied every `often` accesses: often, or after more runs than are passed on together.
    for (keep, often) in [(false, 77), (true, 77), (false, 3001)] {
        let mut reference = if keep { Runs::in_sequence(RUNS) } else { Runs::new(RUNS) };
        let (mut vcpu, mut expected) = (vcpu(keep), Vec::new());
        let mut take = |reference: &mut Runs| {
            expected.extend_from_slice(reference.finished());
            reference.clear();
            expected.len() as u64
        };
        for (number, (address, kind)) in accesses(RUNS).enumerate() {
            assert!(reference.access(address, kind));
            match (kind, keep) {
                (_, true) => assert!(!vcpu.keep(address, if kind == Kind::FETCH { 4 } else { 8 }, kind)),
                (Kind::FETCH, false) => fetch(&mut vcpu, address >> 12, 1),
                (_, false) => access(&mut vcpu, address, kind),
            }
            // Empties the buffers, as an event does.
            if number % often == 0 {
                assert!(!vcpu.empty(usize::MAX));
                assert_eq!(vcpu.place(), take(&mut reference));
            }
        }
        take(&mut reference);
        let chunk = chunk(&mut vcpu, keep);
        assert_eq!(chunk.runs().collect::<Vec<Run>>(), expected);
        assert_eq!(chunk.addresses.len(), if keep { RUNS } else { 0 });
    }
}

#[test]
fn one_of_many_threads_has_the_runs_of_one_of_few() {
    // Chunks of 2000 and of 300 runs: the buffer is often full, and so is the chunk.
    for max_runs in [2000, 300] {
        let [few, many] = [false, true].map(|many| {
            let (mut vcpu, mut runs) = (vcpu(false), Vec::new());
            chunk_of(&mut vcpu, false, if many { max_runs } else { 1 << 20 }, many);
            let max_runs = if many { max_runs } else { usize::MAX };
            let mut take = |vcpu: &mut Vcpu, is_full: bool| {
                if is_full {
                    runs.extend(chunk_of(vcpu, false, if many { max_runs } else { 1 << 20 }, many).runs());
                }
            };
            for (number, (address, kind)) in accesses(20_000).enumerate() {
                let go = |vcpu: &mut Vcpu| match kind {
                    Kind::FETCH => vcpu.current().fetch(address >> PAGE_SHIFT << PAGE_SHIFT, 3),
                    _ => vcpu.access_anywhere(address, 8, kind),
                };
                if !go(&mut vcpu) {
                    let is_full = vcpu.empty(max_runs);
                    take(&mut vcpu, is_full);
                    assert!(go(&mut vcpu));
                }
                // Empties the buffers, as before a call in which the kernel touches memory.
                if number % 50 == 0 {
                    let is_full = vcpu.empty(max_runs);
                    take(&mut vcpu, is_full);
                    let is_full = vcpu.kernel_access(address, 8, number % 100 == 0, max_runs);
                    take(&mut vcpu, is_full);
                }
            }
            take(&mut vcpu, true);
            runs
        });
        // Runs also end where a buffer ends, so only their sums are the same.
        let sums = |runs: &[Run]| {
            let mut sums = std::collections::BTreeMap::<(u64, bool, bool), u64>::new();
            for run in runs {
                let key = (run.page, run.kind == Kind::FETCH, run.kind.has(Kind::KERNEL));
                *sums.entry(key).or_default() += u64::from(run.accesses);
            }
            sums
        };
        assert_eq!(sums(&many), sums(&few));
        let kernel = |runs: &[Run]| runs.iter().filter(|run| run.kind.has(Kind::KERNEL)).copied().collect::<Vec<_>>();
        assert_eq!(kernel(&many), kernel(&few));
    }
}

#[test]
fn full_buffers_lose_nothing() {
    let mut vcpu = vcpu(false);
    let mut pages = std::collections::BTreeMap::<(u64, bool), u32>::new();
    for (address, kind) in accesses(RUNS * 3) {
        let is_fetch = kind == Kind::FETCH;
        *pages.entry((address >> 12, is_fetch)).or_default() += if is_fetch { 3 } else { 1 };
        if is_fetch { fetch(&mut vcpu, address >> 12, 3) } else { access(&mut vcpu, address, Kind::STORE) }
    }
    for run in chunk(&mut vcpu, false).runs() {
        *pages.get_mut(&(run.page, run.kind == Kind::FETCH)).unwrap() -= run.accesses;
    }
    assert!(pages.values().all(|left| *left == 0), "{pages:?}");
}

#[test]
fn long_runs_are_counted() {
    let mut vcpu = vcpu(false);
    for number in 0..3_000_000 {
        fetch(&mut vcpu, 7, 3);
        access(&mut vcpu, 0x5000, if number == 0 { Kind::STORE } else { Kind::LOAD });
    }
    access(&mut vcpu, 0x6000, Kind::LOAD);
    let found: Vec<_> = chunk(&mut vcpu, false).runs().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
    assert_eq!(found, [(7, 1, 9_000_000), (5, 14, 3_000_000), (6, 2, 1)]);
}

#[test]
fn nothing_is_recorded_outside_a_window() {
    let header = header(false, Some(Window { skip_instructions: 100, record_instructions: None }));
    let mut vcpu = begun(&header, None);
    assert!(
        !vcpu.current().fetch(1, 1)
            && !vcpu.current().access(0x1000, Kind::LOAD)
            && !vcpu.access_anywhere(0x1000, 8, Kind::LOAD)
    );
    vcpu.current().count(100);
    assert!(matches!(vcpu.attend(), Attention::WindowStart));
    assert!(vcpu.current().fetch(1, 1) && vcpu.current().access(0x1000, Kind::LOAD));
    assert_eq!(chunk(&mut vcpu, false).len(), 2);
}

#[test]
fn a_chunk_is_taken_when_it_is_due() {
    let mut vcpu = vcpu(false);
    access(&mut vcpu, 0x1000, Kind::LOAD);
    vcpu.current().count(pace::MIN_INSTRUCTIONS);
    assert!(vcpu.empty(usize::MAX));
    assert_eq!(chunk(&mut vcpu, false).len(), 1);
    assert!(!vcpu.empty(usize::MAX));
}

#[test]
fn an_access_over_the_end_of_a_page_is_one_to_each() {
    let mut runs = vcpu(false);
    access(&mut runs, 0x1ffc, Kind::STORE);
    let found: Vec<_> = chunk(&mut runs, false).runs().map(|run| (run.page, run.kind.bits())).collect();
    assert_eq!(found, [(1, 4), (2, 4)]);
    let mut vcpu = vcpu(true);
    vcpu.keep(0x1ffc, 8, Kind::STORE);
    vcpu.keep(0x2ffe, 6, Kind::FETCH);
    let chunk = chunk(&mut vcpu, true);
    let found: Vec<_> = chunk.runs().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
    assert_eq!(found, [(1, 4, 1), (2, 4, 1), (2, 1, 1), (3, 1, 1)]);
    let kept: Vec<_> = chunk.addresses.iter().map(|access| (access.offset(), access.bytes())).collect();
    assert_eq!(kept, [(0xffc, Some(4)), (0, Some(4)), (0xffe, Some(2)), (0, Some(4))]);
}

#[test]
fn windows_open_and_close_at_their_instructions() {
    let header = header(false, Some(Window { skip_instructions: 100, record_instructions: Some(10) }));
    let mut vcpu = begun(&header, Some(15));
    let mut changes = Vec::new();
    for _ in 0..400 {
        while vcpu.needs_attention() {
            match vcpu.attend() {
                Attention::WindowStart => changes.push((true, vcpu.instructions())),
                Attention::WindowEnd | Attention::LastWindowEnd => changes.push((false, vcpu.instructions())),
                Attention::BlockDue | Attention::FirstInstruction | Attention::CallReturned => unreachable!(),
            }
        }
        vcpu.current().count(1);
    }
    assert_eq!(changes, [(true, 100), (false, 110), (true, 210), (false, 215)]);
}

#[test]
fn reports_the_first_instruction_and_the_windows_of_a_processor() {
    for (window, expected) in [
        (None, &["begun 0", "complete 15"][..]),
        (
            Some(Window { skip_instructions: 100, record_instructions: Some(10) }),
            &["begun 0", "opened 100", "closed 110", "opened 210", "complete 215"],
        ),
    ] {
        let header = Header { system: true, ..header(false, window) };
        let mut vcpu = begun(&header, Some(15));
        let mut reported = Vec::new();
        for _ in 0..400 {
            while vcpu.needs_attention() {
                let what = match vcpu.attend() {
                    Attention::FirstInstruction => "begun",
                    Attention::WindowStart => "opened",
                    Attention::WindowEnd => "closed",
                    Attention::LastWindowEnd => "complete",
                    Attention::BlockDue | Attention::CallReturned => unreachable!(),
                };
                reported.push(format!("{what} {}", vcpu.instructions()));
            }
            vcpu.current().count(1);
        }
        assert_eq!(reported, expected);
    }
}

#[test]
fn a_chunk_is_taken_before_it_overflows() {
    let mut vcpu = vcpu(false);
    let mut given = 0;
    for page in 0..200_000u64 {
        if !vcpu.current().access(page << 12, Kind::LOAD) {
            if vcpu.empty(usize::MAX) {
                given += chunk(&mut vcpu, false).len();
            }
            assert!(vcpu.current().access(page << 12, Kind::LOAD));
        }
    }
    assert!(given > 0);
    assert_eq!(given + chunk(&mut vcpu, false).len(), 200_000);
    assert_eq!(vcpu.place(), 200_000);
}

#[test]
fn begins_runs_on_recently_touched_pages_and_not_on_first_touches() {
    let mut vcpu = vcpu(false);
    vcpu.detect_first_touches();
    for page in [0x1000, 0x2000] {
        assert!(!vcpu.current().access(page, Kind::LOAD));
        assert!(vcpu.touch(page, Kind::LOAD));
        assert!(vcpu.current().access_again(page, Kind::LOAD));
    }
    assert!(vcpu.current().access(0x1000, Kind::LOAD) && vcpu.current().access(0x2000, Kind::LOAD));
    // The page's first store is a first touch.
    assert!(!vcpu.current().access(0x1000, Kind::STORE));
    assert!(vcpu.touch(0x1000, Kind::STORE) && vcpu.current().access_again(0x1000, Kind::STORE));
    assert!(vcpu.current().access(0x2000, Kind::LOAD) && vcpu.current().access(0x1000, Kind::STORE));
}
