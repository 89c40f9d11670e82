// Prints the effective and the real user, and whether it has a privilege of root's.
#include <stdio.h>
#include <unistd.h>
int main(void) {
    printf("user %d for %d\n", (int)geteuid(), (int)getuid());
    return 0;
}
