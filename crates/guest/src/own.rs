//! The files of pagelab in a guest's initial file system, where it is the first process and no other files exist yet. Without a
//! sysroot these are the running program, the loader that it names and the libraries that are loaded now. With a sysroot the only
//! file is the static pagelab in the sysroot.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::elf::loader;
use crate::sysroot::Sysroot;

/// The name of the program in a guest's initial file system.
pub const PROGRAM: &str = "pagelab";

/// The files by their paths in the guest's initial file system, without a leading `/`.
pub fn files(sysroot: Option<&Sysroot>) -> io::Result<BTreeMap<String, Vec<u8>>> {
    match sysroot {
        Some(sysroot) => Ok(BTreeMap::from([(PROGRAM.to_owned(), fs::read(sysroot.file())?)])),
        None => of_this_program(),
    }
}

fn of_this_program() -> io::Result<BTreeMap<String, Vec<u8>>> {
    let program = fs::read("/proc/self/exe")?;
    let own = fs::read_link("/proc/self/exe")?;
    let mut files = BTreeMap::new();
    if let Some(loader) = loader(&program) {
        files.insert(loader.trim_start_matches('/').to_owned(), fs::read(&loader)?);
    }
    for library in libraries(&fs::read_to_string("/proc/self/maps")?) {
        if library != own {
            let name = library.to_string_lossy().trim_start_matches('/').to_owned();
            files.insert(name, fs::read(&library)?);
        }
    }
    files.insert(PROGRAM.to_owned(), program);
    Ok(files)
}

/// The executable mappings in /proc/self/maps.
fn libraries(maps: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(6, ' ').filter(|word| !word.is_empty());
            let rights = words.nth(1)?;
            let path = line.find('/').map(|at| &line[at..])?;
            (rights.contains('x') && !path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
        })
        .collect();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_with_what_it_loads() {
        let files = files(None).unwrap();
        assert!(files[PROGRAM].starts_with(b"\x7fELF"));
        let is_static = loader(&files[PROGRAM]).is_none();
        assert_eq!(files.len() == 1, is_static, "{:?}", files.keys());
        assert!(files.iter().all(|(name, content)| !name.starts_with('/') && !content.is_empty()));
    }

    #[test]
    fn a_library_has_executable_mappings_and_a_data_file_has_none() {
        let maps = "7f00-7f01 r-xp 00000000 fe:00 1          /usr/lib/libc.so.6\n\
                    7f01-7f02 r--p 00000000 fe:00 1          /usr/share/locale\n\
                    7f02-7f03 r-xp 00000000 00:00 0          [vdso]\n\
                    7f03-7f04 r-xp 00000000 fe:00 1          /tmp/gone (deleted)\n";
        assert_eq!(libraries(maps), [PathBuf::from("/usr/lib/libc.so.6")]);
        assert_eq!(loader(b"\x7fELF"), None);
    }
}
