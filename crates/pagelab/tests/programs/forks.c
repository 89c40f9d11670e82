// Trees of processes that are hard to end. The first argument selects one:
//
//   chain    one process at a time, each forked by the previous one, which exits; the first one exits at once
//   sessions the same, with a session for each
//   storm    children and orphans, without end
//   escape   a process that no tracer follows keeps the output open; the first one prints and exits
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
