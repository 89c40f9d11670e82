/* A parent stores to half of the memory that it shares with its child while the child is alive. The child stores to a part that
   overlaps the second half of it. Then the parent stores to the rest of that part, and after the child has exited
   to everything else. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 32 << 20, PAGE = 4096 };

static char *buffer;

static void store(int begin, int end) {
    for (int at = begin; at < end; at += PAGE) buffer[at] = 2;
}

static void tell(const int *pipe) {
    char byte = 0;
    if (write(pipe[1], &byte, 1) != 1) _exit(1);
}

static void wait_for(const int *pipe) {
    char byte;
    if (read(pipe[0], &byte, 1) != 1) _exit(1);
}

int main(void) {
    int to_child[2], to_parent[2], status = 1;
    buffer = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED || pipe(to_child) || pipe(to_parent)) return 1;
    memset(buffer, 1, BYTES);
    if (fork() == 0) {
        wait_for(to_child);
        store(BYTES / 4, BYTES * 3 / 4);
        tell(to_parent);
        wait_for(to_child);
        _exit(0);
    }
    store(0, BYTES / 2);
    tell(to_child);
    wait_for(to_parent);
    store(BYTES / 2, BYTES * 3 / 4);
    tell(to_child);
    wait(&status);
    store(BYTES * 3 / 4, BYTES);
    return status;
}
