//! Tests with guests on the real /dev/kvm. Where it does not exist or this user may not open it, each test prints `skipped: needs
//! /dev/kvm`.

use kvm_split::guest::{Access, Clearing, HostBacking, KvmError, Leaves, Machine, RandomWrites, Request, SplitChunk};
use policy::size::PageSize;
use workloads::memory::base_page;

/// Not a multiple of a word of the log times the slots, so that the last words are only partly used.
const PAGES: u64 = 1000;

fn request(clearing: Clearing) -> Request {
    Request {
        backing: HostBacking::Base,
        alignment: PageSize::M2,
        bytes: PAGES * base_page().bytes(),
        slots: 3,
        vcpus: 2,
        page: base_page(),
        guest_leaf: PageSize::M2,
        clearing,
        split_chunk: None,
        region2: false,
    }
}

fn machine(request: &Request) -> Option<Machine> {
    match Machine::new(request) {
        Err(KvmError::NoDevice { .. }) => {
            testing::skip("/dev/kvm");
            None
        }
        made => Some(made.unwrap()),
    }
}

/// The leaves, and the number of leaves of the guest's memory if base pages map all of it.
fn mapped_by_base_pages(machine: &Machine) -> Option<(Leaves, u64)> {
    let leaves = machine.leaves().unwrap()?;
    (base_page() == PageSize::K4).then_some((leaves, PAGES))
}

#[test]
fn the_log_has_every_page_that_the_guest_wrote_and_no_other() {
    let Some(mut machine) = machine(&request(Clearing::ByGet)) else { return };
    machine.pass(Access::Write(7)).unwrap();
    machine.verify(|_| 7).unwrap();
    machine.set_logging(true).unwrap();
    machine.get_log().unwrap();
    assert_eq!(machine.dirty_pages(), 0, "nothing was written since logging is on");
    machine.pass(Access::Read).unwrap();
    machine.get_log().unwrap();
    assert_eq!(machine.dirty_pages(), 0, "reading leaves no trace in the log");
    for value in [8, 9] {
        machine.pass(Access::Write(value)).unwrap();
        machine.verify(|_| value).unwrap();
        machine.get_log().unwrap();
        assert_eq!(machine.dirty_pages(), PAGES);
    }
    machine.set_logging(false).unwrap();
    machine.pass(Access::Write(10)).unwrap();
    machine.verify(|_| 10).unwrap();
    let error = machine.verify(|_| 9).unwrap_err().to_string();
    assert!(error.starts_with("page 0 of the guest: expected 0x0000000000000009"), "{error}");
}

#[test]
fn a_log_that_is_cleared_by_hand_begins_with_every_page() {
    let Some(mut machine) = machine(&request(Clearing::ByClear)) else { return };
    machine.pass(Access::Write(1)).unwrap();
    machine.set_logging(true).unwrap();
    for _ in 0..2 {
        machine.get_log().unwrap();
        assert_eq!(machine.dirty_pages(), PAGES, "getting does not clear");
    }
    machine.clear_log(Some(64)).unwrap();
    machine.get_log().unwrap();
    assert_eq!(machine.dirty_pages(), 0);
    machine.pass(Access::Write(2)).unwrap();
    machine.get_log().unwrap();
    assert_eq!(machine.dirty_pages(), PAGES, "what was cleared is protected, so that writes are seen");
    machine.clear_log(None).unwrap();
    machine.get_log().unwrap();
    assert_eq!(machine.dirty_pages(), 0);
}

#[test]
fn leaves_are_counted_when_the_guest_has_touched_its_pages() {
    let Some(mut machine) = machine(&request(Clearing::ByGet)) else { return };
    let Some((before, _)) = mapped_by_base_pages(&machine) else {
        testing::skip("a KVM that counts 4K leaves");
        return;
    };
    assert_eq!(before.bytes(), 0, "nothing is mapped before the guest runs");
    machine.pass(Access::Write(1)).unwrap();
    let (after, pages) = mapped_by_base_pages(&machine).unwrap();
    assert_eq!((after.pages_2m, after.pages_1g), (0, 0), "base pages have no large leaves");
    assert!((pages..pages + 64).contains(&after.pages_4k), "{after:?}: all pages and a few of the loop");
}

#[test]
fn the_host_can_write_what_the_guest_then_finds_and_both_calls_make_slots() {
    let Some(mut machine) = machine(&Request { region2: true, ..request(Clearing::ByGet) }) else { return };
    machine.write_from_host(5);
    machine.verify(|_| 5).unwrap();
    machine.pass(Access::Read).unwrap();
    machine.verify(|_| 5).unwrap();
}

#[test]
fn refuses_features_that_this_kvm_lacks_with_a_remedy() {
    let plain = request(Clearing::ByGet);
    if machine(&plain).is_none() {
        return;
    }
    let refused = |request: &Request| Machine::new(request).unwrap_err();
    let error = refused(&Request { slots: u32::MAX, ..plain });
    assert!(
        error.is_unsupported() && error.to_string().contains("--slots 4294967295: this KVM has at most"),
        "{error}"
    );
    let error = refused(&Request { vcpus: 1 << 30, ..plain });
    assert!(error.is_unsupported() && error.to_string().contains("--vcpus 1073741824"), "{error}");
    let error = refused(&Request { split_chunk: Some(SplitChunk(12345)), ..plain });
    assert!(
        error.is_unsupported()
            && error.to_string().contains(if cfg!(target_arch = "aarch64") { "offers" } else { "arm64" })
    );
    let error = refused(&Request { bytes: 1 << 46, backing: HostBacking::Hugetlb(PageSize::M2), ..plain });
    assert!(error.is_unsupported() && error.to_string().contains("hugepages-2048kB/nr_hugepages"), "{error}");
}

#[test]
fn the_guest_writes_the_pages_that_are_drawn_and_the_log_has_no_other() {
    for percent in [0, 30, 100] {
        let small = Request { guest_leaf: PageSize::K4, ..request(Clearing::ByGet) };
        let Some(mut machine) = machine(&small) else { return };
        machine.pass(Access::Drawn(7, RandomWrites::of_percent(3, 100))).unwrap();
        machine.verify(|_| 7).unwrap();
        machine.set_logging(true).unwrap();
        let random_writes = RandomWrites::of_percent(9, percent);
        machine.pass(Access::Drawn(8, random_writes)).unwrap();
        machine.verify(|page| if random_writes.writes(page) { 8 } else { 7 }).unwrap();
        machine.get_log().unwrap();
        assert_eq!(machine.missing_page(|page| random_writes.writes(page)), None);
        assert_eq!(machine.dirty_pages(), (0..PAGES).filter(|page| random_writes.writes(*page)).count() as u64);
        let unwritten = (0..PAGES).find(|page| !random_writes.writes(*page));
        assert_eq!(machine.missing_page(|_| true), unwritten);
    }
}
