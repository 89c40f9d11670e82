/* Maps windows in base pages that khugepaged may collapse, and waits until it has collapsed one, or for the given milliseconds. If
   it cannot collapse any, the wait is short: all windows are large already, or the kernel makes no large pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW (2ul << 20)
#define SHORT_MS 300

/* Bytes of this process that are mapped by PMD leaves. */
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

/* Whether the kernel makes no pages of this size (Linux 6.8; without the setting it makes them). */
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
    /* A policy of large pages answers the first advice and does not pass it on: then all windows are large from the start. */
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
