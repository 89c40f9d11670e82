// Memory whose pages are small for one cause: provoke CAUSE [FILE]. If the cause needs one, FILE is a file to map, or the file
// `cgroup.procs` of a control group. Prints the address of the memory, and keeps it until its input ends.
//
// The environment variable MEND has the codes of changes of source (policy::remedy::SourceChange), separated by spaces. The
// program then does what these changes ask for, and otherwise what provokes the cause.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// The size of a base page, that of a PMD leaf, and eight times the latter.
static size_t PAGE, HUGE, SIZE;
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef PR_THP_DISABLE_EXCEPT_ADVISED
#define PR_THP_DISABLE_EXCEPT_ADVISED 2
#endif

static void must(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(77);
    }
}

// Whether the program has this change of its source.
static int mended(const char *change) {
    const char *mend = getenv("MEND");
    return mend != NULL && strstr(mend, change) != NULL;
}

// Memory at a multiple of `alignment`, with inaccessible addresses on both sides.
static char *reserved(size_t size, size_t alignment) {
    char *all = mmap(NULL, size + 3 * alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(all != MAP_FAILED, "mmap");
    char *start = (char *)(((uintptr_t)all + alignment) & ~(alignment - 1)) + alignment;
    must(munmap(all, start - all) == 0, "munmap");
    must(munmap(start + size, all + size + 3 * alignment - start - size) == 0, "munmap");
    return start;
}

static char *memory(void) {
    char *start = reserved(SIZE, HUGE);
    must(mprotect(start, SIZE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    return start;
}

static size_t larger(size_t one, size_t other) { return one > other ? one : other; }

static void advise(char *start, size_t size, int advice) { must(madvise(start, size, advice) == 0, "madvise"); }

static void touch(char *start, size_t size) {
    for (size_t at = 0; at < size; at += PAGE)
        start[at] = 1 + at / PAGE % 100;
}

static char *huge(void) {
    char *start = memory();
    advise(start, SIZE, MADV_HUGEPAGE);
    touch(start, SIZE);
    return start;
}

// Drops the first page of each slot, or the first slot.
static void drop(char *start) {
    size_t whole = mended("whole_slots") || mended("drop_slots") ? HUGE : 0;
    for (size_t at = 0; at < (whole > 0 ? HUGE : SIZE); at += HUGE)
        advise(start + at, larger(PAGE, whole), MADV_DONTNEED);
}

static char *served(void) {
    char *start = memory();
    advise(start, SIZE, MADV_HUGEPAGE);
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    must(faults >= 0, "userfaultfd");
    struct uffdio_api api = {.api = UFFD_API};
    must(ioctl(faults, UFFDIO_API, &api) == 0, "UFFDIO_API");
    struct uffdio_register region = {.range = {(uintptr_t)start, SIZE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    must(ioctl(faults, UFFDIO_REGISTER, &region) == 0, "UFFDIO_REGISTER");
    static char page[64 << 10] = "page";
    for (size_t at = 0; at < SIZE; at += PAGE) {
        struct uffdio_copy copy = {.dst = (uintptr_t)start + at, .src = (uintptr_t)page, .len = PAGE};
        must(ioctl(faults, UFFDIO_COPY, &copy) == 0, "UFFDIO_COPY");
    }
    if (mended("unregister_and_collapse")) {
        must(ioctl(faults, UFFDIO_UNREGISTER, &region.range) == 0, "UFFDIO_UNREGISTER");
        advise(start, SIZE, MADV_COLLAPSE);
    }
    return start;
}

static char *pinned(void) {
    char *start = memory();
    if (mended("pin_late") || mended("advise"))
        advise(start, SIZE, MADV_HUGEPAGE);
    touch(start, SIZE);
    advise(start, SIZE, MADV_HUGEPAGE);
    uint32_t parameters[30] = {0};
    int ring = syscall(SYS_io_uring_setup, 4, parameters);
    must(ring >= 0, "io_uring_setup");
    struct iovec buffer = {start, SIZE};
    must(syscall(SYS_io_uring_register, ring, 0, &buffer, 1) == 0, "io_uring_register");
    return start;
}

// Each slot is touched while the group's limit leaves no room for a large page, and filled when there is room for base pages: for
// each slot a part of the memory that fills the group is freed.
static void join(const char *group) {
    FILE *procs = fopen(group, "w");
    must(procs != NULL && fprintf(procs, "%d", getpid()) > 0 && fclose(procs) == 0, group);
}

static char *charged(const char *group) {
    join(group);
    char *ballast = memory();
    advise(ballast, SIZE, MADV_NOHUGEPAGE);
    touch(ballast, SIZE);
    char *start = memory();
    advise(start, SIZE, MADV_HUGEPAGE);
    for (size_t at = 0; at < SIZE; at += HUGE) {
        start[at] = 1;
        advise(ballast + at, HUGE, MADV_DONTNEED);
        touch(start + at, HUGE);
    }
    return start;
}

static unsigned long fallbacks(void) {
    char path[128];
    unsigned long times = 0;
    sprintf(path, "/sys/kernel/mm/transparent_hugepage/hugepages-%zukB/stats/anon_fault_fallback", HUGE >> 10);
    FILE *counter = fopen(path, "r");
    must(counter != NULL && fscanf(counter, "%lu", &times) == 1 && fclose(counter) == 0, path);
    return times;
}

// Takes large pages, at most 4 GiB, until a fault finds none.
static char *in_pieces(void) {
    for (unsigned taken = 0; taken < (4ul << 30) / HUGE; taken++) {
        char *slot = reserved(HUGE, HUGE);
        must(mprotect(slot, HUGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
        advise(slot, HUGE, MADV_HUGEPAGE);
        unsigned long before = fallbacks();
        slot[0] = 1;
        if (fallbacks() > before)
            break;
    }
    return huge();
}

// Allocates in small pieces, three times the usual size: less than an arena of a thread can hold. The address is that of a piece in
// the middle.
static void *allocate(void *middle) {
    char *buffer = mended("advise") ? aligned_alloc(HUGE, 3 * SIZE) : NULL;
    if (buffer != NULL)
        advise(buffer, 3 * SIZE, MADV_HUGEPAGE);
    for (size_t at = 0; at + 16000 < 3 * SIZE; at += 16000) {
        char *piece = buffer != NULL ? buffer + at : malloc(16000);
        must(piece != NULL, "malloc");
        memset(piece, 1, 16000);
        if (at <= SIZE / 2)
            *(char **)middle = piece;
    }
    return NULL;
}

// Maps a file at a multiple of the large page size plus `beyond`.
static char *mapped(const char *path, int protection, int sharing, size_t beyond) {
    int file = open(path, sharing == MAP_SHARED ? O_RDWR : O_RDONLY);
    must(file >= 0, path);
    char *start = reserved(SIZE + HUGE, HUGE) + beyond;
    must(mmap(start, SIZE, protection, sharing | MAP_FIXED, file, 0) == start, "mmap");
    return start;
}

static char *provoked(const char *cause, const char *file) {
    char *start = NULL;
    if (!strcmp(cause, "not_advised")) {
        start = memory();
        if (mended("advise"))
            advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strcmp(cause, "advised_against")) {
        start = memory();
        if (!mended("no_advice_against"))
            advise(start, SIZE, MADV_NOHUGEPAGE);
        else if (mended("advise"))
            advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strcmp(cause, "advised_late")) {
        start = memory();
        if (mended("advise"))
            advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
        advise(start, SIZE, MADV_HUGEPAGE);
    } else if (!strcmp(cause, "huge")) {
        start = huge();
    } else if (!strcmp(cause, "guard")) {
        start = memory();
        advise(start, SIZE, MADV_HUGEPAGE);
        size_t guard = mended("cut_between_slots") ? HUGE : PAGE;
        must(mprotect(start + 3 * HUGE - guard, guard, PROT_NONE) == 0, "mprotect");
        touch(start, 3 * HUGE - guard);
        touch(start + 3 * HUGE, SIZE - 3 * HUGE);
    } else if (!strcmp(cause, "light_guard")) {
        start = memory();
        advise(start, SIZE, MADV_HUGEPAGE);
        size_t guard = mended("cut_between_slots") ? HUGE : PAGE;
        advise(start + 3 * HUGE - guard, guard, MADV_GUARD_INSTALL);
        touch(start, 3 * HUGE - guard);
        touch(start + 3 * HUGE, SIZE - 3 * HUGE);
    } else if (!strcmp(cause, "protection")) {
        start = memory();
        advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, 2 * HUGE);
        must(mprotect(start, mended("cut_between_slots") ? HUGE : 3 * PAGE, PROT_READ) == 0, "mprotect");
    } else if (!strcmp(cause, "flags")) {
        start = memory();
        advise(start, SIZE, MADV_HUGEPAGE);
        if (mended("cut_between_slots"))
            advise(start + HUGE, HUGE, MADV_DONTDUMP);
        else
            advise(start + HUGE + PAGE, PAGE, MADV_DONTDUMP);
        touch(start, SIZE);
    } else if (!strcmp(cause, "name")) {
        start = memory();
        advise(start, SIZE, MADV_HUGEPAGE);
        size_t part = mended("cut_between_slots") ? SIZE : PAGE;
        char *named = mended("cut_between_slots") ? start : start + HUGE + PAGE;
        must(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, named, part, "part") == 0, "PR_SET_VMA_ANON_NAME");
        touch(start, SIZE);
    } else if (!strcmp(cause, "arena")) {
        // As in glibc: a reservation that becomes writable step by step.
        start = reserved(64ul << 20, 64ul << 20);
        advise(start, 64ul << 20, MADV_HUGEPAGE);
        size_t step = mended("grow_by_slots") ? larger(HUGE, 128 << 10) : 128 << 10;
        for (size_t at = 0; at < SIZE; at += step) {
            must(mprotect(start + at, step, PROT_READ | PROT_WRITE) == 0, "mprotect");
            touch(start + at, step);
        }
    } else if (!strcmp(cause, "malloc") || !strcmp(cause, "malloc_in_a_thread")) {
        pthread_t thread;
        if (cause[6] == 0)
            allocate(&start);
        else
            must(pthread_create(&thread, NULL, allocate, &start) == 0 && pthread_join(thread, NULL) == 0, "pthread");
    } else if (!strcmp(cause, "moved")) {
        char *to = reserved(SIZE + HUGE, HUGE);
        start = huge();
        to += mended("move_aligned") ? 0 : PAGE;
        start = mremap(start, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        must(start == to, "mremap");
    } else if (!strcmp(cause, "fork")) {
        start = huge();
        if (!mended("no_fork") && fork() == 0) {
            prctl(PR_SET_PDEATHSIG, 9);
            pause();
        }
        for (size_t at = 0; at < SIZE; at += 2 * PAGE)
            start[at] = 1;
    } else if (!strcmp(cause, "dropped")) {
        start = huge();
        drop(start);
    } else if (!strcmp(cause, "refilled")) {
        start = huge();
        drop(start);
        touch(start, SIZE);
    } else if (!strcmp(cause, "kept")) {
        start = huge();
        for (size_t at = 0; at < SIZE; at += HUGE)
            advise(start + at + PAGE, HUGE - PAGE, MADV_DONTNEED);
    } else if (!strcmp(cause, "freed")) {
        advise(start = huge(), SIZE, MADV_FREE);
    } else if (!strcmp(cause, "mostly_zero")) {
        advise(start = memory(), SIZE, MADV_HUGEPAGE);
        for (size_t at = 0; at < SIZE; at += HUGE)
            start[at] = 1;
    } else if (!strcmp(cause, "stacks")) {
        // As for threads: each stack has a guard page at its lower end, and only its upper half is in use.
        start = reserved(SIZE, HUGE);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK | MAP_FIXED;
        must(mmap(start, SIZE, PROT_NONE, flags, -1, 0) == start, "mmap");
        for (size_t at = 0; at < SIZE; at += HUGE) {
            must(mprotect(start + at + PAGE, HUGE - PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
            touch(start + at + HUGE / 2, HUGE / 2);
        }
    } else if (!strcmp(cause, "split_by_cold")) {
        // Half of the content is zero.
        advise(start = memory(), SIZE, MADV_HUGEPAGE);
        for (size_t at = 0; at < SIZE; at += HUGE) {
            touch(start + at, HUGE / 2);
            advise(start + at, mended("whole_slots") ? HUGE : 4 * PAGE, MADV_COLD);
        }
    } else if (!strcmp(cause, "cold")) {
        start = huge();
        for (size_t at = 0; at < SIZE; at += HUGE)
            advise(start + at, mended("whole_slots") ? HUGE : 4 * PAGE, MADV_COLD);
    } else if (!strcmp(cause, "zero_leaf_split")) {
        // Linux 6.18 gives a huge zero page a large page at a write, but not where its leaf was split.
        advise(start = memory(), SIZE, MADV_HUGEPAGE);
        unsigned sum = 0;
        for (size_t at = 0; at < SIZE; at += HUGE) {
            sum += mended("write_first") ? 0 : start[at];
            must(mprotect(start + at, PAGE, PROT_READ) == 0, "mprotect");
            must(mprotect(start + at, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
        }
        touch(start, SIZE + sum);
    } else if (!strcmp(cause, "read_first")) {
        start = memory();
        unsigned sum = 0;
        for (size_t at = 0; at < SIZE && !mended("write_first"); at += PAGE)
            sum += start[at];
        advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE / 2 + sum);
        for (size_t at = 0; at < SIZE; at += HUGE)
            start[at] = 1;
    } else if (!strcmp(cause, "holes")) {
        start = memory();
        if (mended("fill_slots"))
            advise(start, SIZE, MADV_HUGEPAGE);
        for (size_t at = 0; at < SIZE; at += 2 * PAGE)
            start[at] = 1;
        advise(start, SIZE, MADV_HUGEPAGE);
    } else if (!strcmp(cause, "disabled")) {
        must(prctl(PR_SET_THP_DISABLE, !mended("no_prctl"), 0, 0, 0) == 0, "PR_SET_THP_DISABLE");
        start = huge();
    } else if (!strcmp(cause, "excepted")) {
        must(prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0) == 0, "PR_SET_THP_DISABLE");
        start = memory();
        if (mended("advise"))
            advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strcmp(cause, "locked")) {
        start = memory();
        must(mlock(start, SIZE) == 0, "mlock");
    } else if (!strcmp(cause, "merged")) {
        start = memory();
        advise(start, SIZE, MADV_HUGEPAGE);
        memset(start, 7, SIZE);
        if (!mended("not_mergeable"))
            advise(start, SIZE, MADV_MERGEABLE);
    } else if (!strcmp(cause, "served")) {
        start = served();
    } else if (!strcmp(cause, "pinned")) {
        start = pinned();
    } else if (!strcmp(cause, "shared")) {
        start = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must(start != MAP_FAILED, "mmap");
        if (mended("advise"))
            advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strcmp(cause, "unaligned")) {
        // A mapping of one and a half pages of the size that begins at a quarter of one.
        size_t before = mended("align") ? HUGE : HUGE / 4;
        size_t size = mended("align") ? HUGE : HUGE + HUGE / 2;
        char *all = reserved(3 * HUGE, HUGE);
        start = all + before;
        must(munmap(all, before) == 0 && munmap(start + size, 3 * HUGE - before - size) == 0, "munmap");
        must(mprotect(start, size, PROT_READ | PROT_WRITE) == 0, "mprotect");
        advise(start, size, MADV_HUGEPAGE);
        touch(start, size);
    } else if (!strcmp(cause, "pool_touched")) {
        start = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        must(start != MAP_FAILED, "mmap");
        touch(start, SIZE);
    } else if (!strcmp(cause, "pool")) {
        start = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
        must(start != MAP_FAILED, "mmap");
    } else if (!strcmp(cause, "scattered")) {
        // Free pages between pages that compaction can move.
        size_t all = 32 * SIZE;
        start = reserved(all, HUGE);
        must(mprotect(start, all, PROT_READ | PROT_WRITE) == 0, "mprotect");
        advise(start, all, MADV_NOHUGEPAGE);
        touch(start, all);
        for (size_t at = 0; at < all; at += 2 * PAGE)
            advise(start + at, PAGE, MADV_DONTNEED);
    } else if (!strcmp(cause, "in_pieces")) {
        start = in_pieces();
    } else if (!strcmp(cause, "charged")) {
        start = charged(file);
    } else if (!strcmp(cause, "underused")) {
        join(file);
        advise(start = memory(), SIZE, MADV_HUGEPAGE);
        for (size_t at = 0; at < SIZE; at += HUGE)
            start[at] = 1;
    } else if (!strcmp(cause, "memfd")) {
        int memory = memfd_create("provoked", 0);
        must(memory >= 0 && ftruncate(memory, SIZE) == 0, "memfd_create");
        start = reserved(SIZE, HUGE);
        must(mmap(start, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) == start, "mmap");
        if (mended("advise"))
            advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strcmp(cause, "tmpfs")) {
        start = mapped(file, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strcmp(cause, "tmpfs_to_its_end")) {
        struct stat about;
        must(!mended("file_length") || truncate(file, SIZE) == 0, file);
        must(stat(file, &about) == 0, file);
        touch(start = mapped(file, PROT_READ | PROT_WRITE, MAP_SHARED, 0), about.st_size);
    } else if (!strcmp(cause, "tmpfs_out_of_place")) {
        start = mapped(file, PROT_READ | PROT_WRITE, MAP_SHARED, mended("map_congruent") ? 0 : PAGE);
        advise(start, SIZE, MADV_HUGEPAGE);
        touch(start, SIZE);
    } else if (!strncmp(cause, "file", 4)) {
        int cached = open(file, O_RDONLY);
        // Only pages that were written back leave the page cache.
        must(cached >= 0 && fsync(cached) == 0 && posix_fadvise(cached, 0, 0, POSIX_FADV_DONTNEED) == 0, "posix_fadvise");
        int is_out_of_place = !strcmp(cause, "file_out_of_place") && !mended("map_congruent");
        int protection = !strcmp(cause, "file_data") ? PROT_READ : PROT_READ | PROT_EXEC;
        start = mapped(file, protection, MAP_PRIVATE, is_out_of_place ? PAGE : 0);
        if (mended("advise_uncached"))
            advise(start, SIZE, MADV_HUGEPAGE);
        unsigned sum = 0;
        for (size_t at = 0; at < SIZE; at += PAGE)
            sum += *(volatile char *)(start + at);
    } else if (!strcmp(cause, "split_code")) {
        // A code buffer: written whole, and made executable piece by piece. In the end it is one mapping again.
        start = huge();
        size_t step = mended("whole_slots") ? HUGE : 16 * PAGE;
        for (size_t at = 0; at < SIZE; at += step)
            must(mprotect(start + at, step, PROT_READ | PROT_EXEC) == 0, "mprotect");
    } else if (!strcmp(cause, "moved_text")) {
        // As a program that copies its code to anonymous memory, at the addresses of the code.
        start = mapped(file, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0) + HUGE;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        must(mmap(start, SIZE / 2, PROT_READ | PROT_WRITE, flags, -1, 0) == start, "mmap");
        touch(start, SIZE / 2);
        must(mprotect(start, SIZE / 2, PROT_READ | PROT_EXEC) == 0, "mprotect");
    } else if (!strcmp(cause, "swapped")) {
        // On one processor: MADV_PAGEOUT drains only the batches of new pages of its own processor (lru_add_drain, mm/madvise.c),
        // and skips pages in those of other processors.
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(sched_getcpu(), &own);
        must(sched_setaffinity(0, sizeof own, &own) == 0, "sched_setaffinity");
        touch(start = memory(), SIZE);
        advise(start, SIZE, MADV_HUGEPAGE);
        for (size_t at = 0; at < SIZE; at += HUGE)
            advise(start + at, HUGE / 2, MADV_PAGEOUT);
    } else {
        must(0, cause);
    }
    return start;
}

int main(int count, char **words) {
    must(count == 2 || count == 3, "usage: provoke CAUSE [FILE]");
    PAGE = sysconf(_SC_PAGESIZE);
    FILE *pmd = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "r");
    must(pmd != NULL && fscanf(pmd, "%zu", &HUGE) == 1, "hpage_pmd_size");
    SIZE = 8 * HUGE;
    char *start = provoked(words[1], words[2]);
    printf("%lu\n", (unsigned long)start);
    fflush(stdout);
    char end;
    while (read(0, &end, 1) > 0)
        ;
    return 0;
}
