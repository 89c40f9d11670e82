// Maps BYTES bytes TIMES times, with WORK_US microseconds of work between: churn TIMES BYTES WORK_US
// Prints the seconds taken. BYTES 0: sizes from 128K to 4M, as malloc requests them.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "now.h"

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int times = atoi(argv[1]);
    size_t wanted = strtoul(argv[2], 0, 10);
    double work_s = atof(argv[3]) * 1e-6, begin = now();
    unsigned random = 1;
    for (int i = 0; i < times; i++) {
        random = random * 1103515245 + 12345;
        size_t bytes = wanted ? wanted : (131072u << (random >> 16) % 6) + 4096;
        char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return 1;
        for (double until = now() + work_s; now() < until;) {}
        munmap(p, bytes);
    }
    printf("%.6f\n", now() - begin);
    return 0;
}
