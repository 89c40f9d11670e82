/* Large pages that a program splits by its advice, and asks for again (MADV_COLLAPSE). */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static void store(char *at, long bytes, long step) {
    for (long page = 0; page < bytes; page += step)
        ((volatile char *)at)[page] = 1;
}

int main(void) {
    char *at = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    store(at, 6 * MIB, PAGE);
    store(at + 6 * MIB, 6 * MIB, 32 * PAGE);
    for (long huge = 0; huge < 12 * MIB; huge += 2 * MIB)
        madvise(at + huge + MIB, MIB, MADV_COLD);
    /* Whole, unused and cut large pages. */
    madvise(at, 3 * MIB, MADV_COLLAPSE);
    madvise(at + 4 * MIB, 6 * MIB, MADV_COLLAPSE);
    madvise(at + 14 * MIB, 2 * MIB, MADV_COLLAPSE);
    /* Zeros of a collapsed page are pages of the zero page again after another split. */
    madvise(at + 8 * MIB, MIB, MADV_COLD);
    store(at, 16 * MIB, PAGE);
    puts("collapsed");
    return 0;
}
