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

// Exit code of a kernel that refuses.
enum { REFUSED = 77, REGIONS = 4000, PAGE = 4096 };

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
    // So many regions that inspecting the process takes much longer than ending it: every other page is protected.
    char *memory = mmap(NULL, 2UL * REGIONS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (size_t region = 0; region < REGIONS; region++) {
        memory[2 * region * PAGE] = 1;
        if (mprotect(memory + (2 * region + 1) * PAGE, PAGE, PROT_NONE) != 0)
            return 1;
    }
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
