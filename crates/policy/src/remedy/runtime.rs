//! [`Runtime`]s of a process: allocators, language runtimes and servers that have switches of their own for large pages.

/// An allocator, runtime or server with switches for large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runtime {
    /// The malloc of glibc.
    Glibc,
    /// jemalloc as a shared library.
    Jemalloc,
    /// mimalloc as a shared library.
    Mimalloc,
    /// tcmalloc as a shared library.
    Tcmalloc,
    /// A Java virtual machine (HotSpot).
    Jvm,
    /// A program that was built by Go.
    Go,
    /// Node.js.
    Node,
    /// CPython.
    CPython,
    /// PostgreSQL.
    PostgreSql,
    /// MariaDB or MySQL.
    MySql,
    /// Redis or Valkey.
    Redis,
    /// QEMU.
    Qemu,
}

/// The runtimes of a process. `program` is the path of its program, and `code_files` are the files mapped as code.
pub fn runtimes(program: Option<&str>, code_files: &[String], is_go: bool) -> Vec<Runtime> {
    let name = |path: &str| path.strip_suffix(" (deleted)").unwrap_or(path).rsplit('/').next().unwrap_or("").to_owned();
    let program = program.map(name).unwrap_or_default();
    let libraries: Vec<String> = code_files.iter().map(|path| name(path)).collect();
    let has = |prefix: &str| libraries.iter().any(|library| library.starts_with(prefix));
    let is = |names: &[&str]| names.contains(&program.as_str());
    let allocators = [
        (Runtime::Jemalloc, has("libjemalloc")),
        (Runtime::Mimalloc, has("libmimalloc")),
        (Runtime::Tcmalloc, has("libtcmalloc")),
    ];
    // Another allocator takes the place of glibc's malloc.
    let is_replaced = allocators.iter().any(|(_, is_there)| *is_there);
    let others = [
        (Runtime::Glibc, (has("libc.so.6") || has("libc-2.")) && !is_replaced),
        (Runtime::Jvm, has("libjvm.so")),
        (Runtime::Go, is_go),
        (Runtime::Node, is(&["node", "nodejs"]) || has("libnode.so")),
        (Runtime::CPython, program.starts_with("python") || has("libpython")),
        (Runtime::PostgreSql, is(&["postgres"])),
        (Runtime::MySql, is(&["mariadbd", "mysqld"])),
        (Runtime::Redis, is(&["redis-server", "valkey-server", "redis-check-rdb", "valkey-check-rdb"])),
        (Runtime::Qemu, program.starts_with("qemu-system-")),
    ];
    allocators.into_iter().chain(others).filter(|(_, is_there)| *is_there).map(|(runtime, _)| runtime).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_recognised_by_their_files() {
        let of = |program: &str, files: &[&str]| {
            runtimes(Some(program), &files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>(), false)
        };
        assert_eq!(of("/usr/bin/cc1", &["/lib/x86_64-linux-gnu/libc.so.6"]), [Runtime::Glibc]);
        assert_eq!(
            of("/usr/bin/redis-check-rdb", &["/lib/libjemalloc.so.2", "/lib/libc.so.6"]),
            [Runtime::Jemalloc, Runtime::Redis]
        );
        assert_eq!(of("/usr/sbin/mariadbd (deleted)", &["/lib/libc.so.6"]), [Runtime::Glibc, Runtime::MySql]);
        assert_eq!(of("/opt/postgres-tool", &["/opt/libcrypto.so"]), []);
    }
}
