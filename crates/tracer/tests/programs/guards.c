// Reads guard pages laid out as real programs do, and prints how many of them fault.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REGION = 2 << 20, REGIONS = 4 };
static sigjmp_buf fault;
static void on_fault(int number) { (void)number; siglongjmp(fault, 1); }
static int faults(volatile char *p) {
    if (sigsetjmp(fault, 1)) return 1;
    (void)*p;
    return 0;
}

static size_t page;

// A page at the end of each region is protected afterwards, as in QEMU up to 6.0.
static int protected_later(void) {
    char *all = mmap(0, REGION * REGIONS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int count = 0;
    for (int i = 1; i <= REGIONS; i++) mprotect(all + i * REGION - page, page, PROT_NONE);
    for (int i = 0; i < REGIONS; i++) memset(all + i * REGION, 1, REGION - page);
    for (int i = 1; i <= REGIONS; i++) count += faults(all + i * REGION - page);
    return count;
}

// All but a page at the end of each region is made accessible, as in QEMU since 6.1.
static int never_accessible(void) {
    char *all = mmap(0, REGION * REGIONS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int count = 0;
    for (int i = 0; i < REGIONS; i++) mprotect(all + i * REGION, REGION - page, PROT_READ | PROT_WRITE);
    for (int i = 0; i < REGIONS; i++) memset(all + i * REGION, 1, REGION - page);
    for (int i = 1; i <= REGIONS; i++) count += faults(all + i * REGION - page);
    return count;
}

// A page at the end of each region is mapped over, two of them after they were written.
static int mapped_over(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *all = mmap(0, REGION * REGIONS, PROT_READ | PROT_WRITE, flags, -1, 0);
    int count = 0;
    memset(all, 1, 2 * REGION);
    for (int i = 1; i <= REGIONS; i++) mmap(all + i * REGION - page, page, PROT_NONE, flags | MAP_FIXED, -1, 0);
    for (int i = 0; i < REGIONS; i++) memset(all + i * REGION, 1, REGION - page);
    for (int i = 1; i <= REGIONS; i++) {
        volatile char *guard = all + i * REGION - page;
        if (faults(guard)) count++;
        else if (*guard) count += 100; // fresh memory holds zeros
    }
    return count;
}

static void *below_the_stack(void *arg) {
    pthread_attr_t attributes;
    void *stack;
    size_t bytes, guard;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &bytes);
    pthread_attr_getguardsize(&attributes, &guard);
    *(int *)arg = faults((char *)stack - guard) || faults((char *)stack);
    return 0;
}

int main(void) {
    page = sysconf(_SC_PAGESIZE);
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    int first = protected_later(), second = never_accessible(), third = mapped_over(), fourth = 0;
    pthread_t thread;
    pthread_create(&thread, 0, below_the_stack, &fourth);
    pthread_join(thread, 0);
    printf("guards that fault: %d %d %d %d\n", first, second, third, fourth);
    return 0;
}
