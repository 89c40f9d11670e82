/* The argument selects: threads, a fork, the end by a signal, closing all descriptors, another program. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 64 };
static char *shared;

static void *touch(void *argument)
{
    for (int page = 0; page < PAGES; page++)
        ((volatile char *)shared)[page * 4096] = 1;
    return argument;
}

static pthread_barrier_t touched;

/* Touches memory until it is killed. */
static int goes_on(void)
{
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%lu\n", (unsigned long)shared);
    fflush(stdout);
    for (;;)
        touch(NULL);
    return 0;
}

static int threads(void)
{
    pthread_t thread[3];
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int index = 0; index < 3; index++)
        pthread_create(&thread[index], NULL, touch, NULL);
    for (int index = 0; index < 3; index++)
        pthread_join(thread[index], NULL);
    printf("%lu\n", (unsigned long)shared);
    return 0;
}

static void *call_on_and_on(void *argument)
{
    for (;;) {
        char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        own[0] = 1;
        munmap(own, 4096);
    }
    return argument;
}

/* Exits while other threads are in system calls. */
static int exits_among_calls(void)
{
    pthread_t thread;
    for (int index = 0; index < 4; index++)
        pthread_create(&thread, NULL, call_on_and_on, NULL);
    usleep(30000);
    exit(6);
}

/* A child whose first thread has exited continues while this process exits; it prints the address that it touches. */
static void *work_on(void *argument)
{
    usleep(1500000);
    touch(NULL);
    printf("%d %lu\n", (int)getpid(), (unsigned long)shared);
    fflush(stdout);
    exit(0);
    return argument;
}

static int leaves_a_thread(void)
{
    pthread_t thread;
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0) {
        pthread_create(&thread, NULL, work_on, NULL);
        pthread_exit(NULL);
    }
    usleep(500000);
    return 0;
}

/* A child touches and is killed, or waits until it is. */
static int child_is_killed(void)
{
    int status;
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        touch(NULL);
        for (;;)
            pause();
    }
    usleep(500000);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("%d %lu\n", (int)child, (unsigned long)shared);
    return 10 + WTERMSIG(status);
}

enum { MANY = 300, TOUCHED = 5000 };

/* Touches pages in a scattered order. */
static void *touch_anything(void *argument)
{
    unsigned long state = (unsigned long)argument;
    for (int count = 0; count < TOUCHED; count++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        ((volatile char *)shared)[(state >> 33) % PAGES * 4096] = 1;
    }
    pthread_barrier_wait(&touched);
    return argument;
}

/* Many threads at the same time; prints the peak of resident memory in KiB. */
static int many_threads(void)
{
    char line[256];
    pthread_t thread[MANY];
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_barrier_init(&touched, NULL, MANY + 1);
    for (long index = 0; index < MANY; index++)
        if (pthread_create(&thread[index], NULL, touch_anything, (void *)index))
            return 1;
    pthread_barrier_wait(&touched);
    for (int index = 0; index < MANY; index++)
        pthread_join(thread[index], NULL);
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6))
            printf("%ld\n", atol(line + 6));
    return 0;
}

static int forks(void)
{
    int status;
    if (!malloc(100))
        return 1;
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        touch(NULL);
        _exit(3);
    }
    waitpid(child, &status, 0);
    printf("%d %lu\n", (int)child, (unsigned long)shared);
    return 10 + WEXITSTATUS(status);
}

static int closes(void)
{
    shared = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long highest = sysconf(_SC_OPEN_MAX);
    for (int descriptor = 3; descriptor < highest && descriptor < 1 << 20; descriptor++)
        close(descriptor);
    close(2);
    touch(NULL);
    return 7;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "threads"))
        return threads();
    if (!strcmp(what, "goes on"))
        return goes_on();
    if (!strcmp(what, "forks"))
        return forks();
    if (!strcmp(what, "exits among calls"))
        return exits_among_calls();
    if (!strcmp(what, "many threads"))
        return many_threads();
    if (!strcmp(what, "leaves a thread"))
        return leaves_a_thread();
    if (!strcmp(what, "child is killed"))
        return child_is_killed();
    if (!strcmp(what, "closes"))
        return closes();
    if (!strcmp(what, "aborts"))
        abort();
    if (!strcmp(what, "killed"))
        raise(SIGKILL);
    if (!strcmp(what, "faults"))
        *(volatile int *)8 = 1;
    if (!strcmp(what, "execs"))
        execl("/bin/true", "true", (char *)NULL);
    if (!strcmp(what, "fails to exec"))
        return execl("/nowhere/program", "program", (char *)NULL) == -1 ? 9 : 0;
    if (!strcmp(what, "execs its argument"))
        return execl(arguments[2], arguments[2], (char *)NULL) == -1 ? 9 : 0;
    if (!strcmp(what, "waits")) {
        puts("ready");
        fflush(stdout);
        pause();
    }
    if (!strcmp(what, "echoes")) {
        int byte;
        while ((byte = getchar()) != EOF)
            putchar(byte);
        fputs("to standard error\n", stderr);
    }
    return 0;
}
