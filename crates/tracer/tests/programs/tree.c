// Creates and ends tasks in every way, while memory is mapped. Prints how many of each succeeded.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4 << 20, TIMES = 15 };
extern char **environ;

static int map_once(void) {
    char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 0;
    for (int i = 0; i < BYTES; i += 65536) p[i] = 1;
    return munmap(p, BYTES) == 0;
}
static int code_of(pid_t pid) {
    int status = 0;
    if (pid <= 0 || waitpid(pid, &status, __WALL) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
static char *const leaf[] = {"tree", "leaf", 0};

static int vforked(void) {
    pid_t pid = vfork();
    if (!pid) {
        map_once();
        execve("/proc/self/exe", leaf, environ);
        _exit(1);
    }
    return code_of(pid) == 7;
}
static int spawned(void) {
    pid_t pid;
    return !posix_spawn(&pid, "/proc/self/exe", 0, 0, leaf, environ) && code_of(pid) == 7;
}
static int borrower(void *arg) { *(int *)arg = map_once(); return 5; }
static int cloned(void) {
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    int mapped = 0;
    pid_t pid = clone(borrower, stack + 65536, CLONE_VM, &mapped);
    int is_ok = map_once() && code_of(pid) == 5 && mapped;
    munmap(stack, 65536);
    return is_ok;
}
static void *execute(void *arg) {
    (void)arg;
    map_once();
    execve("/proc/self/exe", leaf, environ);
    return 0;
}
static void *keep_mapping(void *arg) {
    (void)arg;
    for (;;) map_once();
    return 0;
}
// exec from a thread that is not the first, while other threads, including the first, map memory.
static int executed_by_thread(void) {
    pid_t pid = fork();
    if (!pid) {
        pthread_t thread;
        for (int i = 0; i < 3; i++) pthread_create(&thread, 0, keep_mapping, 0);
        pthread_create(&thread, 0, execute, 0);
        for (;;) map_once();
    }
    return code_of(pid) == 7;
}
static void *end_late(void *arg) {
    (void)arg;
    usleep(2000);
    for (int i = 0; i < 5; i++) map_once();
    exit(6);
}
// The first thread ends before the others.
static int first_thread_ends(void) {
    pid_t pid = fork();
    if (!pid) {
        pthread_t thread;
        pthread_create(&thread, 0, end_late, 0);
        pthread_exit(0);
    }
    return code_of(pid) == 6;
}
// Killed at a random moment: while mapping, while starting threads, while forking.
static int killed(int times) {
    pid_t pid = fork();
    if (!pid) {
        pthread_t thread;
        for (int i = 0; i < 2; i++) pthread_create(&thread, 0, keep_mapping, 0);
        for (;;) {
            pid_t child = fork();
            if (!child) _exit(!map_once());
            waitpid(child, 0, 0);
        }
    }
    usleep(times * 531 % 4000);
    kill(pid, SIGKILL);
    return code_of(pid) == -SIGKILL;
}
// A grandchild that outlives its parent.
static int orphan(void) {
    int ends[2];
    char byte = 0;
    if (pipe(ends)) return 0;
    pid_t pid = fork();
    if (!pid) {
        if (!fork()) {
            usleep(1000);
            byte = map_once();
            _exit(write(ends[1], &byte, 1) != 1);
        }
        _exit(0);
    }
    close(ends[1]);
    int is_ok = code_of(pid) == 0 && read(ends[0], &byte, 1) == 1 && byte == 1;
    close(ends[0]);
    return is_ok;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "leaf")) {
        for (int i = 0; i < 3; i++) if (!map_once()) return 1;
        return 7;
    }
    int count[7] = {0};
    for (int i = 0; i < TIMES; i++) {
        count[0] += vforked();
        count[1] += spawned();
        count[2] += cloned();
        count[3] += executed_by_thread();
        count[4] += first_thread_ends();
        count[5] += killed(i);
        count[6] += orphan();
    }
    printf("tree:");
    for (int i = 0; i < 7; i++) printf(" %d", count[i]);
    printf(" of %d\n", TIMES);
    return 0;
}
