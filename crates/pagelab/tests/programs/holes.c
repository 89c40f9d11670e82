/* Memory of which parts are unmapped in all possible ways: which page tables are freed too, and what is mapped there afterwards. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static void store(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        ((volatile char *)at)[page] = 1;
}

/* In 2M windows that contain no other memory. */
static char *map(long bytes) {
    char *all = mmap(NULL, bytes + 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mmap(all + 2 * MIB, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int main(void) {
    /* The second half of each 2M, then the first half of some. */
    char *unmapped = map(32 * MIB);
    store(unmapped, 32 * MIB);
    for (long at = MIB; at < 32 * MIB; at += 2 * MIB)
        munmap(unmapped + at, MIB);
    for (long at = 0; at < 16 * MIB; at += 2 * MIB)
        munmap(unmapped + at, MIB);
    /* The same with MADV_DONTNEED, after which the memory is written again. */
    char *dropped = map(32 * MIB);
    store(dropped, 32 * MIB);
    for (long at = 0; at < 16 * MIB; at += MIB)
        madvise(dropped + at, MIB, MADV_DONTNEED);
    madvise(dropped + 16 * MIB, 16 * MIB, MADV_DONTNEED);
    store(dropped, 8 * MIB);
    store(dropped + 24 * MIB, 8 * MIB);
    /* Moved to an address with the same alignment, and to one with another alignment. */
    char *moved = map(8 * MIB), *to = map(16 * MIB);
    store(moved, 8 * MIB);
    moved = mremap(moved, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    moved = mremap(moved, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to + 10 * MIB + sysconf(_SC_PAGESIZE));
    store(moved, 4 * MIB);
    /* A heap that shrinks and grows. */
    char *heap = sbrk(6 * MIB);
    store(heap, 6 * MIB);
    sbrk(-5 * MIB);
    sbrk(4 * MIB);
    store(heap, 5 * MIB);
    puts("dropped");
    return 0;
}
