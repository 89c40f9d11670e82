//! The mappings (VMAs) of a process, as `/proc/PID/maps` prints them (`show_map_vma` in
//! fs/proc/task_mmu.c), and whether a single page of them is there.

mod presence;
mod query;
mod text;
mod vma;

use std::fs::File;
use std::io::BufReader;

use crate::read::content;
use text::first_ending_above;

pub use policy::census::VmaKind;
pub use presence::Presence;
pub use query::query;
pub use text::{MAX_USER_END, MalformedLine, append, parse, parse_line};
pub use vma::Vma;

/// The mappings of a process at this moment, in order of address; empty where it is gone or not visible.
pub fn of_process(process: libc::pid_t) -> Vec<Vma> {
    content(format!("/proc/{process}/maps"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| parse_line(line).ok())
        .collect()
}

/// The mapping of a process that holds an address; `None` where none does, or where the process is gone or not
/// visible. PROCMAP_QUERY finds it in the kernel's tree (Linux 6.11); on older kernels the text is read, as far as
/// the address.
pub fn at(process: libc::pid_t, address: u64) -> Option<Vma> {
    let mut maps = File::open(format!("/proc/{process}/maps")).ok()?;
    let holds = |vma: &Vma| vma.start <= address;
    match query(&maps, address) {
        Ok(found) => found.map(|(vma, _)| vma).filter(holds),
        Err(_) => first_ending_above(&mut BufReader::new(&mut maps), address).filter(holds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_mapping_that_holds_an_address() {
        let own = std::process::id() as libc::pid_t;
        let (code, data) = (at as *const () as u64, "data of this program".as_ptr() as u64);
        for address in [code, data] {
            let vma = at(own, address).expect("it is mapped");
            let mut text = BufReader::new(File::open("/proc/self/maps").unwrap());
            assert_eq!(first_ending_above(&mut text, address), Some(vma.clone()), "the ioctl and the text agree");
            assert!(vma.start <= address && address < vma.end && vma.kind() == VmaKind::PrivateFile, "{vma:?}");
        }
        assert_eq!(at(own, 0), None, "nothing is mapped at address 0, and the next mapping does not hold it");
    }
}
