/* Calls that change the address space. Prints the addresses that they returned. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void)
{
    char *first = mmap(NULL, 0x5000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    first[0x4000] = 1;
    mprotect(first, 0x1000, PROT_READ);
    madvise(first + 0x1000, 0x2000, MADV_DONTNEED);
    char *moved = mremap(first + 0x1000, 0x4000, 0x9000, MREMAP_MAYMOVE);
    munmap(moved + 0x8000, 0x1000);
    munmap((void *)1, 0x1000);
    prctl(PR_SET_TIMERSLACK, 77, 0, 0, 0);
    char *end = sbrk(0x3000);
    printf("%lu %lu %lu\n", (unsigned long)first, (unsigned long)moved, (unsigned long)end + 0x3000);
    return 0;
}
