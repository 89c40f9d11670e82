// Makes one kind of call again and again, and prints the seconds that it took: notified KIND TIMES
// KIND: heap (malloc of 3000 bytes, touched), mmap (2M, unmapped again), forks, raises; and without a time, for tests:
//   asks        TIMES calls of getppid; prints the result or -errno of each
//   hides       getppid, no longer dumpable, getppid
//   listens     installs a filter with a listener of its own, and one without; prints 0 or -errno of both
//   leaves      ends by exit_group while another thread calls getppid for ever
//   dies        sends itself SIGKILL
//   replaced    executes itself with the kind asks
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "now.h"

enum { PIECE = 3000, MAPPING = 2 << 20 };

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static int repeat(const char *kind, int times) {
    for (int i = 0; i < times; i++) {
        if (!strcmp(kind, "heap")) {
            char *piece = malloc(PIECE);
            if (!piece) return 1;
            memset(piece, 1, PIECE);
        } else if (!strcmp(kind, "mmap")) {
            char *p = mmap(0, MAPPING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED || munmap(p, MAPPING)) return 1;
        } else if (!strcmp(kind, "forks")) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            if (child == -1 || waitpid(child, 0, 0) != child) return 1;
        } else if (!strcmp(kind, "raises")) {
            raise(SIGUSR1);
        } else {
            return 2;
        }
    }
    return strcmp(kind, "raises") == 0 && handled != times;
}

static void ask(int times) {
    for (int i = 0; i < times; i++) {
        long result = syscall(SYS_getppid);
        printf("%ld\n", result == -1 ? (long)-errno : result);
    }
}

static int install(unsigned flags) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == -1 ? -errno : 0;
}

static void *ask_for_ever(void *none) {
    for (;;) syscall(SYS_getppid);
    return none;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *kind = argv[1];
    int times = atoi(argv[2]);
    pthread_t thread;
    if (!strcmp(kind, "asks")) return ask(times), 0;
    if (!strcmp(kind, "hides")) return ask(1), prctl(PR_SET_DUMPABLE, 0), ask(1), 0;
    if (!strcmp(kind, "listens")) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        return printf("%d %d\n", install(SECCOMP_FILTER_FLAG_NEW_LISTENER), install(0)), 0;
    }
    if (!strcmp(kind, "leaves")) return pthread_create(&thread, 0, ask_for_ever, 0);
    if (!strcmp(kind, "dies")) return kill(getpid(), SIGKILL);
    if (!strcmp(kind, "replaced")) return execl(argv[0], argv[0], "asks", argv[2], (char *)0);
    signal(SIGUSR1, handle);
    double begin = now();
    int failed = repeat(kind, times);
    printf("%.6f\n", now() - begin);
    return failed;
}
