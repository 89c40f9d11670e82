// A chain of forks: each process forks the next one and exits, the first one before all others. The last one prints a line.
#include "torture.h"

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) * 100 : 100;
    char *memory = map(LARGE, PROT_READ | PROT_WRITE);
    memory[LARGE / 2] = 'm';
    for (; left > 0; left--) {
        pid_t child = fork();
        if (child < 0) wrong("fork");
        if (child) _exit(0);
        if (memory[LARGE / 2] != 'm') wrong("memory");
    }
    printf("the last one still has its %c\n", memory[LARGE / 2]);
    return 0;
}
