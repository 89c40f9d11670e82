/* Memory that is freed as by allocators of generated code and of heaps, and advice against large pages that a policy answers. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static void store(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        ((volatile char *)at)[page] = 1;
}

static char *map(char *at, long bytes, int protection) {
    int fixed = at ? MAP_FIXED : 0;
    return mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

int main(void) {
    /* Reserved, made accessible by mprotect, and freed in every way. */
    char *code = map(NULL, 64 * MIB, PROT_NONE);
    mprotect(code, 24 * MIB, PROT_READ | PROT_WRITE | PROT_EXEC);
    store(code, 24 * MIB);
    madvise(code, MIB / 2, MADV_DONTNEED);
    store(code, MIB / 2);
    madvise(code + 2 * MIB, 2 * MIB, MADV_FREE);
    madvise(code + 4 * MIB, MIB, MADV_FREE);
    store(code + 4 * MIB, MIB);
    madvise(code + 6 * MIB, 17 * MIB, MADV_DONTNEED);
    store(code + 6 * MIB, MIB);
    mprotect(code + 8 * MIB, 2 * MIB, PROT_NONE);
    map(code + 12 * MIB, 4 * MIB, PROT_NONE);
    store(code + 23 * MIB, MIB);
    map(code + 22 * MIB, 2 * MIB, PROT_NONE);
    munmap(code + 4 * MIB, MIB / 4);
    munmap(code + 32 * MIB, 32 * MIB);
    char *grows = map(NULL, 3 * MIB, PROT_READ | PROT_WRITE);
    store(grows, 3 * MIB);
    grows = mremap(grows, 3 * MIB, MIB, 0);
    grows = mremap(grows, MIB, 8 * MIB, MREMAP_MAYMOVE);
    store(grows, 8 * MIB);
    /* No large pages in one mapping, in a part of one, and in the whole process. */
    char *small = map(NULL, 4 * MIB, PROT_READ | PROT_WRITE), *part = map(NULL, 4 * MIB, PROT_READ | PROT_WRITE);
    madvise(small, 4 * MIB, MADV_NOHUGEPAGE);
    store(small, 4 * MIB);
    madvise(part + MIB, MIB, MADV_NOHUGEPAGE);
    store(part, 4 * MIB);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    store(map(NULL, 4 * MIB, PROT_READ | PROT_WRITE), 4 * MIB);
    puts("advised");
    return 0;
}
