// Fills 8 large pages' worth of memory, and then splits them: refilled HOW
// dropped: half of each is dropped (MADV_DONTNEED) and written again; halves: both halves, one after the other
// freed: half of each may be freed (MADV_FREE) and is written again
// moved: all of it is moved (mremap) to where no page of that size fits
// cut: a page of each is protected for a while
// forked: a child writes all of it
// late: it is filled while mapped in pieces that are too small, which the kernel joins
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

// Ends the program with a little more memory than it had before, so that its peak is here.
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
