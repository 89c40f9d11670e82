/* Memory that only the kernel accesses, in system calls. Prints the addresses. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 32 };

static char *fresh(void)
{
    return mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
    int ends[2];
    char *written = fresh(), *read_into = fresh(), *parts = fresh(), *status = fresh(), *late = fresh();
    if (pipe(ends))
        return 1;
    /* Two pages and a byte of the third, none of which was written before. */
    if (write(ends[1], written + PAGE - 1, PAGE + 2) != PAGE + 2)
        return 2;
    /* Requests more bytes than are available. */
    if (read(ends[0], read_into + PAGE - 1, 8 * PAGE) != PAGE + 2)
        return 3;
    if (write(ends[1], written, 100) != 100)
        return 4;
    struct iovec vector[3] = {{parts, 10}, {parts + 2 * PAGE, 90}, {parts + 4 * PAGE, 10}};
    if (readv(ends[0], vector, 3) != 100)
        return 5;
    if (fstat(ends[0], (struct stat *)status))
        return 6;
    if (read(-1, status + PAGE, PAGE) != -1 || read(ends[1], status + 2 * PAGE, PAGE) != -1)
        return 7;
    /* The same page before and after a call: two runs. */
    late[0] = 1;
    munmap(late + PAGE, PAGE);
    late[1] = 2;
    printf("%lu %lu %lu %lu %lu\n", (unsigned long)written, (unsigned long)read_into, (unsigned long)parts,
           (unsigned long)status, (unsigned long)late);
    return 0;
}
