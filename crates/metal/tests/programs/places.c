// Maps often at one place, which the tracer then gives a jump, and does what could go wrong with that.
//
//   places HOW [FILE]
//
// Prints "HOW: ok" when the program noticed nothing. x86-64 only.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "own_filter.h"

enum { LARGE = 2 << 20, OFTEN = 200 };
enum { PLAIN = MAP_PRIVATE | MAP_ANONYMOUS };

static void fail(const char *what) {
    printf("WRONG: %s\n", what);
    fflush(stdout);
    _exit(9);
}

// ---- places ----

// The ordinary place, as glibc and Go have it. `place_call` can be jumped to.
asm(".text\n.balign 64\n.globl place, place_call, place_direct, crooked, crooked_call\n"
    "place: mov %rcx, %r10\n mov $9, %eax\n"
    "place_call: syscall\n ret\n"
    // To the same call past the place.
    "place_direct: mov %rcx, %r10\n mov $9, %eax\n nop\n jmp place_call\n"
    // Five bytes that look like a place, and are the end of `movl $9, -0x48(%rsp)`.
    "crooked: mov %rcx, %r10\n xor %eax, %eax\n add $9, %al\n .byte 0xc7, 0x44, 0x24, 0xb8, 9, 0, 0, 0\n"
    "crooked_call: syscall\n ret\n");
void *place(void *, size_t, int, int, int, off_t);
void *place_direct(void *, size_t, int, int, int, off_t);
void *crooked(void *, size_t, int, int, int, off_t);
extern unsigned char place_call[], crooked_call[];

typedef void *mapper(void *, size_t, int, int, int, off_t);
static const unsigned char move[5] = {0xb8, 9, 0, 0, 0};

static int has_jump(unsigned char *call) { return call[-5] == 0xe9; }
static int is_untouched(unsigned char *call) { return !memcmp(call - 5, move, 5) && call[0] == 0x0f && call[1] == 5; }
static unsigned char *stub_of(unsigned char *call) {
    int32_t distance;
    memcpy(&distance, call - 4, 4);
    return call + distance;
}

// In pieces that are too small to be looked at before they go: only mmap is to stop here.
static void unmap(char *p, size_t bytes) {
    enum { PIECE = 512 << 10 };
    for (size_t at = 0; at < bytes; at += PIECE)
        if (munmap(p + at, bytes - at < PIECE ? bytes - at : PIECE)) fail("munmap");
}
static unsigned uses;
static void use(mapper *map, size_t bytes, int flags) {
    char *p = map(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if ((intptr_t)p < 0) fail("mmap");
    if (__atomic_add_fetch(&uses, 1, __ATOMIC_RELAXED) % 16 == 0) {
        if (p[0] || p[bytes - 1]) fail("fresh memory is not zero");
        p[0] = p[bytes - 1] = 1;
    }
    unmap(p, bytes);
}
static void often(mapper *map) {
    for (int i = 0; i < OFTEN; i++) use(map, LARGE + 4096 * (i % 3), PLAIN);
}
// Each stop is a switch to the tracer.
static long stops(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}
static int is_quiet(mapper *map) {
    long before = stops();
    often(map);
    return stops() - before < OFTEN / 4;
}
static void begin(void) {
    often(place);
    if (!has_jump(place_call)) fail("the place has no jump");
    if (!is_quiet(place)) fail("the place still stops");
}

// ---- what the program sees ----

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS, ZONE, ZONE_END, WORDS };
uint64_t in[WORDS], out[WORDS];
// All registers from `in`, the call, all registers to `out`; the red zone's ends, too.
asm(".text\n.balign 64\n.globl whole, whole_call, whole_behind\n"
    "whole: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "pushq in+120(%rip)\n popfq\n"
    "mov in+128(%rip), %rax\n mov %rax, -8(%rsp)\n mov in+136(%rip), %rax\n mov %rax, -128(%rsp)\n"
    "mov in+8(%rip), %rbx\n mov in+16(%rip), %rcx\n mov in+24(%rip), %rdx\n mov in+32(%rip), %rsi\n"
    "mov in+40(%rip), %rdi\n mov in+48(%rip), %rbp\n mov in+56(%rip), %r8\n mov in+64(%rip), %r9\n"
    "mov in+72(%rip), %r10\n mov in+80(%rip), %r11\n mov in+88(%rip), %r12\n mov in+96(%rip), %r13\n"
    "mov in+104(%rip), %r14\n mov in+112(%rip), %r15\n mov $9, %eax\n"
    "whole_call: syscall\n"
    "whole_behind: mov %rax, out(%rip)\n mov %rbx, out+8(%rip)\n mov %rcx, out+16(%rip)\n mov %rdx, out+24(%rip)\n"
    "mov %rsi, out+32(%rip)\n mov %rdi, out+40(%rip)\n mov %rbp, out+48(%rip)\n mov %r8, out+56(%rip)\n"
    "mov %r9, out+64(%rip)\n mov %r10, out+72(%rip)\n mov %r11, out+80(%rip)\n mov %r12, out+88(%rip)\n"
    "mov %r13, out+96(%rip)\n mov %r14, out+104(%rip)\n mov %r15, out+112(%rip)\n"
    "mov -8(%rsp), %rax\n mov %rax, out+128(%rip)\n mov -128(%rsp), %rax\n mov %rax, out+136(%rip)\n"
    "pushfq\n popq out+120(%rip)\n cld\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
void whole(void);
extern unsigned char whole_call[], whole_behind[];

static void compare(size_t bytes, int flags) {
    enum { CF = 1, PF = 4, ZF = 0x40, SF = 0x80, DF = 0x400, OF = 0x800, ALWAYS = 0x202 };
    static const int patterns[] = {0, CF, ZF, SF | OF, CF | PF | ZF | SF | DF | OF};
    for (int i = 0; i < WORDS; i++) in[i] = 0x0123456789abcdef * (i + 3);
    in[RDI] = 0, in[RSI] = bytes, in[RDX] = 3, in[R10] = flags, in[R8] = 0xfedcba98ffffffff, in[R9] = 0;
    in[FLAGS] = ALWAYS | patterns[bytes / 4096 % 5];
    whole();
    for (int i = 0; i < WORDS; i++)
        if (i != RAX && i != RCX && i != R11 && in[i] != out[i]) fail("a register, the flags or the red zone");
    if (out[RCX] != (uint64_t)whole_behind || out[R11] != in[FLAGS]) fail("rcx or r11");
    if ((int64_t)out[RAX] < 0 && (int64_t)out[RAX] != -12) fail("the result");
    if ((int64_t)out[RAX] > 0) unmap((void *)out[RAX], bytes);
}

static void registers(void) {
    int all[] = {PLAIN, PLAIN | MAP_NORESERVE, PLAIN | MAP_POPULATE, PLAIN | MAP_STACK, MAP_SHARED | MAP_ANONYMOUS};
    for (int i = 0; i < OFTEN; i++) compare(LARGE + 4096 * (i % 7), PLAIN);
    if (!has_jump(whole_call)) fail("the place has no jump");
    for (int i = 0; i < 100; i++) {
        compare(LARGE + 4096 * (i % 7), all[i % 5]);
        compare(4096 * (1 + i % 7), PLAIN);
        compare(1ull << 62, PLAIN); // there is no such room: an error
    }
}

static void other_arguments(void) {
    begin();
    int flags[] = {PLAIN | MAP_POPULATE, PLAIN | MAP_STACK, PLAIN | MAP_NORESERVE, MAP_SHARED | MAP_ANONYMOUS};
    for (int i = 0; i < 40; i++) use(place, LARGE, flags[i % 4]);
    char *p = place(0, 4 * LARGE, PROT_NONE, PLAIN, -1, 0);
    if (place(p + LARGE, LARGE, 3, PLAIN | MAP_FIXED, -1, 0) != p + LARGE) fail("MAP_FIXED");
    p[LARGE] = 1;
    int file = memfd_create("file", 0);
    if (ftruncate(file, LARGE)) fail("ftruncate");
    char *q = place(0, LARGE, 3, MAP_SHARED, file, 0);
    if ((intptr_t)q < 0) fail("a file");
    q[1] = 7;
    char byte = 0;
    if (pread(file, &byte, 1, 1) != 1 || byte != 7) fail("what was written to a file");
    if ((intptr_t)place(0, LARGE, 3, MAP_PRIVATE, -1, 0) != -9) fail("EBADF");
    often(place_direct);
    if (is_quiet(place_direct) || !is_quiet(place)) fail("the call by itself");
}

static void resident(void) {
    begin();
    for (int i = 0; i < 8; i++) {
        char *p = place(0, 2 * LARGE, 3, PLAIN, -1, 0);
        memset(p, 1, 2 * LARGE);
    }
}

static void not_a_place(void) {
    often(crooked);
    often(crooked);
    if (!is_untouched(crooked_call) || is_quiet(crooked)) fail("an instruction was cut");
    often(place_direct);
    if (!is_untouched(place_call)) fail("a jump where nobody comes by");
}

// ---- processes and threads ----

static void copies(void) {
    begin();
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) {
            if (!has_jump(place_call) || !is_quiet(place)) _exit(1);
            registers();
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) fail("a copy");
    }
    pid_t child = vfork();
    if (!child) {
        use(place, LARGE, PLAIN);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status || !is_quiet(place)) fail("a borrower");
}

static void *many(void *arg) {
    (void)arg;
    for (int i = 0; i < 10; i++) often(place);
    return 0;
}
static void *alone(void *arg) {
    if (!is_quiet(place)) fail("a thread's calls stop");
    return arg;
}
static void run_threads(int count, void *work(void *)) {
    pthread_t threads[4];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
}
static void threads(void) {
    begin();
    run_threads(4, many);
    run_threads(1, alone);
}
static volatile int over;
static void *wait_until_over(void *arg) {
    while (!over) usleep(100);
    return arg;
}
// Beside another thread no text is written.
static void beside(void) {
    pthread_t other;
    pthread_create(&other, 0, wait_until_over, 0);
    often(place);
    if (!is_untouched(place_call)) fail("text was written beside another thread");
    over = 1;
    pthread_join(other, 0);
    begin();
}

// ---- signals ----

static volatile int ticks, depth, deepest;
// Handlers interrupt each other, as far as the stack allows.
static void tick(int number) {
    (void)number;
    ticks++;
    if (depth >= 8) return;
    if (++depth > deepest) deepest = depth;
    for (int i = 0; i < 3; i++) use(place, LARGE, PLAIN);
    depth--;
}
static void interrupts(void) {
    begin();
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_NODEFER};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often_us = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often_us, 0);
    for (int i = 0; i < 1000 && ticks < 400; i++) registers();
    setitimer(ITIMER_REAL, &never, 0);
    if (ticks < 20) fail("no signals came");
}

static volatile int traps;
static void trap(int number) {
    (void)number;
    traps++;
}
static void traps_of_its_own(void) {
    struct sigaction action = {.sa_handler = trap};
    sigaction(SIGTRAP, &action, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    sigprocmask(SIG_BLOCK, &set, 0);
    often(place);
    if (!is_untouched(place_call)) fail("a breakpoint under a blocked signal");
    raise(SIGTRAP);
    if (traps) fail("the signal is no longer blocked");
    sigprocmask(SIG_UNBLOCK, &set, 0);
    asm volatile("int3");
    for (int i = 0; i < OFTEN; i++) compare(LARGE, PLAIN);
    if (!has_jump(whole_call) || traps != 2) fail("a program that catches SIGTRAP");
}

// ---- filters ----

static void filter(void) {
    begin();
    if (install(SYS_madvise, SECCOMP_RET_KILL_PROCESS, 0)) fail("seccomp");
    if (!is_untouched(place_call)) fail("the text was not put back");
    often(place);
    pid_t child = fork();
    for (int i = 0; i < OFTEN; i++) compare(LARGE, PLAIN);
    if (!is_untouched(whole_call)) fail("a jump under a filter");
    if (!child) _exit(0);
    int status;
    waitpid(child, &status, 0);
    if (status) fail("a copy under a filter");
}
static volatile int installed;
static void *map_after_filter(void *arg) {
    while (!installed) usleep(100);
    often(place);
    return arg;
}
static void filter_of_threads(void) {
    begin();
    pthread_t other;
    pthread_create(&other, 0, map_after_filter, 0);
    if (install(SYS_madvise, SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC)) fail("seccomp");
    installed = 1;
    often(place);
    pthread_join(other, 0);
    if (is_quiet(place)) fail("the place does not stop under a filter");
}

static volatile int dispatched;
static void on_dispatch(int number) {
    (void)number;
    dispatched++;
}
static char selector; // SYSCALL_DISPATCH_FILTER_ALLOW
static void dispatch(void) {
    begin();
    struct sigaction action = {.sa_handler = on_dispatch};
    sigaction(SIGSYS, &action, 0);
    // Calls from everywhere above the beginning of this program's text are its own.
    unsigned long from = (unsigned long)place & ~0xfffUL, bytes = ~0UL / 2 - from;
    if ((unsigned long)stub_of(place_call) >= from) fail("the stub is among the text");
    enum { SET_DISPATCH = 59, ON = 1 };
    if (prctl(SET_DISPATCH, ON, from, bytes, &selector)) {
        printf("dispatch: ok\n"); // a kernel without it
        return;
    }
    selector = 1; // SYSCALL_DISPATCH_FILTER_BLOCK
    for (int i = 0; i < OFTEN; i++) place(0, LARGE, 3, PLAIN, -1, 0);
    selector = 0;
    if (dispatched) fail("a call from elsewhere");
}

// ---- the stub and the text go away ----

static void hole(void) {
    begin();
    unsigned char *stub = stub_of(place_call);
    if (munmap(stub, 4096)) fail("munmap of the stub");
    often(place);
    if (!is_untouched(place_call)) fail("the text was not put back");
}
static void not_executable(void) {
    begin();
    if (mprotect(stub_of(place_call), 4096, PROT_READ)) fail("mprotect of the stub");
    often(place);
    if (!is_untouched(place_call)) fail("the text was not put back");
}
static void hole_beside(void) {
    begin();
    pthread_t other;
    pthread_create(&other, 0, wait_until_over, 0);
    if (munmap(stub_of(place_call), 4096)) fail("munmap of the stub");
    often(place);
    if (!has_jump(place_call)) fail("text was written beside another thread");
    over = 1;
    pthread_join(other, 0);
    often(place);
    if (!is_untouched(place_call)) fail("the text was not put back");
}

static mapper *library(void *at, int file) {
    unsigned char *text = mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | (at ? MAP_FIXED : 0), file, 0);
    if (text == MAP_FAILED) fail("a library");
    return (mapper *)text;
}
static void libraries(void) {
    unsigned char page[4096];
    int one = memfd_create("one", 0), other = memfd_create("other", 0);
    memset(page, 0x90, sizeof page);
    memcpy(page + 4000, (void *)place, 32);
    if (write(one, page, sizeof page) != sizeof page) fail("a file");
    memset(page, 0x90, sizeof page);
    memcpy(page + 2000, (void *)crooked, 32);
    memcpy(page + 3000, (void *)place, 32);
    if (write(other, page, sizeof page) != sizeof page) fail("a file");
    mapper *map = library(0, one);
    size_t call = (size_t)(place_call - (unsigned char *)place);
    unsigned char *first = (unsigned char *)map + 4000 + call, *second = (unsigned char *)map + 3000 + call;
    for (int i = 0; i < 3; i++) {
        often(map);
        if (!has_jump(first) || !is_quiet(map)) fail("a library's place");
        munmap((void *)map, 4096);
        if (library((void *)map, other) != map) fail("another library");
        often(map);
        often(map);
        if (!is_untouched(second)) fail("a place past a lookalike");
        munmap((void *)map, 4096);
        if (library((void *)map, one) != map || !is_untouched(first)) fail("the first library again");
    }
    if (install(SYS_getppid, SECCOMP_RET_KILL_PROCESS, 0)) fail("seccomp");
    often(map);
}

// Bytes of large leaves in the mapping at an address, of shared memory and of files.
static long large_leaf_kib(void *at) {
    char line[512];
    unsigned long start, end;
    long kib = 0, sum = 0, inside = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) inside = start <= (unsigned long)at && (unsigned long)at < end;
        if (inside && (sscanf(line, "ShmemPmdMapped: %ld", &kib) == 1 || sscanf(line, "FilePmdMapped: %ld", &kib) == 1))
            sum += kib;
    }
    if (smaps) fclose(smaps);
    return sum;
}
// Text in a large leaf, from a file system that has such.
static void large_text(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0700);
    if (file < 0 || ftruncate(file, 2 * LARGE)) fail("a file");
    for (size_t at = 0; at < 2 * LARGE; at += 4096)
        if (pwrite(file, (void *)place, 32, at) != 32) fail("a file");
    char *room = mmap(0, 4 * LARGE, PROT_NONE, PLAIN, -1, 0);
    char *aligned = (char *)(((uintptr_t)room + LARGE - 1) & -(uintptr_t)LARGE);
    char *text = mmap(aligned, 2 * LARGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
    if (text != aligned) fail("the text");
    use((mapper *)text, LARGE, PLAIN);
    long before = large_leaf_kib(text);
    if (before == 0) {
        printf("large-text: no large leaf\n");
        return;
    }
    often((mapper *)text);
    if (!is_untouched((unsigned char *)text + (place_call - (unsigned char *)place))) fail("text in a large leaf");
    if (large_leaf_kib(text) != before) fail("a leaf was split");
    printf("large-text: ok\n");
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    static const struct { const char *how; void (*run)(void); } all[] = {
        {"registers", registers}, {"arguments", other_arguments}, {"resident", resident}, {"lookalike", not_a_place},
        {"copies", copies}, {"threads", threads}, {"beside", beside}, {"interrupts", interrupts},
        {"traps", traps_of_its_own}, {"filter", filter}, {"filter-threads", filter_of_threads}, {"dispatch", dispatch},
        {"hole", hole}, {"not-executable", not_executable}, {"hole-beside", hole_beside}, {"libraries", libraries},
    };
    if (!strcmp(how, "large-text") && argc > 2) {
        large_text(argv[2]);
        return 0;
    }
    if (!strcmp(how, "exec")) {
        begin();
        execl("/proc/self/exe", argv[0], "registers", (char *)0);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(how, all[i].how)) {
            all[i].run();
            printf("%s: ok\n", how);
            return 0;
        }
    return 2;
}
