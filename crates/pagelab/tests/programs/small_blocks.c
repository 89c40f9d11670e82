/* A heap of small blocks: 12M in pieces of 200 bytes, each of which is written. */
#include <stdlib.h>
#include <string.h>

int main(void) {
    for (int i = 0; i < 60000; i++) {
        memset(malloc(200), 1, 200);
    }
    return 0;
}
