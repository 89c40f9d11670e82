/* Memory that a program locks: a range, all that it maps later, and with an argument all that it has. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

static char *map(long bytes, int protection, int flags) {
    return mmap(NULL, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);
}

static void store(char *at, long bytes) {
    for (long page = 0; page < bytes; page += PAGE)
        ((volatile char *)at)[page] = 1;
}

int main(int count, char **arguments) {
    (void)arguments;
    char *range = map(4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    mlock(range + 5 * PAGE, 2 * MIB);
    char *at_faults = map(3 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    mlock2(at_faults, 3 * MIB, MLOCK_ONFAULT);
    store(at_faults, MIB);
    map(2 * MIB, PROT_READ, MAP_PRIVATE);
    map(2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    map(2 * MIB, PROT_NONE, MAP_PRIVATE);
    mlockall(count > 1 ? MCL_CURRENT | MCL_FUTURE : MCL_FUTURE);
    map(4 * MIB + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    sbrk(2 * MIB);
    if (fork() == 0) {
        map(4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        _exit(0);
    }
    wait(NULL);
    munlockall();
    map(4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    puts("locked");
    return 0;
}
