/* Memory that a program aligns for large pages itself, within mappings whose addresses the kernel chooses. Each argument is a way;
   without arguments all of them. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static void store(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        ((volatile char *)at)[page] = 1;
}

static char *map(char *at, long bytes, int protection, int flags) {
    return mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static char *aligned(char *at) {
    return (char *)(((uintptr_t)at + 2 * MIB - 1) & -(uintptr_t)(2 * MIB));
}

/* glibc keeps what is in front of the aligned part, and its length in the page in front of it. */
static void allocated(void) {
    for (int i = 0; i < 4; i++) {
        void *volatile between = malloc(300000 + i * 50000);
        (void)between;
        char *all = aligned_alloc(2 * MIB, 16 * MIB);
        madvise(all, 16 * MIB, MADV_HUGEPAGE);
        store(all, 16 * MIB);
        if (i == 2)
            free(all);
    }
}

/* Larger than needed by the alignment, with and without advice. */
static void kept(void) {
    map(NULL, 12 * PAGE, PROT_READ | PROT_WRITE, 0);
    char *advised = map(NULL, 10 * MIB + PAGE, PROT_READ | PROT_WRITE, 0);
    madvise(aligned(advised), 8 * MIB, MADV_HUGEPAGE);
    store(aligned(advised), 8 * MIB);
    char *plain = map(NULL, 10 * MIB + 3 * PAGE, PROT_READ | PROT_WRITE, 0);
    store(aligned(plain), 8 * MIB);
    munmap(plain, 10 * MIB + 3 * PAGE);
    char *whole = map(NULL, 6 * MIB, PROT_READ | PROT_WRITE, 0);
    store(aligned(whole), 4 * MIB);
}

/* The rest at both ends is unmapped. */
static void trimmed(void) {
    map(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, 0);
    char *all = map(NULL, 10 * MIB, PROT_READ | PROT_WRITE, 0), *part = aligned(all + PAGE);
    munmap(all, part - all);
    munmap(part + 8 * MIB, all + 10 * MIB - (part + 8 * MIB));
    store(part, 8 * MIB);
}

/* An address that the program asks for, next to memory of its own. */
static void hinted(void) {
    char *first = map(NULL, 6 * MIB + PAGE, PROT_READ | PROT_WRITE, 0);
    char *second = map(first - 64 * MIB, 6 * MIB, PROT_READ | PROT_WRITE, 0);
    store(first, 6 * MIB);
    store(second, 6 * MIB);
}

/* Fixed addresses inside a reservation, and in a hole that the program has made in it. */
static void fixed(void) {
    char *all = map(NULL, 32 * MIB + PAGE, PROT_NONE, MAP_NORESERVE), *part = aligned(all);
    store(map(part, 8 * MIB, PROT_READ | PROT_WRITE, MAP_FIXED), 8 * MIB);
    munmap(all + 12 * MIB, 12 * MIB);
    store(map(all + 13 * MIB, 8 * MIB, PROT_READ | PROT_WRITE, MAP_FIXED), 8 * MIB);
}

int main(int count, char **ways) {
    static const struct {
        const char *name;
        void (*way)(void);
    } all[] = {{"allocated", allocated}, {"kept", kept}, {"trimmed", trimmed}, {"hinted", hinted}, {"fixed", fixed}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (count < 2 || !strcmp(ways[1], all[i].name))
            all[i].way();
    puts("aligned");
    return 0;
}
