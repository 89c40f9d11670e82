// Fills 8 large pages' worth of memory, and then splits the pages: refilled HOW
// dropped: half of each page is dropped (MADV_DONTNEED) and written again; halves: both halves, one after the other
// freed: half of each page is freed lazily (MADV_FREE) and written again
// moved: all memory is moved (mremap) to addresses that are not aligned to that page size
// cut: one base page of each is protected for a while
// forked: a child writes all memory
// late: memory is filled while mapped in pieces that are too small, which the kernel then merges
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 2 << 20, COUNT = 8 };

static char *aligned(char *p) {
    return (char *)(((unsigned long)p + LARGE - 1) & -(unsigned long)LARGE);
}

static void fill(char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4096) p[i]++;
}

static char *map(char *where, size_t bytes, int flags) {
    char *p = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (p == MAP_FAILED) exit(2);
    return p;
}

// Ends the program with slightly more memory than before, so that its peak is at this point.
static void end(void) {
    static char last[65536];
    fill(last, sizeof last);
    _exit(0);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "late")) {
        char *p = aligned(mmap(0, (COUNT + 1) * LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (size_t at = 0; at < COUNT * LARGE; at += 65536) fill(map(p + at, 65536, MAP_FIXED), 65536);
        end();
    }
    char *p = aligned(map(0, (COUNT + 1) * LARGE, 0));
    fill(p, COUNT * LARGE);
    for (int i = 0; i < COUNT; i++) {
        char *page = p + i * (size_t)LARGE;
        if (!strcmp(how, "dropped") || !strcmp(how, "halves")) madvise(page, LARGE / 2, MADV_DONTNEED);
        if (!strcmp(how, "halves")) madvise(page + LARGE / 2, LARGE / 2, MADV_DONTNEED);
        if (!strcmp(how, "freed")) madvise(page, LARGE / 2, MADV_FREE);
        if (!strcmp(how, "cut")) mprotect(page, 4096, PROT_READ), mprotect(page, 4096, PROT_READ | PROT_WRITE);
    }
    if (!strcmp(how, "moved")) {
        char *target = aligned(mmap(0, (COUNT + 2) * LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + 4096;
        if (mremap(p, COUNT * LARGE, COUNT * LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) != target) exit(3);
        end();
    }
    if (!strcmp(how, "forked") && fork()) {
        wait(0);
        end();
    }
    fill(p, COUNT * LARGE);
    end();
}
