/* One thread reads into memory that has no pages yet, and the other one loads the data. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 32 << 20, PART = 1 << 20 };

static char *buffer;
static int file, ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static void *produce(void *unused) {
    for (int at = 0; at < BYTES; at += PART) {
        if (read(file, buffer + at, PART) != PART) abort();
        pthread_mutex_lock(&lock);
        ready = at + PART;
        pthread_cond_signal(&more);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(void) {
    pthread_t producer;
    unsigned long sum = 0;
    file = open("/dev/zero", O_RDONLY);
    buffer = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || buffer == MAP_FAILED || pthread_create(&producer, 0, produce, 0)) return 1;
    for (int at = 0; at < BYTES; at += PART) {
        pthread_mutex_lock(&lock);
        while (ready < at + PART) pthread_cond_wait(&more, &lock);
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < PART; i += 64) sum += buffer[at + i];
    }
    pthread_join(producer, 0);
    printf("%lu\n", sum);
    return 0;
}
