// Changes the protection of a page back and forth, TIMES times: toggles TIMES
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    for (int times = argc > 1 ? atoi(argv[1]) : 1; times > 0; times--) {
        if (mprotect(page, 4096, PROT_READ) || mprotect(page, 4096, PROT_READ | PROT_WRITE)) return 1;
        page[0]++;
    }
    return 0;
}
