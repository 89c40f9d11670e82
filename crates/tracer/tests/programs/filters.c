// Installs seccomp filters of its own and maps memory under them.
//   filters kill | threads | strict | foreign
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "own_filter.h"

static int use_memory(void) {
    for (int i = 0; i < 30; i++) {
        size_t bytes = (4 << 20) + i * 4096;
        char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return 0;
        memset(p, i, bytes);
        if (munmap(p, bytes)) return 0;
    }
    return 1;
}

static volatile int installed;
static void *wait_and_use(void *arg) {
    while (!installed) usleep(100);
    *(int *)arg = use_memory();
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "kill")) {
        // Runs in the program, in its children, and in what they execute.
        if (install(SYS_madvise, SECCOMP_RET_KILL_PROCESS, 0)) return 1;
        int mine = use_memory(), status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (!child) { execl("/proc/self/exe", argv[0], "use", (char *)0); _exit(1); }
        waitpid(child, &status, 0);
        printf("kill: %d, child %d\n", mine, status);
    } else if (!strcmp(how, "use")) {
        return !use_memory();
    } else if (!strcmp(how, "threads")) {
        pthread_t thread;
        int other = 0;
        pthread_create(&thread, 0, wait_and_use, &other);
        use_memory();
        // The first filter applies only to this thread; TSYNC applies both to the other thread.
        int first = install(SYS_madvise, SECCOMP_RET_KILL_PROCESS, 0);
        int second = install(SYS_getppid, SECCOMP_RET_ERRNO | 5, SECCOMP_FILTER_FLAG_TSYNC);
        installed = 1;
        pthread_join(thread, 0);
        printf("threads: %d %d %d\n", first, second, other);
    } else if (!strcmp(how, "strict")) {
        fflush(stdout);
        int results[2];
        for (int i = 0; i < 2; i++) {
            pid_t child = fork();
            if (!child) {
                if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(3);
                if (i) syscall(SYS_getppid, 0, 0, 0);
                syscall(SYS_exit, 7);
            }
            waitpid(child, &results[i], 0);
        }
        // Refused with flags, and with a program.
        long flags = syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, 0), flags_errno = errno;
        long program = syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, results), program_errno = errno;
        int is_refused = flags == -1 && flags_errno == EINVAL && program == -1 && program_errno == EINVAL;
        printf("strict: %d, forbidden %d, refused %d\n", WEXITSTATUS(results[0]), WIFSIGNALED(results[1]), is_refused);
    } else if (!strcmp(how, "foreign")) {
        // Requests a tracer (SECCOMP_RET_TRACE) that does not exist.
        if (install(SYS_getppid, SECCOMP_RET_TRACE | 3, 0)) return 1;
        long result = syscall(SYS_getppid, 0, 0, 0);
        printf("foreign: %ld %d\n", result, result == -1 ? errno == ENOSYS : 0);
    }
    return 0;
}
