// Makes regions of memory with histories of their own: histories SCRIPT [exit]. Each line of the script is an operation, the number
// of a region, an offset and a length in base pages. Prints the process and the address of each region, and keeps the memory until
// its input ends; with `exit` it ends at once.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#define MAX_REGIONS 64

static size_t PAGE, HUGE;
static char *regions[MAX_REGIONS];
static size_t lengths[MAX_REGIONS];

static void must(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

// A range that is aligned to a large page, with unmapped addresses on both sides.
static char *reserved(size_t length) {
    char *all = mmap(NULL, length + 3 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(all != MAP_FAILED, "mmap");
    char *start = (char *)(((uintptr_t)all + HUGE) & ~(HUGE - 1)) + HUGE;
    must(munmap(all, start - all) == 0, "munmap");
    must(munmap(start + length, all + length + 3 * HUGE - start - length) == 0, "munmap");
    return start;
}

static void read_from(char *start, size_t length) {
    unsigned sum = 0;
    for (size_t at = 0; at < length; at += PAGE)
        sum += ((volatile char *)start)[at];
}

// Writes what is not zero, without a read before it.
static void fill(char *start, size_t length) {
    for (size_t at = 0; at < length; at += PAGE)
        ((volatile char *)start)[at] = 1;
}

static void fork_and_write(char *start, size_t length, int in_child) {
    int pipe_ends[2];
    must(pipe(pipe_ends) == 0, "pipe");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        char go;
        close(pipe_ends[1]);
        if (in_child)
            fill(start, length);
        else if (read(pipe_ends[0], &go, 1) > 0)
            _exit(1);
        _exit(0);
    }
    close(pipe_ends[0]);
    if (!in_child)
        fill(start, length);
    close(pipe_ends[1]);
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "waitpid");
}

static void operate(char operation, unsigned region, size_t offset, size_t length) {
    must(region < MAX_REGIONS, "region");
    char *start = regions[region] + offset;
    // Calls on ranges with a hole or a guard may fail with ENOMEM or EINVAL after they did their work on the rest.
    switch (operation) {
    case 'R':
        regions[region] = reserved(length);
        lengths[region] = length;
        must(mprotect(regions[region], length, PROT_READ | PROT_WRITE) == 0, "mprotect");
        break;
    case 'a': madvise(start, length, MADV_HUGEPAGE); break;
    case 'n': madvise(start, length, MADV_NOHUGEPAGE); break;
    case 'r': read_from(start, length); break;
    case 'w': fill(start, length); break;
    case 'd': madvise(start, length, MADV_DONTNEED); break;
    case 'f': madvise(start, length, MADV_FREE); break;
    case 'c': madvise(start, length, MADV_COLD); break;
    case 'p': madvise(start, length, MADV_PAGEOUT); break;
    case 'k': madvise(start, length, MADV_COLLAPSE); break;
    case 'g': madvise(start, length, MADV_GUARD_INSTALL); break;
    case 'u': munmap(start, length); break;
    case 't':
        mprotect(start, length, PROT_READ);
        mprotect(start, length, PROT_READ | PROT_WRITE);
        break;
    case 'o': mprotect(start, length, PROT_READ); break;
    case 'F': fork_and_write(start, length, 0); break;
    case 'C': fork_and_write(start, length, 1); break;
    case 'm': {
        char *to = reserved(lengths[region]);
        must(munmap(to, lengths[region]) == 0, "munmap");
        char *moved = mremap(regions[region], lengths[region], lengths[region], MREMAP_MAYMOVE | MREMAP_FIXED, to);
        must(moved == to, "mremap");
        regions[region] = to;
        break;
    }
    default: must(0, "operation");
    }
}

int main(int count, char **words) {
    must(count >= 2, "usage: histories SCRIPT [exit]");
    PAGE = sysconf(_SC_PAGESIZE);
    FILE *pmd = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "r");
    must(pmd != NULL && fscanf(pmd, "%zu", &HUGE) == 1, "hpage_pmd_size");
    FILE *script = fopen(words[1], "r");
    must(script != NULL, words[1]);
    char operation;
    unsigned region, last = 0;
    size_t offset, length;
    while (fscanf(script, " %c %u %zu %zu", &operation, &region, &offset, &length) == 4) {
        operate(operation, region, offset * PAGE, length * PAGE);
        last = region > last ? region : last;
    }
    printf("%d", getpid());
    for (unsigned at = 0; at <= last; at++)
        printf(" %lu", (unsigned long)regions[at]);
    printf("\n");
    fflush(stdout);
    char end;
    while (count == 2 && read(0, &end, 1) > 0)
        ;
    return 0;
}
