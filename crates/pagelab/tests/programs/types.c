// Inserts a command line into the input of every terminal that it has open, as if the user had typed it (TIOCSTI).
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(int count, char **words) {
    int fds[] = {0, 1, 2, open("/dev/tty", O_RDWR)};
    for (int i = 3; i < 20; i++) {
        if (isatty(i) && fds[3] != i)
            printf("terminal %d is open\n", i);
    }
    for (int i = 0; i < 4; i++) {
        int typed = count > 1;
        for (const char *at = words[count - 1]; typed && *at; at++)
            typed = ioctl(fds[i], TIOCSTI, at) == 0;
        if (typed && ioctl(fds[i], TIOCSTI, "\n") == 0)
            printf("typed\n");
    }
    return 0;
}
