/* Memory that forked processes share, with changing protection: which store faults, and which one copies. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

/* One store after the other. Otherwise the processor translates the addresses of later stores before the fault of the first one
   has made a large page writable, and each of them faults once more because of the old translation. */
static void store(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE) {
        ((volatile char *)at)[page] = 1;
        asm volatile("lfence");
    }
}

static void load(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        (void)((volatile char *)at)[page];
}

static void protect_and_back(char *at, long bytes) {
    mprotect(at, bytes, PROT_READ);
    mprotect(at, bytes, PROT_READ | PROT_WRITE);
}

static char *map(char *at, long bytes) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int main(void) {
    char *all = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *memory = map(all, 8 * MIB), *zeros = map(all + 32 * MIB, 2 * MIB);
    store(memory, 8 * MIB);
    protect_and_back(memory, 8 * MIB);
    store(memory, 8 * MIB);
    load(zeros, 2 * MIB);
    /* A child that copies half of it, and has memory of its own in addition to the inherited memory. */
    if (fork() == 0) {
        protect_and_back(memory, 8 * MIB);
        store(memory, 4 * MIB);
        protect_and_back(memory, 8 * MIB);
        store(memory, 4 * MIB);
        load(zeros, 2 * MIB);
        char *own = map(all + 8 * MIB, 4 * MIB + 5 * PAGE);
        store(own, 4 * MIB + 5 * PAGE);
        _exit(0);
    }
    wait(NULL);
    /* No other process maps it any more: the stores fault, but copy nothing. */
    protect_and_back(memory, 8 * MIB);
    store(memory, 8 * MIB);
    /* A child that copies every second page, and a grandchild that has pages of both kinds. */
    if (fork() == 0) {
        for (long page = 0; page < 8 * MIB; page += 2 * PAGE)
            store(memory + page, PAGE);
        if (fork() == 0) {
            protect_and_back(memory, 4 * MIB);
            store(memory, 8 * MIB);
            _exit(0);
        }
        wait(NULL);
        protect_and_back(memory, 4 * MIB);
        store(memory, 8 * MIB);
        _exit(0);
    }
    wait(NULL);
    store(memory, 8 * MIB);
    puts("copied");
    return 0;
}
