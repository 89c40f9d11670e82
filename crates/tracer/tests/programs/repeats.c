// Repeats one kind of call, and prints the seconds taken: repeats KIND TIMES
// KIND: heap (malloc of 3000 bytes, touched), mmap (2M, unmapped again), forks, execs (of true), raises
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
        } else if (!strcmp(kind, "execs")) {
            pid_t child = vfork();
            if (child == 0) {
                execl("/bin/true", "true", (char *)0);
                _exit(127);
            }
            int status;
            if (child == -1 || waitpid(child, &status, 0) != child || status) return 1;
        } else if (!strcmp(kind, "raises")) {
            raise(SIGUSR1);
        } else {
            return 2;
        }
    }
    return strcmp(kind, "raises") == 0 && handled != times;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    signal(SIGUSR1, handle);
    double begin = now();
    int failed = repeat(argv[1], atoi(argv[2]));
    printf("%.6f\n", now() - begin);
    return failed;
}
