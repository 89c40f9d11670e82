// Touches 8M of memory and frees it by one call: removal HOW
// Private memory: munmap, mmap, mremap, mremap_fixed, brk, dontneed, dontneed_locked, free, guard, process_madvise, shmat, execve,
// execveat. Shared memory or pages of a file, next to 1M of private memory that stays: shmdt, remove, pageout, remap_file_pages,
// truncate, ftruncate, fallocate. Ways that are not watched: io_uring, killed. The exit code is 3 if the kernel lacks
// the call.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (8ul << 20)
#define HALF (BYTES / 2)

static int checked(int failed) {
    if (failed) _exit(errno == EINVAL || errno == ENOSYS || errno == EBADF || errno == EPERM ? 3 : 2);
    return 0;
}

static char *touched(void *p) {
    checked(p == MAP_FAILED);
    for (size_t i = 0; i < BYTES; i += 4096) ((volatile char *)p)[i] = 1;
    return p;
}

static char *map(void *where, int flags, int file) {
    return mmap(where, BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
}

static char *private(void) { return touched(map(0, MAP_PRIVATE | MAP_ANONYMOUS, -1)); }

static int file(void) {
    int fd = memfd_create("removal", 0);
    checked(fd < 0 || ftruncate(fd, BYTES));
    return fd;
}

static int advised(char *p, int how) { return madvise(p, BYTES, how); }

static int by_process(char *p) {
    struct iovec ranges[2] = {{p, HALF}, {p + HALF, HALF}};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    return syscall(SYS_process_madvise, self, ranges, 2, MADV_DONTNEED, 0) != (long)BYTES;
}

static int by_segment(char *p) {
    int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    int failed = shmat(segment, p, SHM_REMAP) == (void *)-1;
    shmctl(segment, IPC_RMID, 0);
    return failed;
}

// Attaches, touches and detaches a segment.
static int by_detaching(void) {
    int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    char *p = touched(shmat(segment, 0, 0));
    shmctl(segment, IPC_RMID, 0);
    return shmdt(p);
}

// One request in a ring: IORING_OP_MADVISE.
static int by_ring(char *p) {
    struct io_uring_params with = {0};
    int ring = syscall(SYS_io_uring_setup, 1, &with);
    checked(ring < 0);
    char *queue = mmap(0, with.sq_off.array + 4, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *request = mmap(0, sizeof *request, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    *request = (struct io_uring_sqe){.opcode = IORING_OP_MADVISE, .addr = (unsigned long)p, .len = BYTES, .fadvise_advice = MADV_DONTNEED};
    *(unsigned *)(queue + with.sq_off.array) = 0;
    *(unsigned *)(queue + with.sq_off.tail) = 1;
    unsigned char present;
    return syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1 || mincore(p, 4096, &present) || present & 1;
}

static int by_path(int fd) {
    char path[64] = "/proc/self/fd/";
    path[14] = '0' + fd % 10, path[15] = 0;
    return truncate(path, 0);
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    const char *how = argv[1];
#define IS(name) (!strcmp(how, name))
    if (IS("munmap")) return checked(munmap(private(), BYTES));
    if (IS("mmap")) return checked(map(private(), MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1) == MAP_FAILED);
    if (IS("mremap")) return checked(mremap(private(), BYTES, 4096, 0) == MAP_FAILED);
    if (IS("mremap_fixed")) {
        char *over = private(), *little = mmap(0, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return checked(mremap(little, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, over) == MAP_FAILED);
    }
    if (IS("brk")) return touched(sbrk(BYTES)), checked(sbrk(-(long)BYTES) == (void *)-1);
    if (IS("dontneed")) return checked(advised(private(), MADV_DONTNEED));
    if (IS("dontneed_locked")) return checked(advised(private(), 24));
    if (IS("free")) return checked(advised(private(), MADV_FREE));
    if (IS("guard")) return checked(advised(private(), 102));
    if (IS("process_madvise")) return checked(by_process(private()));
    if (IS("shmat")) return checked(by_segment(private()));
    char *const nothing[] = {"true", 0};
    if (IS("execve")) return private(), checked(execv("/bin/true", nothing));
    if (IS("execveat"))
        return private(), checked(syscall(SYS_execveat, open("/bin/true", O_PATH), "", nothing, environ, AT_EMPTY_PATH) < 0);
    if (IS("killed")) return private(), checked(raise(SIGKILL));
    if (IS("io_uring")) return checked(by_ring(private()));

    // From here on 1M of private memory stays.
    char *stays = malloc(1 << 20);
    memset(stays, 1, 1 << 20);
    if (IS("shmdt")) return checked(by_detaching());
    int fd = file();
    char *p = touched(map(0, MAP_SHARED, fd));
    if (IS("remove")) return checked(advised(p, MADV_REMOVE));
    if (IS("pageout")) return checked(advised(p, MADV_PAGEOUT));
    if (IS("remap_file_pages")) return checked(remap_file_pages(p + HALF, HALF, 0, 0, 0));
    if (IS("truncate")) return checked(by_path(fd));
    if (IS("ftruncate")) return checked(ftruncate(fd, 0));
    if (IS("fallocate")) return checked(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES));
    return 1;
}
