// Maps memory with hardly any stack left, and checks that all registers, the flags and the red zone are preserved.
#include "torture.h"

#if defined __x86_64__
enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS, ZONE, ZONE_END, STACK, WORDS };
uint64_t in[WORDS], out[WORDS], old_stack;
// Loads all registers from `in`, including the stack pointer; makes the call; stores all registers to `out`, with
// the ends of the red zone.
asm(".text\n.balign 64\n.globl whole, whole_behind\n"
    "whole: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "pushq in+120(%rip)\n popfq\n mov %rsp, old_stack(%rip)\n mov in+144(%rip), %rsp\n"
    "mov in+128(%rip), %rax\n mov %rax, -8(%rsp)\n mov in+136(%rip), %rax\n mov %rax, -128(%rsp)\n"
    "mov in+8(%rip), %rbx\n mov in+16(%rip), %rcx\n mov in+24(%rip), %rdx\n mov in+32(%rip), %rsi\n"
    "mov in+40(%rip), %rdi\n mov in+48(%rip), %rbp\n mov in+56(%rip), %r8\n mov in+64(%rip), %r9\n"
    "mov in+72(%rip), %r10\n mov in+80(%rip), %r11\n mov in+88(%rip), %r12\n mov in+96(%rip), %r13\n"
    "mov in+104(%rip), %r14\n mov in+112(%rip), %r15\n mov $9, %eax\n"
    "syscall\n"
    "whole_behind: mov %rax, out(%rip)\n mov %rbx, out+8(%rip)\n mov %rcx, out+16(%rip)\n mov %rdx, out+24(%rip)\n"
    "mov %rsi, out+32(%rip)\n mov %rdi, out+40(%rip)\n mov %rbp, out+48(%rip)\n mov %r8, out+56(%rip)\n"
    "mov %r9, out+64(%rip)\n mov %r10, out+72(%rip)\n mov %r11, out+80(%rip)\n mov %r12, out+88(%rip)\n"
    "mov %r13, out+96(%rip)\n mov %r14, out+104(%rip)\n mov %r15, out+112(%rip)\n"
    "mov -8(%rsp), %rax\n mov %rax, out+128(%rip)\n mov -128(%rsp), %rax\n mov %rax, out+136(%rip)\n"
    "mov %rsp, out+144(%rip)\n mov old_stack(%rip), %rsp\n pushfq\n popq out+120(%rip)\n cld\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
void whole(void);
extern unsigned char whole_behind[];

static void compare(char *stack, size_t bytes, uint64_t flags) {
    enum { CF = 1, PF = 4, ZF = 0x40, SF = 0x80, DF = 0x400, OF = 0x800, ALWAYS = 0x202 };
    static const int patterns[] = {0, CF, ZF, SF | OF, CF | PF | ZF | SF | DF | OF};
    for (int i = 0; i < WORDS; i++) in[i] = 0x0123456789abcdef * (i + 3);
    in[RDI] = 0, in[RSI] = bytes, in[RDX] = 3, in[R10] = flags, in[R8] = 0xfedcba98ffffffff, in[R9] = 0;
    in[FLAGS] = ALWAYS | patterns[bytes / 4096 % 5];
    in[STACK] = (uint64_t)stack;
    whole();
    for (int i = 0; i < WORDS; i++)
        if (i != RAX && i != RCX && i != R11 && in[i] != out[i]) wrong("a register, the flags or the red zone");
    if (out[RCX] != (uint64_t)whole_behind || out[R11] != in[FLAGS]) wrong("rcx or r11");
    if ((int64_t)out[RAX] < 0 && (int64_t)out[RAX] != -ENOMEM) wrong("the result");
    if ((int64_t)out[RAX] > 0) munmap((void *)out[RAX], bytes);
}
static void maps(char *stack, int times) {
    uint64_t plain = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t all[] = {plain, plain | MAP_NORESERVE, plain | MAP_POPULATE, plain | MAP_STACK, MAP_SHARED | MAP_ANONYMOUS};
    for (int i = 0; i < times; i++) {
        compare(stack, LARGE + 4096 * (i % 7), all[i % 5]);
        compare(stack, 4096 * (1 + i % 7), plain);
        compare(stack, 1ull << 62, plain); // larger than the address space
    }
}
#elif defined __aarch64__
static void maps(char *stack, int times) {
    for (int i = 0; i < times; i++) {
        register long number asm("x8") = SYS_mmap, x0 asm("x0") = 0, x1 asm("x1") = LARGE, x2 asm("x2") = 3;
        register long x3 asm("x3") = MAP_PRIVATE | MAP_ANONYMOUS, x4 asm("x4") = -1, x5 asm("x5") = 0;
        asm volatile("mov x9, sp\n mov sp, %7\n svc 0\n mov sp, x9"
                     : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(number), "r"(stack) : "x9", "memory");
        if (x0 < 0) wrong("the result");
        munmap((void *)x0, LARGE);
    }
}
#elif defined __riscv
static void maps(char *stack, int times) {
    for (int i = 0; i < times; i++) {
        register long number asm("a7") = SYS_mmap, a0 asm("a0") = 0, a1 asm("a1") = LARGE, a2 asm("a2") = 3;
        register long a3 asm("a3") = MAP_PRIVATE | MAP_ANONYMOUS, a4 asm("a4") = -1, a5 asm("a5") = 0;
        asm volatile("mv t0, sp\n mv sp, %7\n ecall\n mv sp, t0"
                     : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(number), "r"(stack) : "t0", "memory");
        if (a0 < 0) wrong("the result");
        munmap((void *)a0, LARGE);
    }
}
#endif

int main(int argc, char **argv) {
    int size = argc > 1 ? atoi(argv[1]) : 1;
    size_t page = sysconf(_SC_PAGESIZE);
    // One page between two inaccessible ones. 144 bytes of it are left, sixteen more than the red zone.
    char *guarded = map(3 * page, PROT_NONE);
    if (mprotect(guarded + page, page, PROT_READ | PROT_WRITE)) wrong("mprotect");
    char *stack = guarded + page + 144;
    maps(stack, 100 * size);
    printf("%d rounds on 144 bytes of stack\n", 100 * size);
    return 0;
}
