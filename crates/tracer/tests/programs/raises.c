// Sends itself TIMES signals and handles each: raises TIMES
#include <signal.h>
#include <stdlib.h>

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 50000;
    signal(SIGUSR1, handle);
    for (int i = 0; i < times; i++) raise(SIGUSR1);
    return handled == times ? 0 : 1;
}
