// Disables large pages, as redis and MariaDB do: prints the kernel's results, then uses memory.
//   thp_settings disable | except | enable | advise | vector | populate | huge | zeroed | grown | piecewise
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 16 << 20, MIB = 1 << 20 };
static char zeroed[BYTES];

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int result = 0, asked = 0;
    if (!strcmp(how, "disable")) {
        result = prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        asked = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
        if (prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0) != -1) asked = -1;
        execl("/proc/self/exe", argv[0], asked == 1 ? "again" : "wrong", (char *)0);
    }
    if (!strcmp(how, "except")) result = prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0);
    if (!strcmp(how, "enable")) result = prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    if (!strcmp(how, "again")) asked = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (strcmp(how, "populate") ? 0 : MAP_POPULATE);
    char *p;
    if (!strcmp(how, "zeroed")) {
        p = (char *)(((uintptr_t)zeroed + 65535) / 65536 * 65536);
    } else if (!strcmp(how, "grown")) {
        p = mmap(0, MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
        p = mremap(p, MIB, BYTES, MREMAP_MAYMOVE);
    } else if (!strcmp(how, "piecewise")) {
        p = mmap(0, BYTES, PROT_NONE, flags, -1, 0);
        for (char *at = p; at < p + BYTES; at += MIB)
            mmap(at, MIB, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
    } else {
        p = mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    if (!strcmp(how, "advise")) result = madvise(p, BYTES, MADV_NOHUGEPAGE);
    if (!strcmp(how, "huge") || !strcmp(how, "except") || !strcmp(how, "enable")) result = madvise(p, BYTES, MADV_HUGEPAGE);
    if (!strcmp(how, "vector")) {
        int self = syscall(SYS_pidfd_open, getpid(), 0);
        struct iovec all = {p, BYTES};
        syscall(SYS_process_madvise, self, &all, 1, MADV_NOHUGEPAGE, 0); // an error before Linux 6.13
        close(self);
    }
    size_t used = p > zeroed && p < zeroed + BYTES ? BYTES - 65536 : BYTES;
    if (strcmp(how, "populate")) memset(p, 1, used);
    unsigned char present[BYTES / 4096];
    mincore(p, used, present);
    int resident = 1;
    for (int i = 0; i < (int)(used / sysconf(_SC_PAGESIZE)); i++) resident &= present[i];
    printf("%s: %d %d, resident %d\n", how, result, asked, resident);
    return 0;
}
