/* harness WHAT BYTES LEAF STEP: maps BYTES with leaves of LEAF bytes, and then walks over them in steps.
 * WHAT: 0 only maps; 1 then removes write permission; 2 also splits; 3 removes write permission twice. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef unsigned long u64;

extern void kernel_begin(void);
extern int kernel_map(u64 ipa, u64 bytes, u64 pa, u64 leaf);
extern int kernel_protect(u64 ipa, u64 bytes);
extern int kernel_split(u64 ipa, u64 bytes);
extern u64 kernel_page_bytes(void);

/* Functions that the kernel's file references but never calls here. */
void alt_cb_patch_nops(void) { }

static char *next;

void *table_page(void)
{
	void *page = next;

	next += kernel_page_bytes();
	return page;
}

static void must(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "%s: %d\n", what, error);
		exit(1);
	}
}

int main(int count, char **words)
{
	u64 ipa = 1ul << 30, pa = 1ul << 36, most = 1ul << 32;

	if (count != 5)
		return 2;
	int what = atoi(words[1]);
	u64 bytes = strtoull(words[2], 0, 0), leaf = strtoull(words[3], 0, 0), step = strtoull(words[4], 0, 0);

	next = mmap(0, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	next = (char *)(((u64)next + (1ul << 20)) & ~((1ul << 20) - 1));
	kernel_begin();
	must(kernel_map(ipa, bytes, pa, leaf), "map");
	for (u64 at = 0; at < bytes; at += step) {
		if (what == 3)
			must(kernel_protect(ipa + at, step), "protect");
		if (what >= 1)
			must(kernel_protect(ipa + at, step), "protect");
		if (what == 2)
			must(kernel_split(ipa + at, step), "split");
	}
	return 0;
}
