/* Memory that a child of a fork does not get, or gets empty. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const long MIB = 1 << 20;

/* Touches the pages one at a time, in an order that no prefetcher follows. The kernel does not flush a leaf of 2M that it makes writable again. In a
   virtual machine the TLB may have it in pieces, and each piece that was fetched before faults once more. */
static void store(char *at, long bytes) {
    long pages = bytes / PAGE;
    for (long i = 0, page = 0; i < pages; i++, page = (page + 97) % pages) {
        ((volatile char *)at)[page * PAGE] = 1;
        asm volatile("lfence");
    }
}

static char *stored(long bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    store(at, bytes);
    return at;
}

static void child(char *kept, char *wiped, char *again) {
    store(kept, MIB);
    store(wiped, 6 * MIB);
    store(again, 2 * MIB);
    /* The addresses of what it did not get are free. */
    stored(3 * MIB);
    if (fork() == 0) {
        store(wiped, 6 * MIB);
        _exit(0);
    }
    wait(NULL);
    _exit(0);
}

int main(void) {
    char *left = stored(6 * MIB), *wiped = stored(6 * MIB), *again = stored(4 * MIB), *whole = stored(4 * MIB);
    madvise(left + MIB, 3 * MIB, MADV_DONTFORK);
    madvise(wiped + MIB, 3 * MIB, MADV_WIPEONFORK);
    madvise(again, 4 * MIB, MADV_DONTFORK);
    madvise(again, 2 * MIB, MADV_DOFORK);
    madvise(whole, 4 * MIB, MADV_DONTFORK);
    if (fork() == 0)
        child(left, wiped, again);
    wait(NULL);
    store(left, 6 * MIB);
    store(wiped, 6 * MIB);
    store(again, 4 * MIB);
    store(whole, 4 * MIB);
    puts("forked");
    return 0;
}
