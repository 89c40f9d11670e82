// Prints the events of its terminal: interrupts, size changes, lines, end of input. With an argument it reads nothing
// and waits until it is terminated.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static volatile sig_atomic_t interrupts, resized = 1, terminated;

static void note(int number) {
    if (number == SIGINT)
        interrupts++;
    else if (number == SIGWINCH)
        resized = 1;
    else
        terminated = 1;
}

static void say(int said) {
    struct winsize size = {0};
    if (resized && ioctl(1, TIOCGWINSZ, &size) == 0)
        printf("size %dx%d\n", size.ws_row, size.ws_col);
    resized = 0;
    if (said != interrupts)
        printf("interrupt %d\n", (int)interrupts);
    fflush(stdout);
}

int main(int count, char **words) {
    (void)words;
    int signals[] = {SIGINT, SIGWINCH, SIGTERM}, said = 0;
    sigset_t all, before;
    sigemptyset(&all);
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = note};
        sigaction(signals[i], &action, NULL);
        sigaddset(&all, signals[i]);
    }
    sigprocmask(SIG_BLOCK, &all, &before);
    say(0);
    printf("ready\n");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (!terminated) {
        int some = ppoll(&input, count == 1, NULL, &before); // signals arrive here only
        say(said);
        said = interrupts;
        if (some < 1)
            continue;
        char line[256];
        ssize_t length = read(0, line, sizeof line - 1);
        if (length == 0)
            break;
        if (length > 0) {
            line[length] = 0;
            line[strcspn(line, "\n")] = 0;
            printf("line %s\n", line);
            fflush(stdout);
        }
    }
    printf("end after %d\n", (int)interrupts);
    return 0;
}
