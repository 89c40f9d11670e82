/* Forks repeatedly, writes to its heap in parent and copy, and prints how each copy ended. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COPIES = 5, BYTES = 8 << 20 };

int main(void) {
    char *heap = malloc(BYTES);
    memset(heap, 1, BYTES);
    for (int copy = 0; copy < COPIES; copy++) {
        pid_t child = fork();
        if (child == 0) {
            heap[copy << 20] = 2;
            memset(malloc(100000), 1, 100000);
            _exit(getpid() == gettid() ? 7 : 8);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("%x ", (unsigned)status);
    }
    printf("%d\n", heap[0]);
    return 0;
}
