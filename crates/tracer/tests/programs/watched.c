// Serves faults in parts of large mappings, and moves pages, by userfaultfd. Prints what was served.
//   watched [limited]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 16 << 20, PAGE = 4096, PART = (4 << 20) + 3 * PAGE, LENGTH = (2 << 20) + 5 * PAGE };
enum { USER_MODE_ONLY = 1 };
struct move { __u64 to, from, bytes, mode; __s64 moved; };
#define MOVE _IOWR(0xAA, 0x05, struct move)

static int uffd;
static long missing, protected;

static void *serve(void *arg) {
    (void)arg;
    static char page[PAGE];
    for (;;) {
        struct pollfd ready = {uffd, POLLIN, 0};
        poll(&ready, 1, -1);
        struct uffd_msg message;
        if (read(uffd, &message, sizeof message) != sizeof message) continue;
        __u64 at = message.arg.pagefault.address & ~(__u64)(PAGE - 1);
        if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
            struct uffdio_writeprotect opened = {{at, PAGE}, 0};
            protected++;
            if (ioctl(uffd, UFFDIO_WRITEPROTECT, &opened)) perror("open"), _exit(3);
        } else {
            memset(page, 7, PAGE);
            struct uffdio_copy copy = {at, (__u64)page, PAGE, 0, 0};
            missing++;
            if (ioctl(uffd, UFFDIO_COPY, &copy) && errno != EEXIST) perror("copy"), _exit(3);
        }
    }
    return 0;
}

static char *fresh(void) { return mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static int watch(void *start, size_t bytes, __u64 how) {
    struct uffdio_register range = {{(__u64)start, bytes}, how, 0};
    return ioctl(uffd, UFFDIO_REGISTER, &range) ? errno : 0;
}

static long sum(char *start, size_t bytes) {
    long sum = 0;
    for (size_t at = 0; at < bytes; at += PAGE) sum += start[at];
    return sum;
}

static void report(const char *what, int error, long sum) {
    printf("%s: error %d, sum %ld, served %ld missing and %ld protected\n", what, error, sum, missing, protected);
    missing = protected = 0;
}

int main(int argc, char **argv) {
    (void)argv;
    alarm(60); // ends the program if a fault cannot be served
    uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
    struct uffdio_api api = {UFFD_API, 0, 0};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api)) return printf("no userfaultfd: %s\n", strerror(errno)), 0;
    if (argc > 1) {
        char *all = fresh();
        memset(all, 1, BYTES);
        setrlimit(RLIMIT_AS, &(struct rlimit){PAGE, PAGE});
        return printf("limited: error %d\n", watch(all + PART, LENGTH, UFFDIO_REGISTER_MODE_MISSING)), 0;
    }
    pthread_t server;
    pthread_create(&server, 0, serve, 0);

    char *p = fresh();
    int error = watch(p, BYTES, UFFDIO_REGISTER_MODE_MISSING);
    report("untouched", error, sum(p, BYTES));
    munmap(p, BYTES);

    p = fresh();
    memset(p, 1, BYTES);
    error = madvise(p + PART, LENGTH, MADV_DONTNEED) | watch(p + PART, LENGTH, UFFDIO_REGISTER_MODE_MISSING);
    report("dropped", error, sum(p, BYTES));
    error = watch(p + PART + 1, LENGTH, UFFDIO_REGISTER_MODE_MISSING);
    report("refused", error, sum(p, BYTES));
    munmap(p, BYTES);

    p = fresh();
    memset(p, 2, PART);
    error = watch(p, PART + LENGTH, UFFDIO_REGISTER_MODE_MISSING);
    report("partly touched", error, sum(p, BYTES));
    munmap(p, BYTES);

    p = mmap(0, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    error = watch(p + PART, LENGTH, UFFDIO_REGISTER_MODE_MISSING);
    mprotect(p, BYTES, PROT_READ | PROT_WRITE);
    report("reserved", error, sum(p, BYTES));
    munmap(p, BYTES);

    p = fresh();
    memset(p, 3, BYTES);
    error = watch(p + PART, LENGTH, UFFDIO_REGISTER_MODE_WP);
    if (error != EINVAL) { // some architectures cannot
        struct uffdio_writeprotect closed = {{(__u64)p + PART, 5 * PAGE}, UFFDIO_WRITEPROTECT_MODE_WP};
        if (ioctl(uffd, UFFDIO_WRITEPROTECT, &closed)) error = errno;
        for (int i = 0; i < 9; i++) p[PART + i * PAGE]++;
    }
    report("write-protected", error, sum(p, BYTES));
    munmap(p, BYTES);

    p = fresh();
    char *q = fresh();
    memset(q, 4, BYTES);
    error = watch(p, BYTES, UFFDIO_REGISTER_MODE_MISSING);
    struct move move = {(__u64)p, (__u64)q + PART, 3 * PAGE, 0, 0};
    if (!error && ioctl(uffd, MOVE, &move)) error = errno == ENOTTY ? 0 : errno;
    printf("moved %lld, ", (long long)move.moved);
    report("moved", error, sum(q, PART));
    return 0;
}
