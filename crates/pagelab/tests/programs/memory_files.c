/* Files in memory: reads of what was never written allocate a page each, reads of what was written map the pages around them. */
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

static void load(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        (void)((volatile char *)at)[page];
}

static int file(long bytes) {
    int file = memfd_create("memory", 0);
    ftruncate(file, bytes);
    return file;
}

int main(void) {
    store(mmap(NULL, MIB + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MIB);
    int empty = file(5 * MIB), full = file(4 * MIB);
    char *read = mmap(NULL, 5 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
    load(read, 5 * MIB);
    for (long at = 0; at < 4 * MIB; at += MIB)
        pwrite(full, read, MIB, at);
    load(mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, full, 0), 4 * MIB);
    char *again = mmap(NULL, 5 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
    load(again, 2 * MIB);
    store(again + 2 * MIB, MIB);
    char *written = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file(2 * MIB), 0);
    store(written, 2 * MIB);
    puts("read");
    return 0;
}
