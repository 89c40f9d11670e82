// Grows its heap in small pieces to KIB KiB and touches each piece: grows KIB
#include <stdlib.h>
#include <string.h>

enum { PIECE = 3000 };

int main(int argc, char **argv) {
    size_t pieces = (argc > 1 ? strtoul(argv[1], 0, 10) : 65536) * 1024 / PIECE;
    for (size_t i = 0; i < pieces; i++) {
        char *piece = malloc(PIECE);
        if (!piece) return 1;
        memset(piece, 1, PIECE);
    }
    return 0;
}
