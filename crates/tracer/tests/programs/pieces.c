// Maps pieces of memory that the kernel merges, and touches them once all are mapped.
//   pieces touch | advise | grow [COUNT KIB]...
// With `grow` the first piece is grown to the size of the second instead.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_PIECES = 1000 };
static char *pieces[MAX_PIECES];
static size_t sizes[MAX_PIECES];

int main(int argc, char **argv) {
    int count = 0, grows = argc > 1 && !strcmp(argv[1], "grow");
    for (int at = 2; at + 1 < argc; at += 2)
        for (int i = atoi(argv[at]); i > 0 && count < MAX_PIECES; i--) {
            size_t bytes = strtoul(argv[at + 1], 0, 10) << 10;
            char *piece = grows && count ? mremap(pieces[0], sizes[0], bytes, MREMAP_MAYMOVE)
                                         : mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (piece == MAP_FAILED) return 1;
            if (!strcmp(argv[1], "advise")) madvise(piece, bytes, MADV_HUGEPAGE);
            if (grows) count = 0;
            pieces[count] = piece;
            sizes[count++] = bytes;
        }
    long sum = 0;
    for (int i = 0; i < count; i++) {
        memset(pieces[i], 1, sizes[i]);
        sum += pieces[i][sizes[i] - 1];
    }
    printf("touched %ld pieces\n", sum);
    return 0;
}
