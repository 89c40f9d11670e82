// Shared code of the torture set. Each program takes its size as its first argument. Its output must be the same as without a
// tracer, so it must not depend on the time, on addresses, or on other processes.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 4 << 20 };

static void wrong(const char *what) {
    printf("WRONG: %s (%s)\n", what, strerror(errno));
    fflush(stdout);
    _exit(9);
}

static inline char *map(size_t bytes, int protection) {
    char *p = mmap(0, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) wrong("mmap");
    return p;
}

static inline int status_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) wrong("waitpid");
    return status;
}
