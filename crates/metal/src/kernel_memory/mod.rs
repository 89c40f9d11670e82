//! The kernel's own memory, read: by a small BPF program that copies what it is asked to, many places in one call.
//!
//! BPF_PROG_TYPE_SYSCALL (Linux 5.14) with bpf_loop (5.17); both need CAP_BPF and CAP_PERFMON, and lockdown of
//! confidentiality forbids it. Nothing is written and nothing is attached to: the program runs when it is called, in
//! the caller's context. What cannot be read (not mapped, beyond memory) is told for each place
//! (`copy_from_kernel_nofault`, mm/maccess.c).
//!
//! This room knows nothing of what it reads, but for [`btf`], which says where the fields of the kernel's structures
//! are.

mod bpf;
pub(crate) mod btf;
mod program;

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::mman::ProtFlags;

use crate::memory::Mapping;

pub use program::{DATA_WORDS, MOST_REQUESTS, MOST_WORDS};

const WORD: u64 = 8;

/// A place in the kernel's memory, and where its copy shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kernel's address.
    pub address: u64,
    /// How many words of 8 bytes, at most [`MOST_WORDS`].
    pub words: usize,
    /// The first word of the copy, such that the copy ends at [`DATA_WORDS`]; copies that overlap hold the later one.
    pub at: usize,
}

/// Copies the kernel's memory. One thread uses it at a time; several have one each.
#[derive(Debug)]
pub struct Copier {
    program: OwnedFd,
    memory: Mapping,
}

impl Copier {
    /// Loads the program.
    ///
    /// # Errors
    /// What the kernel said; `EPERM` without the capabilities, `EINVAL` where it is too old.
    pub fn new() -> io::Result<Copier> {
        let bytes = program::MAP_WORDS * WORD as usize;
        let map = bpf::map(bytes)?;
        let program = bpf::load(&map)?;
        let memory = Mapping::of_file(&map, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        Ok(Copier { program, memory })
    }

    /// Copies all of these, in their order, and says for each whether it could be read.
    ///
    /// # Errors
    /// What the kernel said of the call; `InvalidInput` for more than [`MOST_REQUESTS`], [`MOST_WORDS`] or
    /// [`DATA_WORDS`], and then nothing is copied.
    pub fn copy(&mut self, requests: &[Request]) -> io::Result<Vec<bool>> {
        let fits = |request: &Request| request.words <= MOST_WORDS && request.at <= DATA_WORDS - request.words;
        if requests.len() > MOST_REQUESTS || !requests.iter().all(fits) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let calls = requests.len().div_ceil(program::EACH_CALL);
        let mut places = self.words_mut()[program::HEADER_WORDS..].chunks_exact_mut(program::REQUEST_WORDS);
        for (request, place) in requests.iter().zip(&mut places) {
            place.copy_from_slice(&[request.address, request.at as u64 * WORD, request.words as u64 * WORD, 1]);
        }
        // The last call serves some that nobody asked for: they copy nothing.
        places.take(calls * program::EACH_CALL - requests.len()).for_each(|place| place.fill(0));
        bpf::run(&self.program, calls as u64)?;
        let places = self.words()[program::HEADER_WORDS..].chunks_exact(program::REQUEST_WORDS);
        Ok(places.take(requests.len()).map(|place| place[3] == 0).collect())
    }

    /// The copies of the last call.
    pub fn copies(&self) -> &[u64] {
        &self.words()[program::DATA..program::DATA + DATA_WORDS]
    }

    /// One word of the kernel's memory; `None` where there is none to read.
    ///
    /// # Errors
    /// As [`Copier::copy`].
    pub fn word(&mut self, address: u64) -> io::Result<Option<u64>> {
        let readable = self.copy(&[Request { address, words: 1, at: 0 }])?[0];
        Ok(readable.then(|| self.copies()[0]))
    }

    /// The kernel's `struct task_struct` of the calling thread.
    ///
    /// # Errors
    /// As [`Copier::copy`].
    pub fn current_task(&mut self) -> io::Result<u64> {
        self.copy(&[])?;
        Ok(self.words()[0])
    }

    fn words(&self) -> &[u64] {
        // SAFETY: the mapping has so many words, every one is valid for any bits, and it begins at a page. The
        // program alone writes to it, and runs only where `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().cast(), program::MAP_WORDS) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above; and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().cast(), program::MAP_WORDS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copier() -> Option<Copier> {
        match Copier::new() {
            Ok(copier) => return Some(copier),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                testing::skip(format!("CAP_BPF and CAP_PERFMON, and a kernel without lockdown ({error})"));
            }
            Err(error) if std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => panic!("{error}"),
            Err(error) => testing::skip(format!("a kernel with BTF, Linux 5.17 or later ({error})")),
        }
        None
    }

    /// Where the kernel keeps the number of this thread, which does not change as most of its structure does.
    fn own_number(copier: &mut Copier) -> (u64, u32) {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let offset = btf::Btf::parse(&bytes).unwrap().offset("task_struct", "pid").unwrap();
        (copier.current_task().unwrap() + offset, nix::unistd::gettid().as_raw() as u32)
    }

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_told() {
        let Some(mut copier) = copier() else { return };
        let (address, number) = own_number(&mut copier);
        let place = |address, at, words| Request { address, words, at };
        let requests = [
            place(address, 0, 1),
            place(0xdead_0000_0000_0000, 64, 8),
            place(address, DATA_WORDS - 1, 1),
            place(address, 128, 64),
            place(0, 256, 0),
            place(0, 256, 1),
        ];
        assert_eq!(copier.copy(&requests).unwrap()[..4], [true, false, true, true]);
        for at in [0, DATA_WORDS - 1, 128] {
            assert_eq!(copier.copies()[at] as u32, number, "at {at}");
        }
        assert_eq!(copier.word(address).unwrap().map(|word| word as u32), Some(number));
        assert_eq!(copier.word(8).unwrap(), None, "a user's address is none of the kernel's");
    }

    #[test]
    fn as_many_as_fit_and_no_more() {
        let Some(mut copier) = copier() else { return };
        let (address, number) = own_number(&mut copier);
        let requests: Vec<Request> = (0..MOST_REQUESTS + 1).map(|at| Request { address, words: 1, at }).collect();
        assert!(copier.copy(&requests[1..]).unwrap().into_iter().all(|readable| readable));
        assert!(copier.copies()[1..=MOST_REQUESTS].iter().all(|word| *word as u32 == number));
        assert_eq!(copier.copy(&requests).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        for (at, words) in [(DATA_WORDS, 1), (0, MOST_WORDS + 1), (usize::MAX, 1), (DATA_WORDS - 1, 2), (0, usize::MAX)]
        {
            let refused = copier.copy(&[Request { address, words, at }]);
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{words} words at {at}");
        }
        assert!(copier.copy(&[Request { address, words: MOST_WORDS, at: DATA_WORDS - MOST_WORDS }]).is_ok());
    }
}
