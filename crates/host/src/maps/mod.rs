//! The mappings (VMAs) of a process, as in `/proc/PID/maps` (`show_map_vma` in fs/proc/task_mmu.c), and whether a single page of
//! them is present.

mod presence;
mod query;
mod text;
mod vma;

use std::fs::File;
use std::io::{self, BufReader};

use crate::absence::if_exists;
use crate::read::content;
use text::first_ending_above;

pub use policy::census::VmaKind;
pub use presence::Presence;
pub use query::query;
pub use text::{MAX_USER_END, MalformedLine, append, parse, parse_line};
pub use vma::Vma;

/// The current mappings of a process in address order; empty where it is gone.
pub fn of_process(process: libc::pid_t) -> io::Result<Vec<Vma>> {
    let path = format!("/proc/{process}/maps");
    let Some(text) = if_exists(content(&path))? else { return Ok(Vec::new()) };
    let understood =
        |line| parse_line(line).map_err(|expected| io::Error::other(MalformedLine::new(&path, expected, line)));
    text.lines().map(understood).collect()
}

/// The mapping of a process that contains an address; `None` where there is none or the process is gone. PROCMAP_QUERY finds it
/// in the kernel's tree (Linux 6.11); on older kernels the text is read up to the address.
pub fn at(process: libc::pid_t, address: u64) -> io::Result<Option<Vma>> {
    let path = format!("/proc/{process}/maps");
    let Some(mut maps) = if_exists(File::open(&path))? else { return Ok(None) };
    let found = match query(&maps, address) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
            first_ending_above(&mut BufReader::new(&mut maps), address, &path)
        }
        found => found.map(|found| found.map(|(vma, _)| vma)),
    };
    Ok(if_exists(found)?.flatten().filter(|vma| vma.start <= address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_mapping_that_holds_an_address() {
        let own = std::process::id() as libc::pid_t;
        let (code, data) = (at as *const () as u64, "data of this program".as_ptr() as u64);
        for address in [code, data] {
            let vma = at(own, address).unwrap().expect("it is mapped");
            let mut text = BufReader::new(File::open("/proc/self/maps").unwrap());
            let from_text = first_ending_above(&mut text, address, "maps").unwrap();
            assert_eq!(from_text, Some(vma.clone()), "the ioctl and the text agree");
            assert!(vma.start <= address && address < vma.end && vma.kind() == VmaKind::PrivateFile, "{vma:?}");
        }
        let nothing = at(own, 0).unwrap();
        assert_eq!(nothing, None, "nothing is mapped at address 0, and the next mapping does not hold it");
        assert_eq!(at(-1, 0).unwrap(), None, "there is no such process");
        assert_eq!(of_process(-1).unwrap(), []);
    }
}
