// Maps anonymous memory, writes to all of it, and prints the kernel's information about it: smaps, and the folios of kpageflags.
// It shares no code with the census with which it is compared.
//   looks page            the size of a base page
//   looks reuses          true if a write fault reuses a page of a large folio that only this process still maps, or false
//   looks reclaims        true if MADV_DONTNEED frees a page table when it drops all that the table maps, false if it keeps it
//   looks vdso            the number of pages of the vDSO and its data
//   looks BYTES [FILE]    the information about the memory; to FILE instead of standard output
//   looks BYTES FILE hold TEXT   the same, then stays on the last processor until the host has read its page tables; writes the
//                         answer, which comes through standard input, to TEXT
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Bits of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst).
enum { HEAD = 15, TAIL = 16, ANON = 12, HUGE = 17 };

enum { FOLIO = 64 << 10 };

static int flags_file, map_file;
static long page;

static uint64_t at(int file, uint64_t index) {
    uint64_t word = 0;
    if (pread(file, &word, sizeof word, index * sizeof word) != sizeof word) return 0;
    return word;
}

// The number of pages in the folio of this frame.
static uint64_t folio_pages(uint64_t frame) {
    uint64_t flags = at(flags_file, frame), pages = 1;
    if (!(flags & (1ul << HEAD | 1ul << TAIL))) return 1;
    while (!(at(flags_file, frame) & 1ul << HEAD)) frame--;
    while (at(flags_file, frame + pages) & 1ul << TAIL) pages++;
    return pages;
}

// Bytes of anonymous memory by folio size, with hugetlb separate; the index is the binary logarithm of the size.
static uint64_t anonymous[64], pool[64];

static void look(uint64_t start, uint64_t end) {
    uint64_t known = 0, pages = 0, base = 0;
    for (uint64_t address = start; address < end; address += page) {
        uint64_t entry = at(map_file, address / page);
        if (!(entry >> 63)) continue;
        uint64_t frame = entry & ((1ul << 55) - 1), flags = at(flags_file, frame);
        if (!known || frame < base || frame >= base + pages) {
            pages = folio_pages(frame), base = frame;
            while (pages > 1 && !(at(flags_file, base) & 1ul << HEAD)) base--;
            known = 1;
        }
        int size = 63 - __builtin_clzl(pages * page);
        if (flags & 1ul << HUGE) pool[size] += page;
        else if (flags & 1ul << ANON) anonymous[size] += page;
    }
}

// The held memory is aligned to the largest contiguous group. An answer with more entries would not fit a line of the terminal.
enum { ALIGNED = 2 << 20, HELD_PAGES = 128 };

// Runs until a line arrives, so that the processor's tables are those of this process.
static int hold(char *memory, const char *path) {
    long processor = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor - 1, &set);
    if (sched_setaffinity(0, sizeof set, &set)) return perror("sched_setaffinity"), 1;
    char *held = (char *)(((uintptr_t)memory + ALIGNED - 1) & ~(uintptr_t)(ALIGNED - 1)), answer[4096];
    uint64_t frame = at(map_file, (uintptr_t)held / page) & ((1ul << 55) - 1);
    printf("\n@@ look %lx %ld %ld %lx %ld\n", (uintptr_t)held, HELD_PAGES * page, page, frame, processor);
    fflush(stdout);
    fcntl(0, F_SETFL, O_NONBLOCK);
    ssize_t length;
    while ((length = read(0, answer, sizeof answer)) <= 0)
        for (int turn = 0; turn < 1000000; turn++) ++*(volatile char *)held;
    FILE *out = fopen(path, "w");
    fwrite(answer, 1, length, out);
    return fclose(out);
}

// Memory that starts at a window of this size, in which there is no other memory.
static char *window(size_t bytes, int windows) {
    char *all = mmap(0, bytes * (windows + 2), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) exit((perror("mmap"), 1));
    char *begin = (char *)(((uintptr_t)all + bytes) & ~(uintptr_t)(bytes - 1));
    mprotect(begin, bytes * windows, PROT_READ | PROT_WRITE);
    return begin;
}

// The frame that an address maps to.
static uint64_t frame_at(char *address) {
    return at(map_file, (uintptr_t)address / page) & ((1ul << 55) - 1);
}

// Stores to a 64K folio that a child has shared until it exited.
static int reuses(void) {
    volatile char *folio = window(FOLIO, 1);
    folio[0] = 1;
    uint64_t first = frame_at((char *)folio);
    if (folio_pages(first) * page != FOLIO) return fputs("no folio of 64K\n", stderr), 1;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child < 0 || waitpid(child, 0, 0) != child) return perror("fork"), 1;
    folio[page] = 2;
    return puts(frame_at((char *)folio + page) == first + 1 ? "true" : "false"), 0;
}

// Bytes of this process's page tables.
static long tables(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmPTE: %ld kB", &kib);
    if (status) fclose(status);
    return kib << 10;
}

// Pages of the mappings of the vDSO.
static int vdso(void) {
    char line[512];
    uint64_t start, end, bytes = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if ((strstr(line, "[vdso]") || strstr(line, "[vvar")) && sscanf(line, "%lx-%lx ", &start, &end) == 2)
            bytes += end - start;
    return printf("%lu\n", bytes / page), 0;
}

// Drops everything that one page table maps, and keeps the adjacent one.
static int reclaims(void) {
    size_t table = page * (page / sizeof(uint64_t));
    char *begin = window(table, 2);
    madvise(begin, table * 2, MADV_NOHUGEPAGE);
    begin[0] = begin[table] = 1;
    long before = tables();
    if (madvise(begin, table, MADV_DONTNEED)) return perror("madvise"), 1;
    return puts(tables() < before ? "true" : "false"), 0;
}

int main(int count, char **words) {
    page = sysconf(_SC_PAGESIZE);
    if (count > 1 && !strcmp(words[1], "page")) return printf("%ld\n", page), 0;
    if (count > 1 && !strcmp(words[1], "vdso")) return vdso();
    if (count > 1 && !strcmp(words[1], "reclaims")) return reclaims();
    flags_file = open("/proc/kpageflags", O_RDONLY), map_file = open("/proc/self/pagemap", O_RDONLY);
    if (flags_file < 0 || map_file < 0) return perror("kpageflags or pagemap"), 1;
    if (count > 1 && !strcmp(words[1], "reuses")) return reuses();
    size_t bytes = strtoul(words[1], 0, 10);
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return perror("mmap"), 1;
    for (size_t byte = 0; byte < bytes; byte += page) memory[byte] = 1;
    FILE *smaps = fopen("/proc/self/smaps", "r"), *out = count > 2 ? fopen(words[2], "w") : stdout;
    char line[512];
    uint64_t start = 0, end = 0, resident = 0, by_pmd = 0, kib;
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) { if (start < 1ul << 63) look(start, end); }
        else if (sscanf(line, "Anonymous: %lu kB", &kib) == 1) resident += kib << 10;
        else if (sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) by_pmd += kib << 10;
    }
    fprintf(out, "looked anonymous %lu\nlooked by_pmd %lu\n", resident, by_pmd);
    for (int size = 0; size < 64; size++) {
        if (anonymous[size]) fprintf(out, "looked folio %lu %lu\n", 1ul << size, anonymous[size]);
        if (pool[size]) fprintf(out, "looked pool %lu %lu\n", 1ul << size, pool[size]);
    }
    if (out != stdout && fclose(out)) return 1;
    return count > 4 ? hold(memory, words[4]) : 0;
}
