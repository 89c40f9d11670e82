// Maps 64M, fills them, and prints for each 2M whether large pages map it: L for all of it, s for none, ? for a part.
// With the argument "moves" or "grows" the mapping becomes twice as long by mremap, elsewhere or where it is.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { M = 1 << 20 };

static char *mapped(size_t bytes)
{
	return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int count, char **words)
{
	size_t bytes = 64 * M, start = 0, end = 0, from, to, kib;
	int grows = count > 1 && !strcmp(words[1], "grows"), moves = count > 1 && !strcmp(words[1], "moves");
	char *memory = mapped(grows ? 2 * bytes : bytes);
	if (memory == MAP_FAILED || (grows && munmap(memory + bytes, bytes)))
		return 1;
	memset(memory, 1, bytes);
	if (grows || moves) {
		char *longer = mremap(memory, bytes, 2 * bytes, moves ? MREMAP_MAYMOVE : 0);
		if (longer == MAP_FAILED || (moves && longer == memory))
			return 2;
		memory = longer;
		for (size_t at = 0; at < bytes; at += 4096)
			if (memory[at] != 1 || memory[bytes + at] != 0)
				return 3;
		bytes *= 2;
		memset(memory + bytes / 2, 1, bytes / 2);
	}
	char line[512], answer[65] = "";
	FILE *smaps = fopen("/proc/self/smaps", "r");
	while (smaps && fgets(line, sizeof line, smaps)) {
		if (sscanf(line, "%zx-%zx ", &from, &to) == 2)
			start = from, end = to;
		if (sscanf(line, "AnonHugePages: %zu", &kib) != 1)
			continue;
		// The kernel may have merged it with memory of libc that follows it, which is too small for a large page.
		size_t first = (size_t)memory, from_here = start < first ? first : start;
		size_t to_here = end < first + bytes ? end : first + bytes;
		for (size_t at = from_here; at < to_here; at += 2 * M)
			strcat(answer, kib == 0 ? "s" : kib == (to_here - from_here) >> 10 ? "L" : "?");
	}
	puts(answer);
	return 0;
}
