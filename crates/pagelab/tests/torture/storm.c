// Processes and threads of all kinds at once: forks, vforks, execs of itself from a thread other than the first, exits of whole
// processes while their threads map memory.
#include "torture.h"
#include <pthread.h>

static char *self;

static void *maps_for_ever(void *arg) {
    for (;;) {
        char *p = map(LARGE, PROT_READ | PROT_WRITE);
        *p = 1;
        munmap(p, LARGE);
    }
    return arg;
}
static void *executes(void *arg) {
    execl(self, self, "0", (char *)0);
    wrong("exec");
    return arg;
}
static pthread_t start(void *work(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, 0, work, 0)) wrong("pthread_create");
    return thread;
}
static void ends_amid_mappings(void) {
    for (int i = 0; i < 3; i++) start(maps_for_ever);
    usleep(500);
    _exit(3);
}
static void is_replaced_by_a_thread(void) {
    start(maps_for_ever);
    pthread_join(start(executes), 0);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1, ends[4] = {0};
    volatile int round, kind; // a vfork's child uses the same stack
    if (argc > 1 && rounds == 0) return 5; // executed by a thread
    self = argv[0];
    for (round = 0; round < rounds * 4; round++) {
        pid_t children[4];
        for (kind = 0; kind < 4; kind++) {
            fflush(stdout);
            // Kind 3 borrows the memory until its execve.
            children[kind] = kind == 3 ? vfork() : fork();
            if (children[kind] < 0) wrong("fork");
            if (children[kind]) continue;
            if (kind == 0) _exit(2);
            if (kind == 1) ends_amid_mappings();
            if (kind == 2) is_replaced_by_a_thread();
            execl(self, self, "0", (char *)0);
            _exit(9);
        }
        for (kind = 0; kind < 4; kind++) ends[kind] += WEXITSTATUS(status_of(children[kind]));
    }
    printf("%d rounds: %d %d %d %d\n", rounds * 4, ends[0], ends[1], ends[2], ends[3]);
    return 0;
}
