/* Memory that processes share: what one has touched, the other maps sixteen pages at a load, and one at a store. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static void store(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        ((volatile char *)at)[page] = 1;
}

static void load(char *at, long bytes, long step) {
    for (long page = 0; page < bytes; page += step)
        (void)((volatile char *)at)[page];
}

int main(void) {
    store(mmap(NULL, MIB + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MIB);
    char *at = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    store(at + MIB, 7 * MIB + 5 * PAGE);
    if (fork() == 0) {
        load(at, 4 * MIB, PAGE);
        store(at, 4 * MIB);
        store(at + 4 * MIB, 2 * MIB);
        load(at + 6 * MIB, 4 * MIB, 3 * PAGE);
        _exit(0);
    }
    wait(NULL);
    load(at, 16 * MIB, PAGE);
    puts("shared");
    return 0;
}
