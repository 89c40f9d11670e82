/* Has windows in base pages that khugepaged may make large, and waits until it has done one, or for so many milliseconds. Where it
   can do none the wait is short: all windows are large already, or the kernel makes no large pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW (2ul << 20)
#define SHORT_MS 300

/* Bytes of this process in large pages that a PMD leaf maps. */
static long huge_kilobytes(void) {
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kilobytes = -1;
    while (rollup && fgets(line, sizeof line, rollup))
        if (sscanf(line, "AnonHugePages: %ld", &kilobytes) == 1)
            break;
    if (rollup)
        fclose(rollup);
    return kilobytes;
}

/* Whether the kernel makes pages of this size for nobody (Linux 6.8; where there is no such setting it does). */
static int never_made(void) {
    FILE *setting = fopen("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled", "r");
    char line[64];
    int never = setting && fgets(line, sizeof line, setting) && strstr(line, "[never]");
    if (setting)
        fclose(setting);
    return never;
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    size_t bytes = (strtoul(words[1], 0, 10) + 1) * WINDOW;
    /* Under a policy of large pages the first advice is answered and not passed on: then all is large from the beginning. */
    char *start = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || madvise(start, bytes, MADV_NOHUGEPAGE))
        return 1;
    for (size_t at = 0; at < bytes; at += 4096)
        start[at] = 1;
    if (madvise(start, bytes, MADV_HUGEPAGE))
        return 1;
    long before = huge_kilobytes(), left_ms = atol(words[2]);
    if (before >= (long)((bytes - WINDOW) >> 10) || never_made())
        left_ms = left_ms < SHORT_MS ? left_ms : SHORT_MS;
    for (; left_ms > 0 && huge_kilobytes() == before; left_ms -= 10)
        usleep(10000);
    return 0;
}
