/* Touches four pages in a known order and exits, without a library and without a stack. The expected accesses, in this order: two
   stores and a load of page 0, a hundred loads of page 1, a store to page 2, a load of page 1, a load and a store of
   page 3. */
typedef unsigned long word;

static volatile word area[4][512] __attribute__((aligned(4096)));

__attribute__((noreturn)) static void leave(word status)
{
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(231), "D"(status) : "rcx", "r11");
#elif defined(__aarch64__)
    register word number __asm__("x8") = 94, first __asm__("x0") = status;
    __asm__ volatile("svc 0" : : "r"(number), "r"(first));
#elif defined(__riscv)
    register word number __asm__("a7") = 94, first __asm__("a0") = status;
    __asm__ volatile("ecall" : : "r"(number), "r"(first));
#endif
    __builtin_unreachable();
}

void _start(void)
{
    area[0][0] = 1;
    area[0][1] = 2;
    word sum = area[0][0];
#pragma GCC unroll 1
    for (word index = 0; index < 100; index++)
        sum += area[1][index];
    area[2][5] = sum;
    sum += area[1][0];
    sum += area[3][511];
    area[3][0] = sum;
    leave(sum + 41);
}
