// Maps pieces of PIECE bytes up to TOTAL bytes, touches all of it and frees it: freed PIECE TOTAL HOW
// unmap: piece by piece; heap: by brk; shrink: one mapping by mremap; drop: one mapping by MADV_DONTNEED, piece by piece
// free: like drop, by MADV_FREE; over: other mappings replace the pieces; exec: another program replaces this one
// keep: frees nothing; again: unmaps all pieces, then maps, touches and unmaps two at a time until these add up to TOTAL
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *touched(char *p, size_t bytes) {
    if (p == MAP_FAILED || p == (void *)-1) exit(2);
    for (size_t i = 0; i < bytes; i += 4096) p[i] = 1;
    return p;
}

static char *map(void *where, size_t bytes, int flags) {
    return mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

int main(int argc, char **argv) {
    if (argc < 4) return 1;
    size_t piece = strtoul(argv[1], 0, 10), total = strtoul(argv[2], 0, 10), count = total / piece;
    const char *how = argv[3];
    if (!strcmp(how, "heap")) {
        touched(sbrk(total), total);
        for (size_t i = 0; i < count; i++) sbrk(-(long)piece);
        _exit(0);
    }
    if (!strcmp(how, "shrink") || !strcmp(how, "drop") || !strcmp(how, "free")) {
        char *p = touched(map(0, total, 0), total);
        for (size_t i = count; i-- > 1;) {
            if (*how == 's') mremap(p, (i + 1) * piece, i * piece, 0);
            else madvise(p + i * piece, piece, *how == 'd' ? MADV_DONTNEED : MADV_FREE);
        }
        _exit(0);
    }
    char **pieces = malloc(count * sizeof *pieces);
    for (size_t i = 0; i < count; i++) pieces[i] = touched(map(0, piece, 0), piece);
    if (!strcmp(how, "exec")) execlp("true", "true", (char *)0);
    for (size_t i = 0; strcmp(how, "keep") && i < count; i++) {
        if (!strcmp(how, "over")) map(pieces[i], piece, MAP_FIXED);
        else munmap(pieces[i], piece);
    }
    for (size_t i = 0; !strcmp(how, "again") && i < count / 2; i++) munmap(touched(map(0, 2 * piece, 0), 2 * piece), 2 * piece);
    _exit(0);
}
