// Very many mappings, which children inherit. SIZE gives 600 times as many mappings, and two thirds as many children.
#include "torture.h"

int main(int argc, char **argv) {
    int size = argc > 1 ? atoi(argv[1]) : 1, maps = 600 * size, children = 1 + size * 2 / 5;
    size_t page = sysconf(_SC_PAGESIZE), piece = page * 2;
    char **all = calloc(maps, sizeof *all);
    // One range in which every second piece is read-only, so that no piece is merged with its neighbour.
    char *stretch = map(maps * piece, PROT_READ | PROT_WRITE);
    for (int i = 0; i < maps; i++) {
        all[i] = stretch + i * piece;
        all[i][0] = (char)i;
        if (i % 2 && mprotect(all[i], piece, PROT_READ)) wrong("mprotect");
    }
    for (int i = 0; i < 20; i++) map(LARGE, PROT_READ | PROT_WRITE)[i] = 1;
    int sum = 0;
    for (int child = 0; child < children; child++) {
        pid_t pid = fork();
        if (pid < 0) wrong("fork");
        if (!pid) {
            for (int i = 0; i < maps; i++) {
                if (all[i][0] != (char)i) wrong("a piece");
                if (i % 2 == 0) all[i][page] = 1;
            }
            munmap(stretch, maps * piece);
            _exit(child % 100);
        }
        if (child % 2) sum += WEXITSTATUS(status_of(pid));
    }
    for (int status; wait(&status) > 0;) sum += WEXITSTATUS(status);
    printf("%d mappings, %d children, sum %d\n", maps, children, sum);
    return 0;
}
