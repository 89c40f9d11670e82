// Works against large pages, as redis and MariaDB do: prints what the kernel says to that, then uses memory.
//   against disable | advise | populate | huge
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { BYTES = 16 << 20 };

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int result = 0, asked = 0;
    if (!strcmp(how, "disable")) {
        result = prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        asked = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
        if (prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0) != -1) asked = -1;
        execl("/proc/self/exe", argv[0], asked == 1 ? "again" : "wrong", (char *)0);
    }
    if (!strcmp(how, "again")) asked = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (strcmp(how, "populate") ? 0 : MAP_POPULATE);
    char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (!strcmp(how, "advise")) result = madvise(p, BYTES, MADV_NOHUGEPAGE);
    if (!strcmp(how, "huge")) result = madvise(p, BYTES, MADV_HUGEPAGE);
    if (strcmp(how, "populate")) memset(p, 1, BYTES);
    unsigned char present[BYTES / 4096];
    mincore(p, BYTES, present);
    int resident = 1;
    for (int i = 0; i < BYTES / sysconf(_SC_PAGESIZE); i++) resident &= present[i];
    printf("%s: %d %d, resident %d\n", how, result, asked, resident);
    return 0;
}
