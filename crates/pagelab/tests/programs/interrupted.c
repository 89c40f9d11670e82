/* interrupted MEBIBYTES MS: threads that would notice an interruption, while memory is populated bit by bit. One computes in
   registers, one sleeps, one waits for events, and the first one fills memory. It ends with 0 if none noticed anything. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>

static volatile int ends;

static void fail(const char *what) {
	perror(what);
	_Exit(1);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *computes(void *unused) {
	while (!ends) {
		uint64_t a = 1, b = 2, c = 3, d = 4;
		double x = 1.5;
		for (int i = 0; i < 1000000; i++) {
			a += b ^ i, b += c, c += d, d += a;
			x = x * 1.0000001 + 1e-9;
		}
		static uint64_t sum;
		static double first;
		if (!sum)
			sum = a ^ b ^ c ^ d, first = x;
		if (sum != (a ^ b ^ c ^ d) || first != x)
			fail("registers");
	}
	return unused;
}

static void *sleeps(void *unused) {
	struct timespec t = {0, 3000000};
	while (!ends)
		if (nanosleep(&t, NULL))
			fail("nanosleep");
	return unused;
}

static void *waits(void *unused) {
	int events = epoll_create1(0);
	struct epoll_event event;
	while (!ends)
		if (epoll_wait(events, &event, 1, 2) < 0)
			fail("epoll_wait");
	return unused;
}

int main(int count, char **words) {
	if (count < 3)
		return 2;
	size_t bytes = strtoull(words[1], 0, 0) << 20, large = 2 << 20;
	double end = now() + strtod(words[2], 0) * 1e-3;
	pthread_t threads[3];
	void *(*bodies[])(void *) = {computes, sleeps, waits};
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, bodies[i], 0);
	/* 2M more than is used, so that all of it has aligned slots. */
	char *memory = mmap(0, bytes + large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memory = (char *)(((uintptr_t)memory + large - 1) & ~(large - 1));
	for (size_t at = 0; at < bytes; at += 4096) {
		*(size_t *)(memory + at) = at + 1;
		if (at % (4 * large) == 0)
			for (double pause = now() + 0.005; now() < pause;)
				;
	}
	while (now() < end)
		for (size_t at = 0; at < bytes; at += 4096)
			if (*(size_t *)(memory + at) != at + 1)
				fail("memory");
	ends = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	return 0;
}
