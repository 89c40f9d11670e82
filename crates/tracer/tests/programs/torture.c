// Makes thousands of random memory calls from a seed, and checks memory against a shadow of what every page must contain.
//
//   torture SEED STEPS [closed]
//
// Prints "torture SEED STEPS kept its memory" if no error occurred. With `closed` it also expects inaccessible pages
// (PROT_NONE) to fault; this is the only check that hugetlb policies may violate.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAPS = 20, MAX_PAGES = 2048, POINTS = 3, STRIDE = 509, FILL = 61 };
enum { ABSENT = -1 };

struct page { int protection; int of_file; uint64_t value; };
struct map { char *start; size_t pages; struct page page[MAX_PAGES]; };

static struct map maps[MAPS];
static size_t page_bytes;
static uint64_t state;
static int file;
static int expect_closed;
static sigjmp_buf fault;
static volatile int stop;

static uint64_t next(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
static uint64_t below(uint64_t n) { return next() % n; }

static void die(const char *what, struct map *m, size_t at) {
    printf("WRONG: %s (map %p page %zu of %zu, address %p, errno %d)\n", what, m ? m->start : 0, at,
           m ? m->pages : 0, m ? m->start + at * page_bytes : 0, errno);
    fflush(stdout);
    _exit(9);
}

static void on_fault(int number) { (void)number; siglongjmp(fault, 1); }

static uint64_t *point(struct map *m, size_t at, int which) {
    size_t offsets[POINTS] = {0, page_bytes / 2 - 8, page_bytes - 8};
    return (uint64_t *)(m->start + at * page_bytes + offsets[which]);
}

static int faults(volatile uint64_t *p, int write) {
    if (sigsetjmp(fault, 1)) return 1;
    if (write) *p = *p; else (void)*p;
    return 0;
}

static void check_page(struct map *m, size_t at) {
    struct page *p = &m->page[at];
    if (p->protection == ABSENT) return;
    if (p->protection == PROT_NONE) {
        if (expect_closed && below(64) == 0 && !faults(point(m, at, 0), 0)) die("an inaccessible page can be read", m, at);
        return;
    }
    for (int which = 0; which < POINTS; which++)
        if (*point(m, at, which) != p->value) {
            printf("%#jx instead of %#jx, ", (uintmax_t)*point(m, at, which), (uintmax_t)p->value);
            die("another value", m, at);
        }
    if (p->protection == PROT_READ && below(64) == 0 && !faults(point(m, at, 1), 1))
        die("a read-only page can be written", m, at);
}

static void check(struct map *m) {
    if (m->start) for (size_t at = 0; at < m->pages; at++) check_page(m, at);
}
static void check_all(void) { for (int i = 0; i < MAPS; i++) check(&maps[i]); }

static void write_page(struct map *m, size_t at) {
    if (m->page[at].protection != (PROT_READ | PROT_WRITE)) return;
    m->page[at].value = next() | 1;
    for (int which = 0; which < POINTS; which++) *point(m, at, which) = m->page[at].value;
}

static void part(struct map *m, size_t *from, size_t *pages) {
    *from = below(m->pages);
    *pages = 1 + below(below(4) ? (m->pages - *from) : 8);
    if (*pages > m->pages - *from) *pages = m->pages - *from;
    if (below(4) == 0) { *pages += *from; *from = 0; }
}

static int any_protection(void) {
    int all[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};
    return all[below(5)];
}

static void set(struct map *m, size_t from, size_t pages, int protection, int also_absent) {
    for (size_t at = from; at < from + pages; at++)
        if (also_absent || m->page[at].protection != ABSENT) m->page[at].protection = protection;
}
static void zero(struct map *m, size_t from, size_t pages) {
    for (size_t at = from; at < from + pages; at++) m->page[at].value = m->page[at].of_file = 0;
}
static int all_mapped(struct map *m, size_t from, size_t pages) {
    for (size_t at = from; at < from + pages; at++) if (m->page[at].protection == ABSENT) return 0;
    return 1;
}

static void forget(struct map *m) {
    for (size_t at = 0; at < m->pages;) {
        size_t to = at;
        while (to < m->pages && (m->page[to].protection == ABSENT) == (m->page[at].protection == ABSENT)) to++;
        if (m->page[at].protection != ABSENT && munmap(m->start + at * page_bytes, (to - at) * page_bytes))
            die("munmap", m, at);
        at = to;
    }
    m->start = 0;
}

static void create(struct map *m) {
    if (m->start) { check(m); forget(m); }
    m->pages = below(3) ? 512 + below(MAX_PAGES - 512) : 1 + below(64);
    if (below(4) == 0) m->pages = (m->pages + 511) / 512 * 512;
    int protection = any_protection(), flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (below(3) == 0) flags |= MAP_NORESERVE;
    void *hint = below(4) ? 0 : (void *)(0x200000000000 + below(1 << 20) * page_bytes);
    m->start = mmap(hint, m->pages * page_bytes, protection, flags, -1, 0);
    if (m->start == MAP_FAILED) die("mmap", 0, 0);
    set(m, 0, m->pages, protection, 1);
    zero(m, 0, m->pages);
}

static void replace(struct map *m) {
    size_t from, pages;
    part(m, &from, &pages);
    char *at = m->start + from * page_bytes;
    int protection = any_protection();
    // Another mapping may have taken the place of a hole by now, for example memory of the other threads.
    if (!all_mapped(m, from, pages)) return;
    if (below(4) == 0) {
        if (pages > 8) pages = 8;
        if (mmap(at, pages * page_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) != at) die("file", m, from);
        set(m, from, pages, PROT_READ, 1);
        for (size_t i = 0; i < pages; i++) m->page[from + i] = (struct page){PROT_READ, 1, i + 1};
        return;
    }
    if (below(8) == 0) {
        // A call that is refused changes nothing.
        if (mmap(at, pages * page_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, 999, 0) != MAP_FAILED) die("fd", m, from);
        return;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (below(2) ? MAP_NORESERVE : 0);
    if (mmap(at, pages * page_bytes, protection, flags, -1, 0) != at) die("fixed", m, from);
    set(m, from, pages, protection, 1);
    zero(m, from, pages);
}

static void unmap(struct map *m) {
    size_t from, pages;
    part(m, &from, &pages);
    if (!all_mapped(m, from, pages)) return;
    if (munmap(m->start + from * page_bytes, pages * page_bytes)) die("munmap", m, from);
    set(m, from, pages, ABSENT, 1);
}

static void protect(struct map *m) {
    size_t from, pages;
    part(m, &from, &pages);
    if (!all_mapped(m, from, pages)) return;
    int protection = any_protection();
    if (mprotect(m->start + from * page_bytes, pages * page_bytes, protection)) die("mprotect", m, from);
    set(m, from, pages, protection, 0);
}

static int file_inside(struct map *m, size_t from, size_t pages) {
    for (size_t at = from; at < from + pages; at++)
        if (m->page[at].of_file) return 1;
    return 0;
}

static void drop(struct map *m) {
    size_t from, pages;
    part(m, &from, &pages);
    if (!all_mapped(m, from, pages) || file_inside(m, from, pages)) return;
    if (madvise(m->start + from * page_bytes, pages * page_bytes, MADV_DONTNEED)) die("dontneed", m, from);
    zero(m, from, pages);
}

static void hint(struct map *m) {
    static const int hints[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WILLNEED, MADV_COLD, MADV_SEQUENTIAL,
                                MADV_DONTDUMP, MADV_DODUMP, MADV_MERGEABLE, MADV_PAGEOUT};
    size_t from, pages;
    part(m, &from, &pages);
    if (all_mapped(m, from, pages))
        madvise(m->start + from * page_bytes, pages * page_bytes, hints[below(sizeof hints / sizeof *hints)]);
}

// mremap needs one mapping under the old range. If that is split, the kernel refuses the call and nothing changes.
static void resize(struct map *m) {
    if (!all_mapped(m, 0, m->pages) || file_inside(m, 0, m->pages)) return;
    size_t pages = 1 + below(MAX_PAGES);
    int flags = below(3) ? MREMAP_MAYMOVE : 0;
    char *to = mremap(m->start, m->pages * page_bytes, pages * page_bytes, flags);
    if (to == MAP_FAILED) return;
    for (size_t at = m->pages; at < pages; at++) m->page[at] = (struct page){m->page[0].protection, 0, 0};
    m->start = to;
    m->pages = pages;
}

static int uniform(struct map *m) {
    for (size_t at = 0; at < m->pages; at++)
        if (m->page[at].protection != m->page[0].protection || m->page[at].of_file) return 0;
    return 1;
}

// Moves a whole mapping over the beginning of another one.
static void move(struct map *m, struct map *target) {
    if (m == target || !target->start || !uniform(m) || m->page[0].protection == ABSENT) return;
    if (m->pages > target->pages || !all_mapped(target, 0, m->pages)) return;
    char *to = mremap(m->start, m->pages * page_bytes, m->pages * page_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                      target->start);
    if (to == MAP_FAILED) {
        // The kernel may refuse an old range of several mappings, before or after it has unmapped the target.
        for (size_t at = 0; at < m->pages; at++) munmap(target->start + at * page_bytes, page_bytes);
        set(target, 0, m->pages, ABSENT, 1);
        return;
    }
    memcpy(target->page, m->page, m->pages * sizeof *m->page);
    m->start = 0;
}

static char *heap_start;
static uint64_t heap_words;
static uint64_t heap_seed;
static uint64_t heap_word(uint64_t at) { return (at + 1) * (heap_seed | 1); }

// Only this function uses the heap above what the start of the program needed.
static void heap(void) {
    uint64_t *words = (uint64_t *)heap_start;
    for (uint64_t at = 0; at < heap_words; at += STRIDE)
        if (words[at] != heap_word(at)) die("heap", 0, at);
    uint64_t wanted = below(5) ? below(1 << 20) : heap_words + below(20000);
    if (brk(heap_start + wanted * 8)) die("brk", 0, wanted);
    if ((char *)sbrk(0) != heap_start + wanted * 8) die("sbrk", 0, wanted);
    uint64_t page_words = page_bytes / 8;
    uint64_t fresh = (heap_words + page_words - 1) / page_words * page_words;
    for (uint64_t at = fresh; at < wanted; at += FILL) if (words[at]) die("fresh heap", 0, at);
    heap_words = wanted;
    heap_seed = next();
    for (uint64_t at = 0; at < heap_words; at += STRIDE) words[at] = heap_word(at);
    // The words between are set to all ones, so that fresh memory can be distinguished from old memory.
    for (uint64_t at = 0; at < heap_words; at += FILL) if (at % STRIDE) words[at] = ~0ull;
}

static void copy(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) die("fork", 0, 0);
    uint64_t here = state;
    state += child ? 1 : 77;
    for (int i = 0; i < 40; i++) {
        struct map *m = &maps[below(MAPS)];
        if (m->start) write_page(m, below(m->pages));
        m = &maps[below(MAPS)];
        if (!child && m->start) protect(m);
    }
    check_all();
    if (!child) _exit(0);
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid", 0, 0);
    if (status) die("the child failed", 0, status);
    state = here + 3;
}

// Maps and unmaps small mappings meanwhile, whose content must never change.
static void *neighbour(void *arg) {
    uint64_t mine = (uintptr_t)arg * 0x9e3779b97f4a7c15u, round = 0;
    char *held[64] = {0};
    size_t bytes[64];
    while (!stop) {
        int at = round++ % 64;
        if (held[at]) {
            for (size_t i = 0; i < bytes[at]; i += page_bytes)
                if (*(uint64_t *)(held[at] + i) != mine + i) die("a neighbour's memory", 0, i);
            munmap(held[at], bytes[at]);
        }
        bytes[at] = (1 + round % 16) * page_bytes;
        held[at] = mmap(0, bytes[at], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (held[at] == MAP_FAILED) die("a neighbour's mmap", 0, round);
        for (size_t i = 0; i < bytes[at]; i += page_bytes) *(uint64_t *)(held[at] + i) = mine + i;
        if (round % 256 == 0) usleep(1000);
    }
    return 0;
}

// Counts in one page of a large mapping while the main thread makes the other pages inaccessible and accessible.
static volatile uint64_t *counter;
static volatile uint64_t counted;
static void *count(void *arg) {
    (void)arg;
    while (!stop) {
        if (*counter != counted) die("a write was lost", 0, counted);
        *counter = ++counted;
        if (counted % 4096 == 0) usleep(200);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t seed = strtoull(argv[1], 0, 0), steps = strtoull(argv[2], 0, 0);
    expect_closed = argc > 3;
    state = seed * 0x9e3779b97f4a7c15u + 1;
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    file = memfd_create("torture", 0);
    if (file < 0 || ftruncate(file, 8 * page_bytes)) die("memfd", 0, 0);
    for (uint64_t i = 0; i < 8; i++)
        for (size_t at = 0; at < page_bytes; at += 8) {
            uint64_t value = i + 1;
            if (pwrite(file, &value, 8, i * page_bytes + at) != 8) die("pwrite", 0, 0);
        }
    char *shared = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    counter = (uint64_t *)(shared + (4 << 20));
    pthread_t threads[3];
    pthread_create(&threads[0], 0, neighbour, (void *)1);
    pthread_create(&threads[1], 0, neighbour, (void *)2);
    pthread_create(&threads[2], 0, count, 0);
    heap_start = sbrk(0); // from here on nothing calls malloc
    for (uint64_t step = 0; step < steps; step++) {
        struct map *m = &maps[below(MAPS)];
        unsigned op = below(40);
        if (!m->start || op == 0) create(m);
        else if (op < 4) replace(m);
        else if (op < 7) unmap(m);
        else if (op < 13) protect(m);
        else if (op < 16) drop(m);
        else if (op < 18) hint(m);
        else if (op < 21) resize(m);
        else if (op < 22) move(m, &maps[below(MAPS)]);
        else if (op < 24) heap();
        else if (op == 24 && step % 8 == 0) copy();
        else if (op == 25) mprotect(shared + (4 << 20) + page_bytes * (1 + below(100)), page_bytes, below(3) ? PROT_NONE : 3);
        else if (op == 26) mmap(shared + (4 << 20) + page_bytes * (101 + below(300)), page_bytes, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        else for (int i = 0; i < 64; i++) write_page(m, below(m->pages));
        if (below(4) == 0) check(m);
        if (step % 128 == 0) check_all();
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    check_all();
    printf("torture %s %s kept its memory\n", argv[1], argv[2]);
    return 0;
}
