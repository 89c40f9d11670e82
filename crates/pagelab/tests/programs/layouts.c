/* Memory whose number of large pages depends on its address: a heap, and mappings whose size is not a multiple of a large page. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void touch(volatile char *memory, long bytes)
{
    for (long at = 0; at < bytes; at += 4096)
        memory[at] = 1;
}

int main(void)
{
    const long kilobyte = 1024, lengths[] = { 2500, 3000, 3500, 4500, 5000, 5500 };
    char *heap = sbrk(0);
    if (brk(heap + 5000 * kilobyte))
        return 1;
    touch(heap, 5000 * kilobyte);
    for (int number = 0; number < 6; number++) {
        long bytes = lengths[number] * kilobyte / 4096 * 4096;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 1;
        touch(memory, bytes);
        /* Prevents merging with the adjacent mapping. */
        mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    return 0;
}
