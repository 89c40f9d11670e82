/* The argument selects what a process passes to a program that it executes, or makes the program print what it finds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Prints the properties that the executed image finds. */
static int finds(int count, char **arguments)
{
    sigset_t blocked, pending;
    struct sigaction of_usr2, of_int;
    int variables = 0, own = 0;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    sigpending(&pending);
    sigaction(SIGUSR2, NULL, &of_usr2);
    sigaction(SIGINT, NULL, &of_int);
    for (char **variable = environ; *variable; variable++) {
        variables++;
        own += !strncmp(*variable, "PAGELAB", 7);
    }
    for (int index = 0; index < count; index++)
        printf("argument %d: %s\n", index, arguments[index]);
    printf("variables %d, A=%s, of pagelab %d\n", variables, getenv("A"), own);
    printf("USR1 blocked %d pending %d\n", sigismember(&blocked, SIGUSR1), sigismember(&pending, SIGUSR1));
    printf("TERM blocked %d pending %d\n", sigismember(&blocked, SIGTERM), sigismember(&pending, SIGTERM));
    printf("USR2 ignored %d, INT ignored %d\n", of_usr2.sa_handler == SIG_IGN, of_int.sa_handler == SIG_IGN);
    printf("descriptor 50: %d, 51: %d\n", fcntl(50, F_GETFD), fcntl(51, F_GETFD));
    printf("same process %d\n", atoi(getenv("PROCESS")) == getpid());
    return 21;
}

static void handler(int signal)
{
    (void)signal;
}

static char *list[] = { "called so", "finds", "", "two words", "commas,and=signs", NULL };

static int hands_over(const char *own)
{
    char process[32];
    char *variables[] = { "A=1=2", process, "EMPTY=", NULL };
    sigset_t usr1;
    snprintf(process, sizeof process, "PROCESS=%d", (int)getpid());
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    raise(SIGUSR1);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGINT, handler);
    dup2(1, 50);
    fcntl(dup2(1, 51), F_SETFD, FD_CLOEXEC);
    execve(own, list, variables);
    return errno;
}

/* Every call must fail as without a recorder. */
static int fails(void)
{
    char *none[] = { NULL }, *huge[] = { "x", NULL, NULL };
    huge[1] = malloc(1 << 20);
    memset(huge[1], 'x', (1 << 20) - 1);
    huge[1][(1 << 20) - 1] = 0;
    execve("/nowhere/program", list, none);
    printf("not there: %d\n", errno);
    execve("/", list, none);
    printf("directory: %d\n", errno);
    execve("/etc/passwd", list, none);
    printf("not executable: %d\n", errno);
    execve("", list, none);
    printf("no name: %d\n", errno);
    execve("/bin/true", huge, none);
    printf("too long: %d\n", errno);
    execve((char *)(unsigned long)getpid(), list, none);
    printf("no address: %d\n", errno);
    return 22;
}

static int acknowledged[2];

static void acknowledge(int signal)
{
    (void)signal;
    if (write(acknowledged[1], "", 1) != 1)
        _exit(1);
}

/* Every one of many signals is received while one failing execve follows the other. */
static int is_interrupted(void)
{
    enum { SIGNALS = 100 };
    char *none[] = { NULL }, byte;
    pid_t own = getpid(), child;
    if (pipe(acknowledged) || signal(SIGUSR2, acknowledge) == SIG_ERR)
        return 1;
    child = fork();
    if (child == 0) {
        for (int sent = 0; sent < SIGNALS; sent++) {
            kill(own, SIGUSR2);
            while (read(acknowledged[0], &byte, 1) != 1)
                ;
        }
        _exit(0);
    }
    while (waitpid(child, NULL, WNOHANG) == 0)
        execve("/nowhere/program", list, none);
    return 25;
}

static void *executes(void *own)
{
    char *arguments[] = { "of a thread", "ends", NULL };
    execv(own, arguments);
    return NULL;
}

/* A thread other than the first one executes a program while others run. */
static int of_thread(char *own)
{
    pthread_t thread;
    pthread_create(&thread, NULL, executes, own);
    for (;;)
        pause();
    return 0;
}

/* Executes one program after the other, and in a child too; each touches memory. */
static int chain(char *own, int left)
{
    char number[32];
    volatile char *touched = malloc(left << 20);
    for (int page = 0; page < left << 8; page++)
        touched[page * 4096] = 1;
    if (left == 1)
        return 23;
    pid_t child = vfork();
    if (child == 0) {
        execl(own, "child", "ends", (char *)NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    snprintf(number, sizeof number, "%d", left - 1);
    execl("/proc/self/exe", own, "chain", number, (char *)NULL);
    return 1;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "finds"))
        return finds(count, arguments);
    if (!strcmp(what, "hands over"))
        return hands_over(arguments[0]);
    if (!strcmp(what, "fails"))
        return fails();
    if (!strcmp(what, "is interrupted"))
        return is_interrupted();
    if (!strcmp(what, "of a thread"))
        return of_thread(arguments[0]);
    if (!strcmp(what, "chain"))
        return chain(arguments[0], atoi(arguments[2]));
    if (!strcmp(what, "executes"))
        return execv(arguments[2], arguments + 2) == -1 ? 9 : 0;
    return 24;
}
