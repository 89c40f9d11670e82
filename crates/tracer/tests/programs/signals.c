// A profiler's timer at 1 kHz while memory is mapped, and stops of processes that map memory.
//   signals timer | stops | self
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned ticks, strange;
static void on_tick(int number, siginfo_t *info, void *context) {
    (void)context;
    ticks++;
    if (number != SIGPROF || info->si_code != SI_KERNEL) strange++;
}

static void map_once(void) {
    size_t bytes = 2 << 20;
    char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p[0] = 1;
    munmap(p, bytes);
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void timer(void) {
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, 0);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    double begin = cpu();
    setitimer(ITIMER_PROF, &every, 0);
    // Long enough that a pause of the whole machine, which counts as CPU time but has no ticks, is a small part of it.
    while (cpu() < begin + 1) map_once();
    sigset_t mask;
    sigprocmask(SIG_SETMASK, 0, &mask);
    int blocked = 0;
    for (int i = 1; i < 65; i++) blocked += sigismember(&mask, i) == 1;
    // The kernel's tick, not the timer, bounds the rate: at least 100 Hz everywhere.
    printf("timer: enough %d, strange %u, blocked %d\n", ticks >= 88 && ticks <= 1100, strange, blocked);
}

// A child maps memory all the time; each SIGSTOP must stop it, and each SIGCONT resume it.
static void stops(void) {
    volatile uint64_t *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) for (;;) { map_once(); ++*count; }
    int stopped = 0, resumed = 0, status;
    for (int i = 0; i < 100; i++) {
        usleep(rand() % 700);
        kill(child, SIGSTOP);
        if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) break;
        uint64_t before = *count;
        usleep(1000);
        stopped += *count == before;
        kill(child, SIGCONT);
        if (waitpid(child, &status, WCONTINUED) != child || !WIFCONTINUED(status)) break;
        for (int wait = 0; wait < 2000 && *count == before; wait++) usleep(1000);
        resumed += *count != before;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("stops: stopped %d, resumed %d, killed %d\n", stopped, resumed, WTERMSIG(status));
}

// A job that stops itself, as seen by a shell.
static void self(void) {
    pid_t child = fork();
    int status;
    if (!child) {
        setpgid(0, 0);
        kill(getpid(), SIGTSTP);
        map_once();
        _exit(4);
    }
    waitpid(child, &status, WUNTRACED);
    int stopped = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
    if (stopped) {
        kill(child, SIGCONT);
        waitpid(child, &status, 0);
    }
    // An orphaned group is not stopped by SIGTSTP.
    printf("self: stopped %d, status %d\n", stopped == SIGTSTP, WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "timer")) timer();
    if (!strcmp(how, "stops")) stops();
    if (!strcmp(how, "self")) self();
    return 0;
}
