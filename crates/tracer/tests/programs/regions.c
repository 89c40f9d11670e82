// Reserves TIMES regions of BYTES bytes and makes them accessible one after the other, all but the last page of each,
// with WORK_US microseconds of work between, as QEMU 6.1 does with its code buffer: regions TIMES BYTES WORK_US
// Prints the seconds taken. It has some hundred other mappings, as large programs have.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "now.h"

#define OTHERS 200

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int times = atoi(argv[1]);
    size_t bytes = strtoul(argv[2], 0, 10), page = sysconf(_SC_PAGESIZE);
    double work_s = atof(argv[3]) * 1e-6;
    for (int i = 0; i < OTHERS; i++) { // Neighbours of different protections are two mappings.
        int protection = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        if (mmap(0, page, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 1;
    }
    char *regions = mmap(0, times * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (regions == MAP_FAILED) return 1;
    double begin = now();
    for (int i = 0; i < times; i++) {
        if (mprotect(regions + i * bytes, bytes - page, PROT_READ | PROT_WRITE)) return 1;
        for (double until = now() + work_s; now() < until;) {}
    }
    printf("%.6f\n", now() - begin);
    return 0;
}
