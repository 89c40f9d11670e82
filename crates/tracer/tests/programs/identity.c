// Prints the effective and the real user id.
#include <stdio.h>
#include <unistd.h>
int main(void) {
    printf("user %d for %d\n", (int)geteuid(), (int)getuid());
    return 0;
}
