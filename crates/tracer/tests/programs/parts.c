// Locks, advises, queries and changes parts of a large mapping in every way. Prints the kernel's results, and checks
// that memory kept its content.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 16 << 20, PAGE = 4096, PART = (4 << 20) + 3 * PAGE, LENGTH = (2 << 20) + 5 * PAGE };
static char *p, *part;

static void fresh(void) {
    p = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    part = p + PART;
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(p + at) = at + 1;
}
// Counts the pages that are neither zero nor hold what was written, and the pages that are zero.
static void content(const char *what, long result, int error) {
    long zero = 0, wrong = 0;
    for (long at = 0; at < BYTES; at += PAGE) {
        long value = *(volatile long *)(p + at);
        zero += !value;
        wrong += value && value != at + 1;
    }
    printf("%s: %ld %s, zero %ld, wrong %ld\n", what, result, result < 0 ? strerrorname_np(error) : "", zero, wrong);
}
#define TRY(what, call) do { fresh(); errno = 0; long result = (long)(call); content(what, result, errno); munmap(p, BYTES); } while (0)

static long others(void *start, size_t bytes, int how, int by_descriptor) {
    struct iovec parts[2] = {{start, bytes}, {(char *)start + (6 << 20), PAGE}};
    int self = by_descriptor ? syscall(SYS_pidfd_open, getpid(), 0) : -10000;
    long result = syscall(SYS_process_madvise, self, parts, 2, how, 0);
    int error = errno;
    if (by_descriptor) close(self);
    errno = error;
    return result;
}
static long in_child(int how) {
    if (madvise(part, LENGTH, how)) return -1;
    pid_t child = fork();
    if (!child) {
        int zero = 0;
        for (long at = 0; at < LENGTH; at += PAGE) zero += !*(volatile long *)(part + at);
        _exit(zero * PAGE == LENGTH ? 7 : zero ? 8 : 9);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
// A child drops memory that its parent has locked; the child's copy is not locked.
static long drops_in_child(void) {
    if (mlock(part, LENGTH)) return -1;
    pid_t child = fork();
    if (!child) _exit(madvise(part, LENGTH, MADV_DONTNEED) ? 1 : 7 + !!*(volatile long *)part);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static long cores(void *start, size_t bytes) {
    static unsigned char v[BYTES / PAGE + 1];
    memset(v, 0xee, sizeof v);
    long result = mincore(start, bytes, v), present = 0;
    if (result) return result;
    long pages = (bytes + PAGE - 1) / PAGE;
    for (long i = 0; i < pages; i++) present += v[i] & 1;
    return present * 10 + (v[pages] == 0xee && v[pages - 1] != 0xee);
}
static long hole(void *start, size_t bytes, long (*call)(void *, size_t)) {
    munmap(part + PAGE, PAGE);
    long result = call(start, bytes);
    int error = errno;
    mmap(part + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = error;
    return result;
}
static long syncs(void *start, size_t bytes) { return msync(start, bytes, MS_ASYNC); }
static long locks(void *start, size_t bytes) { return mlock(start, bytes); }
static long frees(void *start, size_t bytes) { return madvise(start, bytes, MADV_COLD); }
static long replaces(void *start, size_t bytes) {
    (void)bytes;
    char *at = (char *)start + PAGE;
    return (char *)mmap(at, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at;
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    unsigned long node = 1;
    static const struct { const char *name; int how; } advice[] = {
        {"NORMAL", MADV_NORMAL}, {"RANDOM", MADV_RANDOM}, {"SEQUENTIAL", MADV_SEQUENTIAL}, {"WILLNEED", MADV_WILLNEED},
        {"DONTNEED", MADV_DONTNEED}, {"DONTNEED_LOCKED", 24}, {"REMOVE", MADV_REMOVE}, {"DONTFORK", MADV_DONTFORK}, {"DOFORK", MADV_DOFORK},
        {"MERGEABLE", MADV_MERGEABLE}, {"UNMERGEABLE", MADV_UNMERGEABLE}, {"HUGEPAGE", MADV_HUGEPAGE},
        {"NOHUGEPAGE", MADV_NOHUGEPAGE}, {"DONTDUMP", MADV_DONTDUMP}, {"DODUMP", MADV_DODUMP},
        {"WIPEONFORK", MADV_WIPEONFORK}, {"KEEPONFORK", MADV_KEEPONFORK}, {"COLD", MADV_COLD}, {"PAGEOUT", MADV_PAGEOUT},
        {"POPULATE_READ", 22}, {"POPULATE_WRITE", 23}, {"GUARD_REMOVE", 103}, {"none such", 77},
    };
    for (unsigned i = 0; i < sizeof advice / sizeof *advice; i++) {
        char text[64];
        snprintf(text, sizeof text, "madvise %s", advice[i].name);
        TRY(text, madvise(part, LENGTH, advice[i].how));
        snprintf(text, sizeof text, "madvise %s unaligned", advice[i].name);
        TRY(text, madvise(part + 1, LENGTH, advice[i].how));
        snprintf(text, sizeof text, "process_madvise %s", advice[i].name);
        TRY(text, others(part, LENGTH, advice[i].how, 1));
    }
    TRY("process_madvise self", others(part, LENGTH, MADV_DONTNEED, 0));
    TRY("process_madvise unaligned", others(part + 1, LENGTH, MADV_DONTNEED, 1));
    TRY("madvise FREE", madvise(part, LENGTH, MADV_FREE));
    TRY("child of WIPEONFORK", in_child(MADV_WIPEONFORK));
    TRY("child of DONTFORK", in_child(MADV_DONTFORK));
    TRY("child of COLD", in_child(MADV_COLD));
    TRY("guards", madvise(part, PAGE, 102) + madvise(part, PAGE, 103));
    TRY("mincore", cores(part, LENGTH));
    TRY("mincore of a byte", cores(part, 1));
    TRY("mincore unaligned", cores(part + 1, LENGTH));
    TRY("mincore of a hole", hole(part, 4 * PAGE, cores));
    TRY("msync", msync(part, LENGTH, MS_SYNC));
    TRY("msync of a hole", hole(part, 4 * PAGE, syncs));
    TRY("mlock", mlock(part, LENGTH));
    TRY("mlock of a byte", mlock(part + 1, 1));
    TRY("mlock of a hole", hole(part, 4 * PAGE, locks));
    TRY("advice for a hole", hole(part, 4 * PAGE, frees));
    TRY("mmap into a hole", hole(part, 4 * PAGE, replaces));
    TRY("mlock2", mlock2(part, LENGTH, MLOCK_ONFAULT));
    TRY("munlock", mlock(part, LENGTH) + munlock(part, LENGTH));
    TRY("mlock and drop", mlock(part, LENGTH) + madvise(part, LENGTH, MADV_DONTNEED));
    TRY("child drops locked memory", drops_in_child());
    TRY("mbind", syscall(SYS_mbind, part, LENGTH, 2, &node, 64, 0));
    TRY("home node", syscall(450, part, LENGTH, 0, 0));
    TRY("remap_file_pages", syscall(SYS_remap_file_pages, part, LENGTH, 0, 0, 0));
    TRY("pkey_mprotect", syscall(SYS_pkey_mprotect, part, LENGTH, PROT_READ, -1));
    TRY("mprotect", mprotect(part, LENGTH, PROT_READ));
    TRY("name", prctl(0x53564d41, 0, part, LENGTH, "part"));
    fresh();
    void *pages[3] = {p, part, p + BYTES - PAGE};
    int status[3] = {77, 77, 77};
    long result = syscall(SYS_move_pages, 0, 3, pages, 0, status, 0);
    printf("move_pages: %ld, %d %d %d\n", result, status[0], status[1], status[2]);
    int nodes[3] = {0, 0, 0};
    result = syscall(SYS_move_pages, 0, 3, pages, nodes, status, 2);
    printf("move_pages: %ld, %d %d %d\n", result, status[0], status[1], status[2]);
    char *moved = mremap(part, LENGTH, LENGTH, MREMAP_MAYMOVE | 4);
    printf("mremap DONTUNMAP: %d %ld %ld\n", moved != MAP_FAILED, *(long *)moved - PART, *(long *)part);
    munmap(p, BYTES);
    fresh();
    moved = mremap(part, LENGTH, 2 * LENGTH, MREMAP_MAYMOVE);
    printf("mremap of a part: %d %ld %ld\n", moved != MAP_FAILED, *(long *)moved - PART, *(long *)(moved + LENGTH));
    fresh();
    result = syscall(462, part, LENGTH, 0);
    int error = errno;
    printf("mseal: %ld %s\n", result, result ? strerrorname_np(error) : "");
    result = munmap(part + PAGE, PAGE);
    printf("munmap of sealed: %ld %s\n", result, strerrorname_np(errno));
    content("at the end", 0, 0);
    return 0;
}
