// Prints the effective and the real user id, and whether it has a privilege of root.
#include <stdio.h>
#include <unistd.h>
int main(void) {
    printf("user %d for %d\n", (int)geteuid(), (int)getuid());
    return 0;
}
