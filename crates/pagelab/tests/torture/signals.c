// Signals while memory is mapped: none is lost, duplicated or out of order, and a handler sees the state at the interruption.
#include "torture.h"
#include <execinfo.h>
#include <pthread.h>
#include <sys/time.h>

static volatile int counted, ordered, last, samples, whole;
static void count(int number) { (void)number, counted++; }
static void order(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    ordered += info->si_value.sival_int == ++last;
}
static void *volatile caller; // return address of the function that is mapping memory, if any
// A profiler's sample, which must contain the caller.
static void sample(int number) {
    (void)number;
    void *frames[64], *wanted = caller;
    if (!wanted) return;
    int depth = backtrace(frames, 64);
    samples++;
    for (int i = 0; i < depth; i++) whole += frames[i] == wanted;
}
static void handle(int number, void (*plain)(int), void (*with)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_flags = SA_RESTART | (with ? SA_SIGINFO : 0)};
    if (with) action.sa_sigaction = with;
    else action.sa_handler = plain;
    sigaction(number, &action, 0);
}
static void __attribute__((noinline)) maps(int times) {
    caller = __builtin_return_address(0);
    for (int i = 0; i < times; i++) {
        char *p = map(LARGE, PROT_READ | PROT_WRITE);
        p[i % LARGE] = 1;
        munmap(p, LARGE);
    }
    caller = 0;
}
#ifdef __riscv
// Whether backtrace() finds the caller of the interrupted function. In static programs with glibc 2.36 on RISC-V it does not.
static int __attribute__((noinline)) comes_past_a_signal(void) {
    caller = __builtin_return_address(0);
    raise(SIGALRM);
    caller = 0;
    int comes = samples == 1 && whole == 1;
    samples = whole = 0;
    return comes;
}
#endif
static void *sends(void *arg) {
    for (int i = 0; i < *(int *)arg; i++) kill(getpid(), SIGWINCH);
    return 0;
}

int main(int argc, char **argv) {
    int size = argc > 1 ? atoi(argv[1]) : 1, many = 500 * size;
    void *warm[4];
    backtrace(warm, 4); // loads the libraries that it needs
    handle(SIGUSR1, count, 0);
    for (int i = 0; i < many; i++) raise(SIGUSR1);
    printf("%d of %d signals\n", counted, many);
    handle(SIGRTMIN, 0, order);
    for (int i = 1; i <= many; i++) {
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        if (i % 50 == 0) maps(1);
    }
    printf("%d of %d in order\n", ordered, many);
    handle(SIGWINCH, count, 0);
    pthread_t thread;
    pthread_create(&thread, 0, sends, &many);
    maps(10 * size);
    pthread_join(thread, 0);
    // Real time: a CPU time timer expires only at ticks, and rarely if the tracer uses most of the CPU time.
    handle(SIGALRM, sample, 0);
#ifdef __riscv
    if (!comes_past_a_signal()) return puts("no backtrace comes past the frame of a signal"), 0;
#endif
    struct itimerval often_us = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often_us, 0);
    while (samples < 20 * size) maps(10);
    setitimer(ITIMER_REAL, &never, 0);
    printf("backtraces without the caller: %d\n", samples - whole);
    return 0;
}
