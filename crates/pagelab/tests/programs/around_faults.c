// Accesses at known distances from each other: with faults between them, across page boundaries, and by all forms of instructions.
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *memory;
static sigjmp_buf back;

static void faulted(int signal) {
    siglongjmp(back, signal);
}

/* Makes the page writable to which a store has failed. */
static void protected(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

/* The loads succeed. The store between them succeeds only the second time, and the last load comes after it. */
static void loads_and_a_store(char *at) {
    asm volatile("mov (%0), %%rax; mov 8(%0), %%rax; mov %%rax, 16(%0); addq $1, 24(%0); mov 32(%0), %%rax"
                 : : "r"(at) : "rax", "memory", "cc");
}

/* The accesses after the faulting division, or after the load from an unmapped address, are never executed. */
static void a_division(char *at, long by) {
    asm volatile("mov (%0), %%rax; xor %%edx, %%edx; idivq %1; mov 8(%0), %%rax; mov %%rax, 2048(%0)"
                 : : "r"(at), "r"(by) : "rax", "rdx", "memory", "cc");
}

static void from_nowhere(char *at, char *nowhere) {
    asm volatile("mov %%rax, (%0); mov (%1), %%rax; mov %%rax, 8(%0); mov 1024(%0), %%rax"
                 : : "r"(at), "r"(nowhere) : "rax", "memory");
}

static void all_forms(char *at, long index) {
    asm volatile("mov %%rax, (%0,%1,8); mov 8(%0,%1,8), %%eax; inc %1; mov %%al, (%0,%1,8); cmpq $1, (%0); cmove 8(%0), %%rax;"
                 "sete 7(%0); lock addq $1, (%0); xchg %%rax, 8(%0); push 16(%0); pop 24(%0); movups (%0), %%xmm0;"
                 "movups %%xmm0, 32(%0); movq %%xmm0, 48(%0); movss 52(%0), %%xmm0; lea 64(%0), %%rdi; mov %0, %%rsi;"
                 "mov $40, %%ecx; rep movsb; mov (%%rdi), %%rax; add $8, %%rdi; mov %%rax, (%%rdi); incl 4(%%rdi);"
                 "bts %1, (%0); shlq %%cl, 8(%0); btq $3, 8(%0); mulq (%0); negl 12(%0); xlatb"
                 : "+r"(at), "+r"(index) : "b"(at) : "rax", "rcx", "rdx", "rsi", "rdi", "xmm0", "memory", "cc");
}

static int order(const void *first, const void *second) {
    return *(const int *)first - *(const int *)second;
}

static int depth(int left, int *frame) {
    int own[3] = {left, *frame, 0};
    return left ? depth(left - 1, own) + own[0] : own[1];
}

int main(void) {
    memory = mmap(0, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static char alternate[1 << 16];
    sigaltstack(&(stack_t){.ss_sp = alternate, .ss_size = sizeof alternate}, 0);
    struct sigaction action = {.sa_sigaction = protected, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    for (int page = 0; page < 4; page++) {
        mprotect(memory, 4 * 4096, PROT_READ);
        /* Within a page, and across the end of one. */
        loads_and_a_store(memory + page * 4096 + 100);
        loads_and_a_store(memory + page * 4096 + 4096 - 20);
    }
    mprotect(memory, 4 * 4096, PROT_READ | PROT_WRITE);
    action = (struct sigaction){.sa_handler = faulted};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGFPE, &action, 0);
    if (!sigsetjmp(back, 1)) a_division(memory, 0);
    a_division(memory + 4096, 7);
    if (!sigsetjmp(back, 1)) from_nowhere(memory + 2 * 4096, (char *)8);
    from_nowhere(memory + 3 * 4096, memory);
    for (int at = 0; at < 3 * 4096; at += 101) all_forms(memory + at, at % 5);
    static int numbers[300];
    for (int i = 0; i < 300; i++) numbers[i] = i * 7919 % 301;
    qsort(numbers, 300, sizeof *numbers, order);
    printf("%d %d\n", numbers[0], depth(300, numbers));
    return 0;
}
