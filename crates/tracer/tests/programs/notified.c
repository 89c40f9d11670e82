// Makes calls that a supervisor must, or must not, be notified of: notified KIND TIMES
//   asks        TIMES calls of getppid; prints the result or -errno of each
//   hides       getppid, becomes undumpable, getppid
//   listens     installs a filter with a listener of its own, and one without; prints 0 or -errno of both
//   leaves      ends by exit_group while another thread calls getppid forever
//   dies        sends itself SIGKILL
//   replaced    executes itself with the kind asks
//   handles     getppid, with a handler of SIGUSR1 without SA_RESTART
//   alarmed     maps and unmaps 2M TIMES times, with such a handler for a timer's signals, one per 100 us; prints how often
//               mmap returned EINTR, and the number of signals
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
#include <sys/time.h>
#include <unistd.h>

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

static void *ask_forever(void *none) {
    for (;;) syscall(SYS_getppid);
    return none;
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void handle_without_restart(int signal) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(signal, &action, 0);
}

static void map_while_alarmed(int times) {
    const size_t bytes = 2 << 20;
    struct itimerval each = {{0, 100}, {0, 100}};
    int interrupted = 0;
    handle_without_restart(SIGALRM);
    setitimer(ITIMER_REAL, &each, 0);
    for (int i = 0; i < times; i++) {
        void *p = mmap(0, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) munmap(p, bytes);
        else interrupted += errno == EINTR;
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, 0);
    printf("%d %d\n", interrupted, (int)handled);
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
    if (!strcmp(kind, "leaves")) return pthread_create(&thread, 0, ask_forever, 0);
    if (!strcmp(kind, "handles")) return handle_without_restart(SIGUSR1), ask(1), 0;
    if (!strcmp(kind, "alarmed")) return map_while_alarmed(times), 0;
    if (!strcmp(kind, "dies")) return kill(getpid(), SIGKILL);
    if (!strcmp(kind, "replaced")) return execl(argv[0], argv[0], "asks", argv[2], (char *)0);
    return 2;
}
