/* Folios of which parts were never stored to, when they are split, and when they are made again. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static void store(char *at, long bytes, long step) {
    for (long page = 0; page < bytes; page += step)
        ((volatile char *)at)[page] = 1;
}

static void load(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        (void)((volatile char *)at)[page];
}

/* Of each 64K the first page holds data. */
static char *sparse(long bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    store(at, bytes, 16 * PAGE);
    return at;
}

int main(void) {
    char *freed = sparse(8 * MIB), *cold = sparse(8 * MIB), *paged_out = sparse(8 * MIB), *loaded = sparse(4 * MIB);
    for (long at = 0; at < 8 * MIB; at += 2 * MIB) {
        madvise(freed + at + MIB, MIB / 2 + 3 * PAGE, MADV_FREE);
        madvise(cold + at, MIB + PAGE, MADV_COLD);
    }
    load(cold, 8 * MIB);
    store(freed, 8 * MIB, PAGE);
    store(cold, 8 * MIB, PAGE);
    madvise(paged_out, 6 * MIB, MADV_PAGEOUT);
    store(paged_out, 8 * MIB, PAGE);
    /* Loads leave zeros as they are. */
    load(loaded, 4 * MIB);
    store(loaded, MIB, PAGE);
    madvise(loaded, MIB, MADV_COLD);
    madvise(loaded + 2 * MIB, MIB, MADV_COLD);
    load(loaded, 4 * MIB);
    store(loaded, 4 * MIB, PAGE);
    puts("split");
    return 0;
}
