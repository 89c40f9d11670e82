// Programs that filter their own calls: an error, a signal, death, strict mode, threads together, and a supervisor.
#include "torture.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static int install(int number, unsigned action, unsigned flags) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static volatile sig_atomic_t traps;
static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    traps += info->si_syscall == SYS_madvise && info->si_code == 1;
}

static void maps_often(void) {
    for (int i = 0; i < 50; i++) {
        char *p = map(LARGE, PROT_READ | PROT_WRITE);
        p[LARGE - 1] = 1;
        munmap(p, LARGE);
    }
}

// The children exit with a code that encodes what they observed.
static int with_an_error(void) {
    install(SYS_madvise, SECCOMP_RET_ERRNO | EUSERS, 0);
    maps_often();
    return madvise(map(LARGE, PROT_READ), LARGE, MADV_NORMAL) == -1 && errno == EUSERS;
}
static int with_a_signal(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);
    install(SYS_madvise, SECCOMP_RET_TRAP, 0);
    maps_often();
    if (traps) return 100 + traps;
    syscall(SYS_madvise, map(LARGE, PROT_READ), LARGE, MADV_NORMAL);
    return traps;
}
static int with_death(void) {
    install(SYS_madvise, SECCOMP_RET_KILL_PROCESS, 0);
    maps_often();
    syscall(SYS_madvise, map(LARGE, PROT_READ), LARGE, MADV_NORMAL);
    return 99;
}
static int strictly(void) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    syscall(SYS_exit, 7);
    return 98;
}
static int strictly_to_death(void) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    syscall(SYS_getpid);
    return 97;
}
static void *maps_in_a_thread(void *go) {
    while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE)) usleep(100);
    maps_often();
    errno = 0;
    syscall(SYS_getppid);
    return (void *)(intptr_t)errno;
}
static int with_threads(void) {
    int go = 0;
    pthread_t thread;
    pthread_create(&thread, 0, maps_in_a_thread, &go);
    long done = install(SYS_getppid, SECCOMP_RET_ERRNO | EXFULL, SECCOMP_FILTER_FLAG_TSYNC);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    void *seen;
    pthread_join(thread, &seen);
    return done == 0 && (intptr_t)seen == EXFULL;
}
// A supervisor in the same process answers getppid.
static void *answers(void *listener) {
    struct seccomp_notif call = {0};
    struct seccomp_notif_resp response = {0};
    if (ioctl((int)(intptr_t)listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) return 0;
    response.id = call.id;
    response.val = 77;
    ioctl((int)(intptr_t)listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    return 0;
}
static int with_a_supervisor(void) {
    int listener = install(SYS_getppid, SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    if (listener < 0) return 60 + errno;
    pthread_t thread;
    pthread_create(&thread, 0, answers, (void *)(intptr_t)listener);
    maps_often();
    long answer = syscall(SYS_getppid);
    pthread_join(thread, 0);
    return answer;
}
// A filter that requests a tracer. As far as the program can see, there is none.
static int with_a_tracer(void) {
    install(SYS_getppid, SECCOMP_RET_TRACE | 5, 0);
    maps_often();
    errno = 0;
    return syscall(SYS_getppid) == -1 && errno == ENOSYS;
}

int main(void) {
    struct { const char *name; int (*body)(void); } all[] = {
        {"error", with_an_error}, {"signal", with_a_signal}, {"death", with_death}, {"strict", strictly},
        {"strict, death", strictly_to_death}, {"threads", with_threads}, {"supervisor", with_a_supervisor},
        {"tracer", with_a_tracer},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) _exit(all[i].body());
        int status = status_of(child);
        // Strict mode kills with SIGKILL. If a filter emulates it, as under a tracer, it kills with SIGSYS.
        if (all[i].body == strictly_to_death) {
            printf("%s: %s\n", all[i].name, WIFSIGNALED(status) ? "killed" : "alive");
            continue;
        }
        printf("%s: %d %d\n", all[i].name, WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}
