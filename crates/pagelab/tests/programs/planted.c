/* A process with known memory, until its standard input closes: SHMEM, SMALL and LARGE bytes of shared memory in base pages, of
   anonymous memory in base pages, and of anonymous memory in PMD leaves of 2M. The anonymous base pages are cut into MAPPINGS mappings.
   With COPIES further processes share all of it after a fork. Prints the bytes of large leaves that it got. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const unsigned long LEAF = 2 << 20;

static char *map(unsigned long bytes, int flags) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

static void touch(char *at, unsigned long bytes) {
    for (unsigned long page = 0; page < bytes; page += PAGE)
        at[page] = 1;
}

/* Neighbouring mappings with other protections stay apart. */
static void cut(char *at, unsigned long bytes, unsigned long mappings) {
    unsigned long length = mappings ? bytes / mappings / PAGE * PAGE : 0;
    for (unsigned long one = 0; length && one < mappings; one += 2)
        mprotect(at + one * length, length, PROT_READ);
}

int main(int count, char **words) {
    if (count != 6) {
        fprintf(stderr, "expected SHMEM SMALL LARGE MAPPINGS COPIES\n");
        return 2;
    }
    unsigned long numbers[5];
    for (int one = 0; one < 5; one++)
        numbers[one] = strtoul(words[one + 1], NULL, 10);
    unsigned long shmem = numbers[0], small = numbers[1], large = numbers[2];
    char *shared = NULL;
    if (shmem) {
        shared = map(shmem, MAP_SHARED);
        madvise(shared, shmem, MADV_NOHUGEPAGE);
    }
    if (small) {
        char *at = map(small, MAP_PRIVATE);
        madvise(at, small, MADV_NOHUGEPAGE);
        touch(at, small);
        cut(at, small, numbers[3]);
    }
    if (large) {
        char *at = map(large + LEAF, MAP_PRIVATE);
        at = (char *)(((uintptr_t)at + LEAF - 1) & -(uintptr_t)LEAF);
        madvise(at, large, MADV_HUGEPAGE);
        touch(at, large);
    }
    for (unsigned long copy = 0; copy < numbers[4]; copy++)
        if (fork() == 0)
            break;
    /* Not before: fork copies no entries of shared memory. */
    touch(shared, shmem);
    printf("planted\n");
    fflush(stdout);
    char end;
    return read(0, &end, 1) < 0;
}
