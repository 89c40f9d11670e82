// Each function touches an amount of memory that its name tells, in its own way. The last line of the output has the bytes of 2M leaves
// below the memory of advised_32M.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))
#define M (1ul << 20)

// What is returned cannot be a tail call, which would remove the caller from the stack.
#define KEEP(memory) __asm__ volatile("" ::"r"(memory) : "memory")

// Frames of different sizes: without frame pointers, what is at the same instruction and stack pointer counts as the same stack.
#define FRAME(bytes) char frame[bytes]; KEEP(frame)

FUNCTION static char *map(size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    KEEP(memory);
    return memory;
}

FUNCTION static void touch(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 512)
        memory[at] = 1;
    KEEP(memory);
}

FUNCTION static char *memset_40M(void) {
    FRAME(64);
    char *memory = map(40 * M);
    memset(memory, 1, 40 * M);
    KEEP(memory);
    return memory;
}

FUNCTION static char *loop_24M(void) {
    FRAME(128);
    char *memory = map(24 * M);
    touch(memory, 24 * M);
    KEEP(memory);
    return memory;
}

FUNCTION static char *before_16M(void) {
    FRAME(192);
    char *memory = map(16 * M);
    touch(memory, 16 * M);
    KEEP(memory);
    return memory;
}

FUNCTION static char *after_16M(char *memory) {
    FRAME(256);
    // Behind it, so that it must move.
    mmap(memory + 16 * M, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    memory = mremap(memory, 16 * M, 32 * M, MREMAP_MAYMOVE);
    touch(memory + 16 * M, 16 * M);
    KEEP(memory);
    return memory;
}

FUNCTION static void read_12M(char *memory) {
    int zeros = open("/dev/zero", O_RDONLY);
    for (size_t done = 0; done < 12 * M;)
        done += read(zeros, memory + done, 12 * M - done);
    close(zeros);
    KEEP(memory);
}

FUNCTION static char *populate_8M(void) {
    char *memory = mmap(NULL, 8 * M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    KEEP(memory);
    return memory;
}

FUNCTION static void freed_20M(void) {
    FRAME(320);
    char *memory = map(20 * M);
    touch(memory, 20 * M);
    munmap(memory, 20 * M);
    KEEP(memory);
}

FUNCTION static char *advised_32M(void) {
    FRAME(384);
    char *memory = map(34 * M);
    memory = (char *)(((uintptr_t)memory + 2 * M - 1) & -(2 * M));
    madvise(memory, 32 * M, MADV_HUGEPAGE);
    touch(memory, 32 * M);
    KEEP(memory);
    return memory;
}

// Copies of pages that the parent touched.
FUNCTION static void child_copies(char *memory) {
    FRAME(448);
    touch(memory, 24 * M);
    KEEP(memory);
}

static unsigned long large_kilobytes(char *memory) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long start, end, kilobytes = 0;
    int inside = 0;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)memory && (unsigned long)memory < end;
        else if (inside)
            sscanf(line, "AnonHugePages: %lu", &kilobytes);
    }
    fclose(smaps);
    return kilobytes;
}

int main(int count, char **words) {
    char *set = memset_40M(), *looped = loop_24M(), *moved = after_16M(before_16M());
    char *unread = map(12 * M), *populated = populate_8M(), *advised = advised_32M();
    read_12M(unread);
    freed_20M();
    if (count > 1 && !strcmp(words[1], "fork")) {
        pid_t child = fork();
        if (!child) {
            child_copies(looped);
            return 0;
        }
        waitpid(child, NULL, 0);
    }
    printf("%d\n", set[5] + looped[0] + moved[0] + unread[0] + populated[0]);
    printf("%lu\n", large_kilobytes(advised) << 10);
    return 0;
}
