//! [`Arena`]: regions for generated code that are filled in order, laid out like those of TCG and other translators.

use std::ops::Range;

use nix::sys::mman::ProtFlags;
use policy::size::PageSize;

use super::code::Isa;
use super::mapping::{Advice, JitError, Reservation, memory_file};

/// Alignment of functions in bytes; it suits both instruction sets.
const ALIGNMENT: usize = 16;

/// The layout of an arena.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub regions: usize,
    /// Distance from the start of one region to the next in bytes; a multiple of the base page.
    pub stride_bytes: usize,
    /// Size in bytes of the guard at the end of every region; 0 for none. A multiple of the base page, and less than the stride.
    pub guard_bytes: usize,
    /// Two views of one memfd, one writable and one executable, instead of one mapping for both. Guards are only in the writable
    /// view, as in QEMU's split-wx.
    pub dual: bool,
    /// Advice about large pages, for all views.
    pub advice: Advice,
    /// Every view begins at a multiple of this size.
    pub alignment: PageSize,
}

/// Generated code and the memory that holds it.
#[derive(Debug)]
pub struct Arena {
    shape: Shape,
    isa: Isa,
    /// The view through which code is written. If there is no other view, code is also executed from it.
    writable: Reservation,
    executable: Option<Reservation>,
    /// Offset of the next function.
    next: usize,
    /// Offsets at which functions begin.
    functions: Vec<usize>,
}

impl Arena {
    /// Maps the memory of an arena; no page of it is present yet.
    ///
    /// # Panics
    /// When the shape has no region, no stride, or a guard that is not smaller than the stride.
    pub fn map(shape: Shape) -> Result<Arena, JitError> {
        assert!(shape.regions > 0 && shape.guard_bytes < shape.stride_bytes, "not an arena layout: {shape:?}");
        let isa = Isa::native().ok_or(JitError::Architecture(std::env::consts::ARCH))?;
        let bytes = shape.regions.saturating_mul(shape.stride_bytes);
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let (writable, executable) = if shape.dual {
            let file = memory_file(bytes)?;
            let code = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
            let writable = Reservation::of_file(&file, bytes, shape.alignment, both)?;
            (writable, Some(Reservation::of_file(&file, bytes, shape.alignment, code)?))
        } else {
            (Reservation::new(bytes, shape.alignment)?, None)
        };
        let arena = Arena { shape, isa, writable, executable, next: 0, functions: Vec::new() };
        arena.open()?;
        Ok(arena)
    }

    /// Advises the memory and makes the regions accessible; guards stay or become inaccessible.
    fn open(&self) -> Result<(), JitError> {
        self.writable.advise(self.shape.advice)?;
        let Shape { regions, stride_bytes, guard_bytes, .. } = self.shape;
        let usable_bytes = stride_bytes - guard_bytes;
        match &self.executable {
            Some(executable) => {
                executable.advise(self.shape.advice)?;
                let guards =
                    (0..regions).filter(|_| guard_bytes > 0).map(|region| region * stride_bytes + usable_bytes);
                guards.into_iter().try_for_each(|at| self.writable.protect(at, guard_bytes, ProtFlags::PROT_NONE))
            }
            None => {
                let all = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE | ProtFlags::PROT_EXEC;
                if guard_bytes == 0 {
                    return self.writable.protect(0, regions * stride_bytes, all);
                }
                (0..regions).try_for_each(|region| self.writable.protect(region * stride_bytes, usable_bytes, all))
            }
        }
    }

    /// Generates a function for these constants ([`super::compute`]) and appends it. Returns its index and the length of its code
    /// in bytes, or `None` when it does not fit.
    pub fn generate(&mut self, constants: &[u64]) -> Option<(usize, usize)> {
        let code = self.isa.encode(constants);
        let at = self.place(code.len())?;
        // SAFETY: `place` has found room outside every function and guard, and the view is writable there. No reference to these
        // bytes exists.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.writable.start().add(at).as_ptr(), code.len()) };
        // SAFETY: these bytes were just written and are not written again, so a shared slice of them is sound.
        let executed = unsafe { std::slice::from_raw_parts(self.code_at(at), code.len()) };
        dynasmrt::cache_control::synchronize_icache(executed);
        self.next = at + code.len();
        self.functions.push(at);
        Some((self.functions.len() - 1, code.len()))
    }

    /// Offset for code of this length, which must fit in one region.
    fn place(&self, bytes: usize) -> Option<usize> {
        let Shape { regions, stride_bytes, guard_bytes, .. } = self.shape;
        let usable_bytes = stride_bytes - guard_bytes;
        let at = self.next.next_multiple_of(ALIGNMENT);
        let fits = at % stride_bytes + bytes <= usable_bytes;
        let at = if fits { at } else { at.next_multiple_of(stride_bytes) };
        (bytes <= usable_bytes && at < regions * stride_bytes).then_some(at)
    }

    fn code_at(&self, offset: usize) -> *const u8 {
        let start = self.executable.as_ref().unwrap_or(&self.writable).start();
        start.as_ptr().wrapping_add(offset)
    }

    /// Runs a function on a number.
    ///
    /// # Panics
    /// When there is no function of that index.
    pub fn run(&self, function: usize, number: u64) -> u64 {
        let code = self.code_at(self.functions[function]);
        dynasmrt::cache_control::prepare_for_execution(&[]);
        // SAFETY: this address holds a complete function that `Isa::encode` generated for this machine. It takes and returns one
        // number by the C convention and touches no memory; it is executable, and nothing writes to it while the arena exists.
        let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn(u64) -> u64>(code) };
        function(number)
    }

    /// The instruction set of the generated code.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The addresses from which code is executed.
    pub fn executed(&self) -> Range<u64> {
        self.executable.as_ref().unwrap_or(&self.writable).addresses()
    }

    /// The addresses through which code is written, if they differ from those from which code is executed.
    pub fn written(&self) -> Option<Range<u64>> {
        self.executable.as_ref().map(|_| self.writable.addresses())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::compute;
    use host::maps::{self, Vma};
    use workloads::memory::base_page;

    fn shape(dual: bool, guards: bool) -> Shape {
        let page = base_page().bytes() as usize;
        Shape {
            regions: 3,
            stride_bytes: 4 * page,
            guard_bytes: if guards { page } else { 0 },
            dual,
            advice: Advice::None,
            alignment: PageSize::M2,
        }
    }

    fn mappings(addresses: &Range<u64>) -> Vec<Vma> {
        let mut vmas = maps::of_process(std::process::id() as libc::pid_t).unwrap();
        vmas.retain(|vma| vma.start >= addresses.start && vma.end <= addresses.end);
        vmas
    }

    #[test]
    fn generated_code_computes_the_expected_values_in_every_layout() {
        for (dual, guards) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut arena = Arena::map(shape(dual, guards)).unwrap();
            let mut functions = Vec::new();
            while let Some((function, bytes)) = {
                let first = functions.len() as u64;
                let constants: Vec<u64> = (first..first + 40).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
                let generated = arena.generate(&constants);
                functions.push(constants);
                generated
            } {
                assert_eq!((function, arena.isa().steps_in(bytes)), (functions.len() - 1, 40));
            }
            assert!(functions.len() > 30, "three regions hold more than {}", functions.len());
            for (function, constants) in functions.iter().enumerate().take(functions.len() - 1) {
                assert_eq!(arena.run(function, 7), compute(constants.iter().copied(), 7), "{dual} {guards} {function}");
            }
        }
    }

    #[test]
    fn regions_end_in_guards_and_views_are_aligned() {
        let page = base_page().bytes();
        let accessible = |dual, guards| {
            let arena = Arena::map(shape(dual, guards)).unwrap();
            let addresses = arena.written().unwrap_or(arena.executed());
            assert!(addresses.start.is_multiple_of(2 << 20) && arena.executed().start.is_multiple_of(2 << 20));
            let open = mappings(&addresses).into_iter().filter(Vma::is_writable);
            open.map(|vma| vma.length_bytes() / page).collect::<Vec<u64>>()
        };
        assert_eq!(accessible(false, true), [3, 3, 3]);
        assert_eq!(accessible(true, true), [3, 3, 3]);
        assert_eq!(accessible(false, false).iter().sum::<u64>(), 12);
        assert_eq!(accessible(true, false), [12]);
        let arena = Arena::map(shape(true, true)).unwrap();
        let executed = mappings(&arena.executed());
        assert_eq!(executed.len(), 1, "the executable view has no guards");
        assert!(executed[0].is_executable() && !executed[0].is_writable());
    }

    #[test]
    fn generates_no_code_that_does_not_fit() {
        let mut arena = Arena::map(shape(false, true)).unwrap();
        let too_large = vec![0; 3 * base_page().bytes() as usize / 16];
        assert_eq!(arena.generate(&too_large), None);
        assert!(arena.generate(&[1]).is_some(), "smaller ones still do");
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_missing_function_panics() {
        Arena::map(shape(false, false)).unwrap().run(0, 0);
    }
}
