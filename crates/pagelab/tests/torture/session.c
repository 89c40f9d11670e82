// Sessions, process groups and a terminal of its own, with job control, as in a shell, script(1) and expect.
#include "torture.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

static volatile sig_atomic_t hangups;
static void on_hangup(int number) { (void)number, hangups++; }

// In the terminal's session: a job that ^Z stops and that is resumed; ^C ends it.
static int shell(void) {
    signal(SIGTTOU, SIG_IGN);
    pid_t job = fork();
    if (!job) {
        setpgid(0, 0);
        tcsetpgrp(0, getpgrp());
        printf("a job\n");
        fflush(stdout);
        for (;;) munmap(map(LARGE, PROT_READ | PROT_WRITE), LARGE);
    }
    int status;
    if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTSTP) wrong("^Z");
    printf("stopped\n");
    kill(-job, SIGCONT);
    if (waitpid(job, &status, WCONTINUED) != job || !WIFCONTINUED(status)) wrong("continued");
    printf("went on\n");
    fflush(stdout);
    if (!WIFSIGNALED(status = status_of(job)) || WTERMSIG(status) != SIGINT) wrong("^C");
    tcsetpgrp(0, getpgrp());
    printf("ended by ^C\n");
    fflush(stdout);
    raise(SIGSTOP);
    return 0;
}

static void expect(int terminal, const char *text) {
    char seen[4096];
    for (size_t have = 0; have + 1 < sizeof seen; have++) {
        if (read(terminal, seen + have, 1) != 1) wrong("read of the terminal");
        seen[have + 1] = 0;
        if (strstr(seen, text)) return;
    }
    wrong(text);
}

int main(void) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) wrong("a terminal");
    char *name = ptsname(terminal);
    pid_t leader = fork();
    if (!leader) {
        if (setsid() != getpid()) _exit(1);
        int tty = open(name, O_RDWR);
        if (tty < 0 || tcgetsid(tty) != getpid()) _exit(2);
        for (int i = 0; i < 3; i++) dup2(tty, i);
        close(terminal);
        signal(SIGHUP, on_hangup);
        int status = shell();
        // The terminal hangs up while the leader is stopped, so it receives SIGHUP and SIGCONT.
        _exit(hangups ? 40 + status : 50);
    }
    expect(terminal, "a job");
    if (write(terminal, "\x1a", 1) != 1) wrong("^Z");
    expect(terminal, "went on");
    if (write(terminal, "\x03", 1) != 1) wrong("^C");
    expect(terminal, "ended by ^C");
    int status;
    if (waitpid(leader, &status, WUNTRACED) != leader || !WIFSTOPPED(status)) wrong("the leader should have stopped");
    close(terminal);
    status = status_of(leader);
    printf("hung up: %d, in a session of its own: %d\n", WEXITSTATUS(status), getsid(leader) == -1);
    pid_t group = fork();
    if (!group) {
        setpgid(0, 0);
        if (!fork()) for (;;) pause();
        kill(0, SIGTERM);
        for (;;) pause();
    }
    printf("a group ended by signal %d\n", WTERMSIG(status_of(group)));
    return 0;
}
