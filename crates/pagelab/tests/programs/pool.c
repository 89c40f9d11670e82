// Ways of mapping memory that a hugetlb policy converts. Each maps and touches memory, and prints nothing. The first
// argument selects one:
//
//   reserved   a reservation without access, made accessible by mprotect in steps
//   pieces     a reservation over which pieces are mapped
//   arena      malloc in a thread: glibc reserves an arena, and makes it accessible as it grows
//   grown      a mapping that mremap grows, from less than a hugetlb page to many
//   inside     the same within hugetlb pages, with memory after it
//   read       pages that are read before they are written
//   closed     access to a page inside the memory is removed, and the memory around it is written again
//   sealed     memory is made read-only and writable again
//   dropped    memory is dropped in part and completely, and used again
//   parts      parts are unmapped in an order such that whole pages become free last
//   forked     a child writes a part of its parent's memory, and then the parent does
//   heap       a heap that grows, shrinks and grows
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define K 1024ul
#define M (K * K)
#define PAGE 4096ul

static char *mapped(size_t bytes, int protection) {
    char *memory = mmap(0, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    return memory;
}

static void write_all(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        memory[at] = 1;
}

// Stores to each hugetlb page. If such a page is not writable yet, a processor that executes speculatively finds parts of it
// read-only, and then takes a fault for each of them: 70 and more for one page. No model predicts these.
static void write_each(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 2 * M) {
        memory[at] = 1;
        getppid();
    }
    write_all(memory, bytes);
}

static void read_each(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 2 * M)
        (void)memory[at];
}

static void must(int failed) {
    if (failed)
        _exit(2);
}

static void reserved(void) {
    char *memory = mapped(64 * M, PROT_NONE);
    for (size_t at = 0; at < 16 * M; at += 256 * K) {
        must(mprotect(memory + at, 256 * K, PROT_READ | PROT_WRITE));
        write_all(memory + at, 256 * K);
    }
}

static void pieces(void) {
    char *memory = mapped(32 * M, PROT_NONE);
    for (size_t at = 0; at < 12 * M; at += 768 * K) {
        must(mmap(memory + at, 768 * K, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
             memory + at);
        write_all(memory + at, 768 * K);
    }
}

static void *allocate(void *unused) {
    for (int block = 0; block < 200; block++) {
        char *memory = malloc(100 * K);
        memset(memory, 1, 100 * K);
    }
    return unused;
}

static void arena(void) {
    pthread_t thread;
    must(pthread_create(&thread, 0, allocate, 0));
    must(pthread_join(thread, 0));
}

static void grow(size_t from, size_t to, size_t step) {
    char *memory = mapped(from, PROT_READ | PROT_WRITE);
    write_all(memory, from);
    for (size_t bytes = from; bytes < to; bytes += step) {
        memory = mremap(memory, bytes, bytes + step, MREMAP_MAYMOVE);
        must(memory == MAP_FAILED);
        write_all(memory + bytes, step);
    }
}

static void inside(void) {
    char *memory = mapped(3 * M, PROT_READ | PROT_WRITE);
    write_all(memory, 3 * M);
    memory = mremap(memory, 3 * M, 3 * M + 512 * K, MREMAP_MAYMOVE);
    must(memory == MAP_FAILED);
    write_all(memory, 3 * M + 512 * K);
    memory = mremap(memory, 3 * M + 512 * K, 2 * M + 512 * K, MREMAP_MAYMOVE);
    must(memory == MAP_FAILED);
    memory = mremap(memory, 2 * M + 512 * K, 9 * M, MREMAP_MAYMOVE);
    must(memory == MAP_FAILED);
    write_all(memory, 9 * M);
}

static void read_first(void) {
    char *memory = mapped(16 * M, PROT_READ | PROT_WRITE);
    read_each(memory, 16 * M);
    write_each(memory, 12 * M);
}

static void closed(void) {
    char *memory = mapped(8 * M, PROT_READ | PROT_WRITE);
    write_all(memory, 5 * M);
    must(mprotect(memory + 4 * M + 512 * K, PAGE, PROT_NONE));
    must(mprotect(memory + 7 * M, PAGE, PROT_NONE));
    write_all(memory, 4 * M + 512 * K);
    write_all(memory + 4 * M + 512 * K + PAGE, 2 * M);
}

static void sealed(void) {
    char *memory = mapped(16 * M, PROT_READ | PROT_WRITE);
    write_all(memory, 16 * M);
    must(mprotect(memory, 16 * M, PROT_READ));
    read_each(memory, 16 * M);
    must(mprotect(memory, 12 * M, PROT_READ | PROT_WRITE));
    write_each(memory, 12 * M);
}

static void dropped(void) {
    char *memory = mapped(16 * M, PROT_READ | PROT_WRITE);
    write_all(memory, 16 * M);
    must(madvise(memory + 3 * M, 8 * M, MADV_DONTNEED));
    write_all(memory, 16 * M);
    must(madvise(memory, 256 * K, MADV_FREE));
    must(madvise(memory, 256 * K, MADV_DONTNEED));
    write_all(memory, 16 * M);
}

static void parts(void) {
    char *memory = mapped(11 * M, PROT_READ | PROT_WRITE);
    write_all(memory, 11 * M);
    must(munmap(memory + M, 2 * M));
    must(munmap(memory + 3 * M, 2 * M));
    must(munmap(memory + 10 * M, M));
    write_all(memory + 5 * M, 5 * M);
    char *again = mapped(4 * M, PROT_READ | PROT_WRITE);
    write_all(again, 4 * M);
    must(munmap(memory, M));
    again = mapped(6 * M, PROT_READ | PROT_WRITE);
    write_all(again, 6 * M);
}

static void forked(void) {
    char *memory = mapped(16 * M, PROT_READ | PROT_WRITE);
    write_all(memory, 12 * M);
    pid_t child = fork();
    must(child < 0);
    if (child == 0) {
        read_each(memory, 4 * M);
        write_each(memory + 4 * M, 10 * M);
        _exit(0);
    }
    must(waitpid(child, 0, 0) != child);
    write_each(memory, 16 * M);
}

static void heap(void) {
    char *memory = sbrk(0);
    must(sbrk(5 * M) == (void *)-1);
    write_all(memory, 5 * M);
    must(sbrk(-(4 * M + 512 * K)) == (void *)-1);
    must(sbrk(8 * M) == (void *)-1);
    write_all(memory, 8 * M);
}

int main(int count, char **arguments) {
    if (count < 2)
        return 3;
    const char *way = arguments[1];
    if (!strcmp(way, "reserved"))
        reserved();
    else if (!strcmp(way, "pieces"))
        pieces();
    else if (!strcmp(way, "arena"))
        arena();
    else if (!strcmp(way, "grown"))
        grow(512 * K, 16 * M, 512 * K);
    else if (!strcmp(way, "inside"))
        inside();
    else if (!strcmp(way, "read"))
        read_first();
    else if (!strcmp(way, "closed"))
        closed();
    else if (!strcmp(way, "sealed"))
        sealed();
    else if (!strcmp(way, "dropped"))
        dropped();
    else if (!strcmp(way, "parts"))
        parts();
    else if (!strcmp(way, "forked"))
        forked();
    else if (!strcmp(way, "heap"))
        heap();
    else
        return 3;
    return 0;
}
