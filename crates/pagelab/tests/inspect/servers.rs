//! Tests of the switches of servers and allocators that make these use hugetlb pages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::causes::{Set, THP, for_advised};
use super::switches::{Filled, Pool, always, pooled};
use crate::common::{Bench, has, needs};

/// The condition of a remedy for memory that grew in pieces, which the kernel merges.
const IN_PIECES: &str = "if it is mapped in pieces of 2M or more";

/// A server that runs as another user, because PostgreSQL refuses root. The inspected backend maps the shared memory
/// that it has filled.
const POSTGRESQL: &str = r#"
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"; export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
    test -d data || { mkdir data; chown 65534 data; $as initdb -N -D data -U test -A trust >log 2>&1; }
    $as postgres -D data -k "$PWD/data" -c listen_addresses= -c shared_buffers=64MB -c fsync=off -c autovacuum=off >>log 2>&1 &
    server=$!
    until $as psql -h "$PWD/data" -U test -c '' postgres >/dev/null 2>&1; do sleep 0.05; kill -0 $server || exit 3; done
    { echo "set client_min_messages = warning; drop table if exists t; create unlogged table t (v text);
            insert into t select repeat('x', 1000) from generate_series(1, 50000); select pg_backend_pid();"; cat; } |
        $as psql -h "$PWD/data" -U test -AtqX postgres
    kill -INT $server; wait $server"#;

/// A server with one table, which fills most of the buffer pool.
const MARIADB: &str = r#"
    rm -rf data; mkdir data
    mariadbd --no-defaults --user=root --datadir="$PWD/data" --socket="$PWD/socket" --skip-networking --skip-grant-tables \
        --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 "$@" >log 2>&1 & server=$!
    ask() { mariadb --no-defaults -S "$PWD/socket" -e "$1"; }
    until ask '' >/dev/null 2>&1; do sleep 0.05; kill -0 $server || exit 3; done
    ask "create database d; use d; create table t (v blob) engine=innodb;
         insert into t select repeat('x', 4000) from seq_1_to_13000" >>log 2>&1
    echo $server; read end; kill -9 $server; wait 2>/dev/null"#;

/// A guest that is stopped and has all its memory. To use hugetlb pages, QEMU needs a hugetlbfs at the path in the
/// switch.
const QEMU: &str = r#"
    start() {
        mkdir -p dev && mount --bind /dev dev && mount -t tmpfs none /dev && mkdir /dev/hugepages || exit 3
        for file in kvm null urandom; do touch /dev/$file; mount --bind dev/$file /dev/$file; done
        mount -t hugetlbfs none /dev/hugepages
        qemu-system-x86_64 -accel kvm -m 64 -display none -nodefaults -S -mem-prealloc "$@" >log 2>&1 </dev/null & guest=$!
        until ls -l /proc/$guest/fd 2>/dev/null | grep -q kvm-vcpu; do sleep 0.05; kill -0 $guest || exit 3; done
        sleep 0.2; echo $guest; read end; kill $guest; wait
    }
    export -f start; exec unshare -m bash -c 'start "$@"' bash "$@""#;

const MIMALLOC: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
    int main(void) { for (int i = 0; i < 60000; i++) memset(malloc(1000), 1, 1000);\n\
    printf(\"%d\\n\", getpid()); fflush(stdout); char end; while (read(0, &end, 1) > 0); return 0; }\n";

/// Whether the pool of 2M pages is empty, which is the state that the tests restore.
fn has_empty_pool() -> bool {
    needs(&[("an empty pool of 2M", Pool::empty().is_some())])
}

#[test]
fn postgresql_takes_pages_of_a_pool_and_large_shared_memory() {
    let Some(_lease_guard) = for_advised() else { return };
    let is_there = Path::new("/usr/lib/postgresql").exists() && has("setpriv");
    let path = format!("{THP}/shmem_enabled");
    let is_never = fs::read_to_string(&path).is_ok_and(|text| text.contains("[never]"));
    let here = [("PostgreSQL", is_there), ("shared memory without large pages (shmem_enabled: never)", is_never)];
    if !needs(&here) || !has_empty_pool() {
        return;
    }
    let bench = Bench::new();
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    Filled { bench, script: POSTGRESQL, holds: &[] }.follow(&[
        &format!("as root: echo always > {path}"),
        &format!("{}; then start it again with huge_pages = try (its default; off takes none)", pooled()),
    ]);
}

#[test]
fn mariadb_takes_pages_of_a_pool() {
    let Some(_lease_guard) = for_advised() else { return };
    if !needs(&[("MariaDB", has("mariadbd") && has("mariadb"))]) || !has_empty_pool() {
        return;
    }
    // Some versions disable THP for themselves, so for them `always` is no remedy.
    let holds = &["if it is the buffer pool"];
    let remedy = format!("{}; then start the server with --large-pages (if it is the buffer pool)", pooled());
    Filled { bench: Bench::new(), script: MARIADB, holds }.follow(&[&remedy]);
}

#[test]
fn mimalloc_takes_pages_of_a_pool() {
    let Some(_lease_guard) = for_advised() else { return };
    let bench = Bench::new();
    fs::write(bench.path("fill.c"), MIMALLOC).unwrap();
    let script = "gcc -O0 fill.c -o fill && LD_PRELOAD=libmimalloc.so.2 exec ./fill";
    let is_there = Command::new("sh").args(["-c", "LD_PRELOAD=libmimalloc.so.2 /bin/true 2>&1"]).output().unwrap();
    if !needs(&[("mimalloc (libmimalloc.so.2)", is_there.stdout.is_empty())]) || !has_empty_pool() {
        return;
    }
    Filled { bench, script, holds: &["if malloc made it", IN_PIECES] }.follow(&[
        &always(),
        &format!("{}; then start it with MIMALLOC_LARGE_OS_PAGES=1 MIMALLOC_ALLOW_LARGE_OS_PAGES=1", pooled()),
    ]);
}

#[test]
fn a_guest_takes_pages_of_a_pool() {
    let Some(_lease_guard) = for_advised() else { return };
    let kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    if !needs(&[("qemu-system-x86_64", has("qemu-system-x86_64")), ("/dev/kvm", kvm)]) || !has_empty_pool() {
        return;
    }
    // QEMU advises the memory of guests, so that memory has small pages only if the size is switched off.
    let path = format!("{THP}/enabled");
    let _never = Set::to(&path, "never");
    Filled { bench: Bench::new(), script: QEMU, holds: &[] }.follow(&[
        &format!("as root: echo madvise > {path}"),
        &always(),
        &format!("{}; then start QEMU with -mem-path /dev/hugepages", pooled()),
    ]);
}
