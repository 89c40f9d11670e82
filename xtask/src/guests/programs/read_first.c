// Maps advised memory at a multiple of the large page, reads every page, and then writes it. Prints to FILE how many bytes of it the
// kernel maps by a PMD.
//   read_first BYTES PMD FILE        reads before it writes
//   write_first BYTES PMD FILE       the same program under this name: writes only
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 4) return fputs("usage: read_first BYTES PMD FILE\n", stderr), 2;
    size_t bytes = strtoul(words[1], 0, 10), pmd = strtoul(words[2], 0, 10), page = sysconf(_SC_PAGESIZE);
    char *all = mmap(0, bytes + pmd, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return perror("mmap"), 1;
    volatile char *memory = (char *)(((uintptr_t)all + pmd - 1) & ~(pmd - 1));
    if (madvise((char *)memory, bytes, 14)) return perror("MADV_HUGEPAGE"), 1;
    char sum = 0;
    if (strstr(words[0], "read_first"))
        for (size_t at = 0; at < bytes; at += page) sum += memory[at];
    for (size_t at = 0; at < bytes; at += page) memory[at] = 1 + sum;
    FILE *smaps = fopen("/proc/self/smaps", "r"), *out = fopen(words[3], "w");
    char line[512];
    unsigned long by_pmd = 0, kib;
    while (smaps && fgets(line, sizeof line, smaps))
        if (sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) by_pmd += kib << 10;
    if (!smaps || !out) return perror("smaps"), 1;
    fprintf(out, "%lu\n", by_pmd);
    return fclose(out);
}
