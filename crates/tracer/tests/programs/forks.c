// Forks TIMES children, one after the other, each of which ends at once: forks TIMES
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    for (int times = argc > 1 ? atoi(argv[1]) : 1000; times > 0; times--) {
        pid_t child = fork();
        if (child == -1) return 1;
        if (child == 0) _exit(0);
        if (waitpid(child, 0, 0) != child) return 1;
    }
    return 0;
}
