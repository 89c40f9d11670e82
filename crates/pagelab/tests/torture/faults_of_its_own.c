// userfaultfd: the program fills every page itself, one base page at a time, and write-protects some.
#include "torture.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

static size_t page_bytes;
static char *memory;
static int faults = -1;

static void *brings(void *arg) {
    char *source = map(page_bytes, PROT_READ | PROT_WRITE);
    for (;;) {
        struct uffd_msg message;
        if (read(faults, &message, sizeof message) != sizeof message) wrong("read of the faults");
        uint64_t at = message.arg.pagefault.address & ~(uint64_t)(page_bytes - 1);
        size_t number = (at - (uintptr_t)memory) / page_bytes;
        memset(source, (int)(number % 251), page_bytes);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)source, .len = page_bytes};
        if (ioctl(faults, UFFDIO_COPY, &copy) && copy.copy != -EEXIST) wrong("UFFDIO_COPY of one base page");
    }
    return arg;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    page_bytes = sysconf(_SC_PAGESIZE);
    faults = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    if (faults < 0) {
        printf("no userfaultfd here: %d\n", errno);
        return 0;
    }
    struct uffdio_api api = {.api = UFFD_API};
    if (ioctl(faults, UFFDIO_API, &api)) wrong("UFFDIO_API");
    size_t bytes = 2 * LARGE, part = LARGE / 2;
    pthread_t thread;
    pthread_create(&thread, 0, brings, 0);
    unsigned long sum = 0, pages = 0;
    for (int round = 0; round < rounds; round++) {
        memory = map(bytes, PROT_READ | PROT_WRITE);
        // Pages exist before, outside of the registered range, which starts inside a large page.
        memory[0] = 'a', memory[bytes - 1] = 'z';
        char *from = memory + part + page_bytes * 3;
        struct uffdio_register wanted = {
            .range = {(uintptr_t)from, LARGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        if (ioctl(faults, UFFDIO_REGISTER, &wanted)) wrong("UFFDIO_REGISTER");
        for (size_t at = 0; at < LARGE; at += page_bytes * 5) {
            size_t number = (size_t)(from + at - memory) / page_bytes;
            if ((unsigned char)from[at + 100] != number % 251) wrong("a page that was brought");
            sum += number, pages++;
        }
        if (memory[0] != 'a' || memory[bytes - 1] != 'z') wrong("memory beside it");
        struct uffdio_range range = {(uintptr_t)from, LARGE};
        if (ioctl(faults, UFFDIO_UNREGISTER, &range)) wrong("UFFDIO_UNREGISTER");
        munmap(memory, bytes);
    }
    printf("brought %lu pages, sum %lu\n", pages, sum);
    return 0;
}
