/* A process with a virtual machine of KVM, memory of its own and memory that the guest could have:
   monitor OWN_MB huge|base GUEST_MB huge|base|shared. It prints a line when all is touched, and waits for its input. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KVM_CREATE_VM = 0xae01, HUGE = 2 << 20 };

static void touch(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
}

/* Memory of brk, so that it is no region of the guest. */
static void own(size_t bytes, const char *how) {
    char *start = sbrk(bytes + HUGE);
    char *memory = (char *)(((unsigned long)start + HUGE - 1) & -(unsigned long)HUGE);
    if (start == (void *)-1) abort();
    madvise(memory, bytes, strcmp(how, "huge") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    touch(memory, bytes);
}

static void guest(size_t bytes, const char *how) {
    int is_shared = !strcmp(how, "shared");
    int file = is_shared ? syscall(SYS_memfd_create, "guest", 0) : -1;
    if (is_shared && ftruncate(file, bytes)) abort();
    char *start = mmap(0, bytes + HUGE, PROT_READ | PROT_WRITE, is_shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
    if (start == MAP_FAILED) abort();
    char *memory = is_shared ? start : (char *)(((unsigned long)start + HUGE - 1) & -(unsigned long)HUGE);
    madvise(memory, bytes, strcmp(how, "huge") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    touch(memory, bytes);
}

int main(int count, char **words) {
    int kvm = open("/dev/kvm", O_RDWR);
    if (count != 5 || kvm < 0 || ioctl(kvm, KVM_CREATE_VM, 0) < 0) return 1;
    own((size_t)atoi(words[1]) << 20, words[2]);
    guest((size_t)atoi(words[3]) << 20, words[4]);
    puts("touched");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
