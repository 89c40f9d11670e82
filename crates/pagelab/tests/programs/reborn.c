// Reuses a PID: prints the PID of a child, and for each line that it reads kills the child and forks another one with the
// same PID (clone3 with set_tid, Linux 5.5, which requires CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE).
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Exit code if the kernel refuses.
enum { REFUSED = 77, BYTES = 64 << 20 };

static void live(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

static pid_t made(pid_t number) {
    struct clone_args how = {.exit_signal = SIGCHLD};
    if (number != 0) {
        how.set_tid = (unsigned long)&number;
        how.set_tid_size = 1;
    }
    pid_t child = syscall(SYS_clone3, &how, sizeof how);
    if (child == 0)
        live();
    return child;
}

int main(void) {
    // Enough memory that sampling it takes some time.
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (size_t at = 0; at < BYTES; at += 4096)
        memory[at] = 1;
    pid_t child = made(0);
    printf("%d\n", child);
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (made(child) != child)
            return REFUSED;
        printf("again\n");
        fflush(stdout);
    }
    kill(child, SIGKILL);
    return 0;
}
