// The first access to a page is a load followed by a store, a store, or one instruction that loads and stores.
#include <stddef.h>
#include <sys/mman.h>

#define PAGE 4096
#define PAGES 256

/* Maps new memory, and executes code for each of its pages, with the address of the page in %0. */
#define EACH_PAGE(code)                                                                                              \
    do {                                                                                                             \
        char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);         \
        if (memory == MAP_FAILED)                                                                                    \
            return 1;                                                                                                \
        for (char *page = memory; page != memory + PAGES * PAGE; page += PAGE)                                       \
            asm volatile(code : : "r"(page) : "rax", "rdx", "memory", "cc");                                         \
    } while (0)

int main(void) {
    EACH_PAGE("mov (%0), %%rax; mov %%rax, 8(%0)");
    EACH_PAGE("mov %%rax, (%0); mov (%0), %%rax");
    EACH_PAGE("addq $1, (%0)");
    EACH_PAGE("mov (%0), %%rax; addq $1, (%0)");
    EACH_PAGE("shll $3, (%0)");
    EACH_PAGE("btsl $3, (%0)");
    EACH_PAGE("lock incq (%0)");
    EACH_PAGE("xchg %%rax, (%0)");
    EACH_PAGE("xadd %%rax, (%0)");
    EACH_PAGE("cmpxchg %%rdx, (%0)");
    return 0;
}
