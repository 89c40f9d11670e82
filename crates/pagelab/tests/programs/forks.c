// Trees of processes that are hard to end. The first argument says which:
//
//   chain    one process at a time, each made by the one before, which is gone; the first one ends at once
//   sessions the same, each in a session of its own
//   storm    children and orphans, for ever
//   escape   a process that no tracer follows keeps the output open; the first one prints and ends
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void chain(int sessions) {
    if (fork() == 0)
        for (;;) {
            if (fork())
                _exit(0);
            if (sessions)
                setsid();
        }
}

static void storm(void) {
    for (;;) {
        for (int i = 0; i < 8; i++)
            if (fork() == 0) {
                fork();
                _exit(0);
            }
        while (waitpid(-1, 0, 0) > 0) {
        }
    }
}

static void escape(void) {
    if (syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0) == 0)
        for (;;)
            pause();
    puts("printed");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "storm"))
        storm();
    else if (!strcmp(what, "escape"))
        escape();
    else
        chain(!strcmp(what, "sessions"));
    return 0;
}
