//! [`Machine`]: a virtual machine with a dirty log for its memory. It has slots, vCPUs, and the timed calls of dirty logging.

use std::io;
use std::time::{Duration, Instant};

use kvm_bindings::{
    KVM_CAP_BINARY_STATS_FD, KVM_CAP_PRE_FAULT_MEMORY, KVM_CAP_USER_MEMORY2, KVM_MEM_LOG_DIRTY_PAGES,
    kvm_userspace_memory_region, kvm_userspace_memory_region2,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use policy::size::PageSize;

use super::bitmap::{chunks, dirty_pages, is_dirty, words};
use super::capabilities::{check_counts, check_version, clear_by, refused, set_split_chunk, unsupported};
use super::program::{Data, Pass, Program};
use super::statistics::Statistics;
use super::{Access, GuestMemory, HostBacking, KvmError, Leaves, RandomWrites, Request, calls, processor, vcpu};

/// A part of the memory, with its dirty bitmap.
#[derive(Debug)]
struct Slot {
    number: u32,
    first_page: u64,
    pages: u64,
    bitmap: Vec<u64>,
}

/// A virtual machine. The fields are dropped in this order: users of the memory before the memory.
#[derive(Debug)]
pub struct Machine {
    vcpus: Vec<VcpuFd>,
    statistics: Option<Statistics>,
    slots: Vec<Slot>,
    vm: VmFd,
    image: GuestMemory,
    data: GuestMemory,
    program: Program,
    page: PageSize,
    region2: bool,
}

impl Machine {
    /// Creates a machine without mapping its memory. An error leaves nothing behind.
    pub fn new(request: &Request) -> Result<Machine, KvmError> {
        let kvm = Kvm::new().map_err(|error| KvmError::no_device(io::Error::from_raw_os_error(error.errno())))?;
        check_version(&kvm)?;
        let data = GuestMemory::map(request.backing, request.bytes, request.alignment)?;
        let guest_data = Data { address: data.address(), bytes: data.bytes(), leaf: request.guest_leaf };
        let program = processor::program(&kvm, guest_data)?;
        let vm = kvm.create_vm().map_err(refused("KVM_CREATE_VM"))?;
        check_counts(&vm, request)?;
        clear_by(&vm, request.clearing)?;
        set_split_chunk(&vm, request.split_chunk)?;
        if request.region2 && vm.check_extension_raw(KVM_CAP_USER_MEMORY2.into()) <= 0 {
            let what = "this KVM has no KVM_SET_USER_MEMORY_REGION2 (Linux 6.8)".into();
            return Err(unsupported(what, "leave out --memory-region 2"));
        }
        let image = image(&program)?;
        let statistics = statistics(&vm)?;
        let slots = divide(request.bytes / request.page.bytes(), request.slots);
        let (page, region2) = (request.page, request.region2);
        let mut machine = Machine { vcpus: Vec::new(), statistics, slots, vm, image, data, program, page, region2 };
        machine.add_slots()?;
        machine.add_vcpus(&kvm, request.vcpus)?;
        Ok(machine)
    }

    /// The leaves that currently map the machine's memory, including its loop and page tables (one leaf, or a few); `None` where
    /// this KVM does not count them.
    pub fn leaves(&self) -> Result<Option<Leaves>, KvmError> {
        self.statistics.as_ref().map_or(Ok(None), Statistics::leaves)
    }

    /// The memory with a dirty log.
    pub fn memory(&self) -> &GuestMemory {
        &self.data
    }

    /// Runs every vCPU once over its pages; returns the duration.
    pub fn pass(&mut self, access: Access) -> Result<Duration, KvmError> {
        let (entry, value, random_writes) = match access {
            Access::Read => (self.program.read_entry, 0, RandomWrites::default()),
            Access::Write(value) => (self.program.write_entry, value, RandomWrites::default()),
            Access::Drawn(value, random_writes) => (self.program.draw_entry, value, random_writes),
        };
        let passes = self.passes(entry, value, random_writes);
        vcpu::run(&mut self.vcpus, &passes)
    }

    /// Makes KVM map all memory without running the guest; returns the duration. The host's own pages must be present already: an
    /// absent page would be mapped as the zero page.
    pub fn pre_fault(&mut self) -> Result<Duration, KvmError> {
        if self.vm.check_extension_raw(KVM_CAP_PRE_FAULT_MEMORY.into()) <= 0 {
            let what = "this KVM does not offer KVM_PRE_FAULT_MEMORY: it needs Linux 6.11 and nested page tables";
            return Err(unsupported(
                what.into(),
                "leave out --populate pre-fault: the guest then touches its pages itself",
            ));
        }
        let passes = self.passes(self.program.write_entry, 0, RandomWrites::default());
        vcpu::pre_fault(&mut self.vcpus, &passes)
    }

    /// Writes the first word of every page from the host.
    pub fn write_from_host(&mut self, value: u64) {
        (0..self.pages()).for_each(|page| self.data.set_word(page * self.page.bytes(), value));
    }

    /// Checks that every page begins with the word that `value` returns for it. The error names the first page that does not.
    pub fn verify(&self, value: impl Fn(u64) -> u64) -> Result<(), KvmError> {
        let found = |page: &u64| self.data.word(page * self.page.bytes());
        match (0..self.pages()).find(|page| found(page) != value(*page)) {
            Some(page) => Err(KvmError::Page { page, expected: value(page), found: found(&page) }),
            None => Ok(()),
        }
    }

    /// Switches logging on or off in every slot; returns the duration.
    pub fn set_logging(&mut self, on: bool) -> Result<Duration, KvmError> {
        let flags = if on { KVM_MEM_LOG_DIRTY_PAGES } else { 0 };
        timed(self.statistics.as_ref(), || self.slots.iter().try_for_each(|slot| self.set_slot(slot, flags)))
    }

    /// Gets the log of every slot; returns the duration.
    pub fn get_log(&mut self) -> Result<Duration, KvmError> {
        let get = |slot: &mut Slot| {
            let got = calls::get_dirty_log(&self.vm, slot.number, slot.pages, &mut slot.bitmap);
            got.map_err(|error| KvmError::refused("KVM_GET_DIRTY_LOG", error))
        };
        timed(self.statistics.as_ref(), || self.slots.iter_mut().try_for_each(get))
    }

    /// Number of dirty pages in the log that was fetched last.
    pub fn dirty_pages(&self) -> u64 {
        self.slots.iter().map(|slot| dirty_pages(&slot.bitmap, slot.pages)).sum()
    }

    /// The first page for which `written` is true but which is clean in the log that was fetched last.
    pub fn missing_page(&self, written: impl Fn(u64) -> bool) -> Option<u64> {
        let missing = |slot: &Slot| {
            let page =
                (0..slot.pages).find(|page| !is_dirty(&slot.bitmap, *page) && written(slot.first_page + page))?;
            Some(slot.first_page + page)
        };
        self.slots.iter().find_map(missing)
    }

    /// Clears the pages in the log that was fetched last, `chunk_pages` at a time (a positive multiple of 64; `None`: a slot at a
    /// time); returns the duration.
    pub fn clear_log(&mut self, chunk_pages: Option<u64>) -> Result<Duration, KvmError> {
        let clear = |slot: &Slot| {
            chunks(slot.pages, chunk_pages.unwrap_or(MAX_CHUNK)).try_for_each(|(first, pages)| {
                let cleared = calls::clear_dirty_log(&self.vm, slot.number, first, pages, &slot.bitmap[words(first)..]);
                cleared.map_err(|error| KvmError::refused("KVM_CLEAR_DIRTY_LOG", error))
            })
        };
        timed(self.statistics.as_ref(), || self.slots.iter().try_for_each(clear))
    }

    fn pages(&self) -> u64 {
        self.data.bytes() / self.page.bytes()
    }

    fn passes(&self, entry: u64, value: u64, random_writes: RandomWrites) -> Vec<Pass> {
        let address = |page: u64| self.program.data_gpa + page * self.page.bytes();
        let parts = parts(self.pages(), self.vcpus.len() as u64);
        let pass = |(from, to)| Pass {
            entry,
            first: address(from),
            end: address(to),
            stride: self.page.bytes(),
            value,
            doorbell: self.program.doorbell,
            state: random_writes.state(from),
            write_threshold: random_writes.write_threshold(),
        };
        parts.map(pass).collect()
    }

    fn add_slots(&mut self) -> Result<(), KvmError> {
        // Slot 0 holds the loop and is never logged.
        self.set_region(0, 0, self.program.image_gpa, self.image.address(), self.image.bytes())?;
        self.slots.iter().try_for_each(|slot| self.set_slot(slot, 0))
    }

    fn set_slot(&self, slot: &Slot, flags: u32) -> Result<(), KvmError> {
        let [offset, bytes] = [slot.first_page, slot.pages].map(|pages| pages * self.page.bytes());
        self.set_region(slot.number, flags, self.program.data_gpa + offset, self.data.address() + offset, bytes)
    }

    fn set_region(&self, slot: u32, flags: u32, gpa: u64, address: u64, bytes: u64) -> Result<(), KvmError> {
        let (guest_phys_addr, memory_size, userspace_addr) = (gpa, bytes, address);
        if self.region2 {
            let region = kvm_userspace_memory_region2 {
                slot,
                flags,
                guest_phys_addr,
                memory_size,
                userspace_addr,
                ..Default::default()
            };
            // SAFETY: the address is inside a mapping that is unmapped after the VM is closed, and regions do not overlap: the
            // image ends below the data, and slots are parts of the data.
            let set = unsafe { self.vm.set_user_memory_region2(region) };
            return set.map_err(refused("KVM_SET_USER_MEMORY_REGION2"));
        }
        let region = kvm_userspace_memory_region { slot, flags, guest_phys_addr, memory_size, userspace_addr };
        // SAFETY: as above.
        let set = unsafe { self.vm.set_user_memory_region(region) };
        set.map_err(refused("KVM_SET_USER_MEMORY_REGION"))
    }

    fn add_vcpus(&mut self, kvm: &Kvm, count: u32) -> Result<(), KvmError> {
        for number in 0..count {
            let vcpu = self.vm.create_vcpu(number.into()).map_err(refused("KVM_CREATE_VCPU"))?;
            processor::prepare(kvm, &self.vm, &vcpu, &self.program)?;
            self.vcpus.push(vcpu);
        }
        Ok(())
    }
}

/// The most pages that one KVM_CLEAR_DIRTY_LOG accepts, in whole words of the log (`num_pages` has 32 bits).
const MAX_CHUNK: u64 = (u32::MAX as u64) / 64 * 64;

/// Times `calls` of KVM. Directly before, the thread makes an ioctl that returns where a driver would be called. This brings the
/// code path of an ioctl into the processor's caches, but nothing of KVM. After the guest has run, that path is cold, and takes a
/// fifth of the time of the shortest calls.
fn timed(statistics: Option<&Statistics>, calls: impl FnOnce() -> Result<(), KvmError>) -> Result<Duration, KvmError> {
    if let Some(statistics) = statistics {
        statistics.ioctl_without_effect();
    }
    let begin = Instant::now();
    calls()?;
    Ok(begin.elapsed())
}

fn statistics(vm: &VmFd) -> Result<Option<Statistics>, KvmError> {
    if vm.check_extension_raw(KVM_CAP_BINARY_STATS_FD.into()) <= 0 {
        return Ok(None);
    }
    let file = calls::statistics(vm).map_err(|error| KvmError::refused("KVM_GET_STATS_FD", error))?;
    Ok(Some(Statistics::new(file)))
}

fn image(program: &Program) -> Result<GuestMemory, KvmError> {
    /// At least as large as any base page.
    const PAGE: usize = 64 << 10;
    let bytes = program.image.len().next_multiple_of(PAGE) as u64;
    let mut memory = GuestMemory::map(HostBacking::Policy, bytes, PageSize::K64)?;
    for (index, word) in program.image.chunks(size_of::<u64>()).enumerate() {
        let mut bytes = [0; size_of::<u64>()];
        bytes[..word.len()].copy_from_slice(word);
        memory.set_word((index * bytes.len()) as u64, u64::from_ne_bytes(bytes));
    }
    Ok(memory)
}

/// Divides `pages` into `count` parts of nearly equal size: first page and end.
fn parts(pages: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    let at = move |part: u64| (u128::from(pages) * u128::from(part) / u128::from(count)) as u64;
    (0..count).map(move |part| (at(part), at(part + 1)))
}

fn divide(pages: u64, slots: u32) -> Vec<Slot> {
    let slot = |(number, (from, to)): (u32, (u64, u64))| {
        let mut bitmap = vec![0; words(to - from)];
        // The bitmap is written now, so that no page fault of this process is timed later.
        bitmap.fill(u64::MAX);
        Slot { number, first_page: from, pages: to - from, bitmap }
    };
    (1..).zip(parts(pages, slots.into())).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_equal_and_complete() {
        assert_eq!(parts(10, 3).collect::<Vec<_>>(), [(0, 3), (3, 6), (6, 10)]);
        assert_eq!(parts(1 << 60, 1).collect::<Vec<_>>(), [(0, 1 << 60)]);
        let slots = divide(130, 2);
        assert_eq!(
            slots.iter().map(|slot| (slot.number, slot.first_page, slot.pages)).collect::<Vec<_>>(),
            [(1, 0, 65), (2, 65, 65)]
        );
        assert!(slots.iter().all(|slot| slot.bitmap.len() == 2));
    }
}
