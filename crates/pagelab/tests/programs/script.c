// An interpreter of short scripts of system calls and memory accesses, for x86-64 Linux. It uses no C library, so nothing else
// happens. `validation::script` makes the scripts. Each line is a letter with decimal numbers, in pages unless noted otherwise:
//
//   m SLOT PAGES PROT FLAGS        maps memory and assigns it to the slot. FLAGS: 0 private, 1 shared, else see map()
//   f SLOT OFFSET PAGES PROT FLAGS maps memory in place of a part of a slot
//   u SLOT OFFSET PAGES            munmap
//   r SLOT PAGES PAGES             mremap of the first PAGES of a slot to the second number of pages; it may move
//   p SLOT OFFSET PAGES PROT       mprotect
//   a SLOT OFFSET PAGES ADVICE     madvise
//   b PAGES                        brk to this number of pages after the start of the heap; slot 0 is the heap
//   l, s, x SLOT OFFSET PAGES STEP loads from, stores to, adds to the first word of each STEPth page
//   k SLOT OFFSET PAGES            the kernel stores to each page (pread of the program's first bytes)
//   { ... }                        a forked process executes it and exits; its parent waits
//
// It prints the sum of the loaded values. If a call fails, in it or in a forked process, it exits with code 9.
typedef unsigned long word;

enum { READ, WRITE, OPEN, MMAP = 9, MPROTECT, MUNMAP, BRK, PREAD = 17, MREMAP = 25, MADVISE = 28, FORK = 57, WAIT4 = 61, EXIT = 231 };
enum { PAGE = 4096, SLOTS = 64 };

static long call6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}
static long call(long number, long a, long b, long c) { return call6(number, a, b, c, 0, 0, 0); }

static char text[1 << 15];
static char *at = text;
static char *slots[SLOTS];
static word sum;

static void must(long result) {
    if (result < 0 && result > -4096) call(EXIT, 9, 0, 0);
}
static word number(void) {
    word value = 0;
    while (*at == ' ') at++;
    while (*at >= '0' && *at <= '9') value = value * 10 + (word)(*at++ - '0');
    return value;
}
static void say(void) {
    char digits[24];
    int have = sizeof digits;
    word rest = sum;
    digits[--have] = '\n';
    do digits[--have] = (char)('0' + rest % 10);
    while (rest /= 10);
    call(WRITE, 1, (long)(digits + have), (long)sizeof digits - have);
}
static long map(char *place, word pages, word protection, word flags) {
    // private, shared, MAP_NORESERVE, MAP_POPULATE, MAP_STACK
    static const int kinds[] = {0x22, 0x21, 0x4022, 0x8022, 0x20022};
    long result = call6(MMAP, (long)place, (long)(pages * PAGE), (long)protection, kinds[flags] | (place ? 0x10 : 0), -1, 0);
    must(result);
    return result;
}
static void touch(char kind, char *from, word pages, word step) {
    for (word page = 0; page < pages; page += step) {
        volatile word *place = (volatile word *)(from + page * PAGE);
        if (kind == 'l') sum = sum * 31 + *place;
        else if (kind == 's') *place = page + 7;
        else __sync_fetch_and_add(place, 3);
    }
}
// The position after the closing brace of the current block.
static void skip(void) {
    for (int depth = 1; depth; at++) depth += (*at == '{') - (*at == '}');
}

void begin(word *stack) {
    long file = call(OPEN, (long)stack[2], 0, 0), program = call(OPEN, (long)stack[1], 0, 0);
    must(file), must(program);
    must(call(READ, file, (long)text, sizeof text - 1));
    char *heap = (char *)call(BRK, 0, 0, 0);
    slots[0] = heap = (char *)(((word)heap + PAGE - 1) & -(word)PAGE);
    // A fork copies the page table of the vDSO's range, which QEMU 7.2 does not have. A written page in that range, which is not
    // merged with another mapping, makes both sides copy the table.
    *(volatile char *)map(0, 1, 7, 0) = 1;
    for (char op; (op = *at++);) {
        if (op == '\n' || op == ' ') continue;
        if (op == '}') break;
        if (op == '{') {
            long child = call(FORK, 0, 0, 0);
            must(child);
            if (!child) { sum = 0; continue; }
            int status = 0;
            must(call6(WAIT4, child, (long)&status, 0, 0, 0, 0));
            must(status ? -1 : 0);
            skip();
            continue;
        }
        word slot = number(), a = op == 'b' ? 0 : number(), b = op == 'b' ? 0 : number(), c = 0, d = 0;
        if (op == 'm' || op == 'f' || op == 'p' || op == 'a' || op == 'l' || op == 's' || op == 'x') c = number();
        if (op == 'f') d = number();
        char *place = slots[slot % SLOTS] + a * PAGE;
        switch (op) {
        case 'm': slots[slot % SLOTS] = (char *)map(0, a, b, c); break;
        case 'f': map(place, b, c, d); break;
        case 'u': must(call(MUNMAP, (long)place, (long)(b * PAGE), 0)); break;
        case 'r': {
            long moved = call6(MREMAP, (long)slots[slot % SLOTS], (long)(a * PAGE), (long)(b * PAGE), 1, 0, 0);
            must(moved);
            slots[slot % SLOTS] = (char *)moved;
            break;
        }
        case 'p': must(call(MPROTECT, (long)place, (long)(b * PAGE), (long)c)); break;
        case 'a': must(call(MADVISE, (long)place, (long)(b * PAGE), (long)c)); break;
        case 'b': if (call(BRK, (long)(heap + slot * PAGE), 0, 0) != (long)(heap + slot * PAGE)) call(EXIT, 9, 0, 0); break;
        case 'k':
            for (word page = 0; page < b; page++) must(call6(PREAD, program, (long)(place + page * PAGE), PAGE, 0, 0, 0));
            break;
        default: touch(op, place, b, c);
        }
    }
    say();
    call(EXIT, 0, 0, 0);
}

asm(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
