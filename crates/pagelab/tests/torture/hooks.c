// A program that hooks its own calls, as sanitizers, profilers and hot patching do. Its text must not be changed by others, no
// executable memory may appear that it did not map, and its hook must be called each time.
#include "torture.h"

static unsigned long sum_of(const unsigned char *text, size_t bytes) {
    unsigned long sum = 0;
    for (size_t i = 0; i < bytes; i++) sum = sum * 31 + text[i];
    return sum;
}
static int executable_mappings(void) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        char *space = strchr(line, ' ');
        count += space && space[3] == 'x';
    }
    if (maps) fclose(maps);
    return count;
}
static volatile int hooked;
static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    hooked++;
}

int main(int argc, char **argv) {
    int size = argc > 1 ? atoi(argv[1]) : 1, times = 200 * size;
    unsigned char *text = (unsigned char *)mmap;
    int before = executable_mappings();
    unsigned long sum = sum_of(text, 256);
    for (int i = 0; i < times; i++) munmap(map(LARGE + 4096 * (i % 3), PROT_READ | PROT_WRITE), LARGE + 4096 * (i % 3));
    printf("text %s, %d new executable mappings\n", sum == sum_of(text, 256) ? "unchanged" : "CHANGED", executable_mappings() - before);
    // The hook: a breakpoint at the entry of mmap, in place of an instruction that does nothing or marks a branch target.
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGTRAP, &action, 0);
#if defined __x86_64__
    size_t page = sysconf(_SC_PAGESIZE);
    unsigned char *start = (unsigned char *)((uintptr_t)text & ~(page - 1));
    static const unsigned char mark[] = {0xf3, 0x0f, 0x1e, 0xfa}, trap[] = {0xcc, 0x0f, 0x1f, 0x00}; // endbr64; int3, nop
    if (memcmp(text, mark, sizeof mark) == 0) {
        if (mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC)) wrong("mprotect of its text");
        memcpy(text, trap, sizeof trap);
        if (mprotect(start, page, PROT_READ | PROT_EXEC)) wrong("mprotect of its text");
        for (int i = 0; i < times; i++) munmap(map(LARGE, PROT_READ | PROT_WRITE), LARGE);
        printf("hooked %d of %d\n", hooked, times);
        return 0;
    }
#endif
    for (int i = 0; i < times; i++) raise(SIGTRAP);
    printf("hooked %d of %d\n", hooked, times);
    return 0;
}
