// Uses memory as real programs do: realloc, malloc arenas, partial unmapping, threads, fork, brk, a large bss. Prints a
// checksum that depends only on what the program does.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
static char zeroed[6 * MIB];

static uint64_t sum(const unsigned char *p, size_t n) {
    uint64_t s = 0;
    for (size_t i = 0; i < n; i += 64) s = s * 31 + p[i];
    return s;
}

static void *thread(void *arg) {
    uint64_t s = 0;
    for (int round = 0; round < 100; round++) {
        size_t n = 100000 + round * 777;
        char *p = malloc(n);
        memset(p, round, n);
        p = realloc(p, n * 2);
        s += sum((void *)p, n);
        free(p);
    }
    return (void *)(s + (uintptr_t)arg);
}

static void require(int holds, const char *what) {
    if (!holds) { printf("WRONG: %s\n", what); exit(9); }
}
static int all(const unsigned char *p, size_t n, int value) {
    for (size_t i = 0; i < n; i++) if (p[i] != value) return 0;
    return 1;
}

int main(void) {
    uint64_t s = 0;
    require(all((void *)zeroed, sizeof zeroed, 0), "bss is zero");
    memset(zeroed, 3, sizeof zeroed);
    size_t n = MIB;
    unsigned char *p = malloc(n);
    memset(p, 1, n);
    for (; n < 64 * MIB; n *= 2) {
        p = realloc(p, n * 2);
        memset(p + n, n >> 20, n);
        s += sum(p, n);
    }
    free(p);
    unsigned char *m = mmap(0, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 7, 32 * MIB);
    munmap(m + 5 * MIB + 65536, 3 * MIB);
    munmap(m, 65536);
    s += sum(m + 65536, 5 * MIB);
    unsigned char *again = mmap(m + 5 * MIB + 65536, MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    require(again != MAP_FAILED && all(again, MIB, 0), "memory mapped again is zero");
    madvise(m + 20 * MIB + 65536, 5 * MIB, MADV_DONTNEED);
    require(all(m + 20 * MIB + 65536, 5 * MIB, 0), "dropped memory is zero");
    require(m[20 * MIB + 65535] == 7 && m[25 * MIB + 65536] == 7, "no more than that was dropped");
    unsigned char *grown = mremap(m + 28 * MIB, 4 * MIB, 20 * MIB, MREMAP_MAYMOVE);
    require(grown != MAP_FAILED && all(grown, 4 * MIB, 7) && all(grown + 4 * MIB, 16 * MIB, 0), "mremap");
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(threads + i, 0, thread, (void *)i);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        s += (uintptr_t)result;
    }
    if (!fork()) {
        memset(grown, 5, MIB);
        _exit(sum(grown, MIB) & 127);
    }
    int status;
    wait(&status);
    s += WEXITSTATUS(status) + sum(grown, 4 * MIB);
    char *heap = sbrk(10 * MIB);
    memset(heap, 3, 10 * MIB);
    sbrk(-9 * MIB);
    sbrk(9 * MIB);
    require(all((void *)(heap + MIB), 9 * MIB, 0), "the heap that grows again is zero");
    void *huge = mmap(0, SIZE_MAX, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(huge == MAP_FAILED && mprotect(m, SIZE_MAX / 2, 3) == -1, "nonsense is refused");
    printf("mix %jx\n", (uintmax_t)(s + sum((void *)zeroed, sizeof zeroed)));
    return 0;
}
