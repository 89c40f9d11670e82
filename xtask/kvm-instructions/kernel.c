/* The part of the harness that uses the kernel's types: stage 2 tables, and KVM's functions for them. */
#include <linux/kvm_host.h>

#include <asm/kvm_pgtable.h>
#include <asm/stage2_pgtable.h>

extern void *table_page(void);

static struct kvm kvm;
static struct kvm_pgtable pgt;
/* Enough for all tables of 1G. */
static struct kvm_mmu_memory_cache first = { .nobjs = 1000000 };

static void *zalloc_page(void *cache)
{
	((struct kvm_mmu_memory_cache *)cache)->nobjs--;
	return table_page();
}

static void *zalloc_exact(size_t bytes)
{
	void *page = table_page();

	for (size_t at = PAGE_SIZE; at < bytes; at += PAGE_SIZE)
		table_page();
	return page;
}

static void nothing(void *page) { }
static int one(void *page) { return 1; }
static void *to_virt(phys_addr_t pa) { return (void *)pa; }
static phys_addr_t to_phys(void *va) { return (phys_addr_t)va; }
static void free_unlinked(void *table, s8 level) { }

static struct kvm_pgtable_mm_ops ops = {
	.zalloc_page = zalloc_page,
	.zalloc_pages_exact = zalloc_exact,
	.get_page = nothing,
	.put_page = nothing,
	.page_count = one,
	.phys_to_virt = to_virt,
	.virt_to_phys = to_phys,
	.free_unlinked_table = free_unlinked,
};

void __kvm_tlb_flush_vmid_ipa(struct kvm_s2_mmu *mmu, phys_addr_t ipa, int level) { }
void __kvm_tlb_flush_vmid_ipa_nsh(struct kvm_s2_mmu *mmu, phys_addr_t ipa, int level) { }
void __kvm_tlb_flush_vmid_range(struct kvm_s2_mmu *mmu, phys_addr_t ipa, unsigned long pages) { }
void __kvm_tlb_flush_vmid(struct kvm_s2_mmu *mmu) { }

void kernel_begin(void)
{
	kvm.arch.mmu.vtcr = VTCR_EL2_FLAGS | VTCR_EL2_T0SZ(40) | VTCR_EL2_LVLS_TO_SL0(stage2_pgtable_levels(40));
	kvm.arch.mmu.pgt = &pgt;
	kvm.arch.mmu.arch = &kvm.arch;
	__kvm_pgtable_stage2_init(&pgt, &kvm.arch.mmu, &ops, 0, NULL);
}

int kernel_map(u64 ipa, u64 bytes, u64 pa, u64 leaf)
{
	enum kvm_pgtable_prot prot = KVM_PGTABLE_PROT_RW | KVM_PGTABLE_PROT_X;

	for (u64 at = 0; at < bytes; at += leaf) {
		int error = kvm_pgtable_stage2_map(&pgt, ipa + at, leaf, pa + at, prot, &first, 0);

		if (error)
			return error;
	}
	return 0;
}

int kernel_protect(u64 ipa, u64 bytes)
{
	return kvm_pgtable_stage2_wrprotect(&pgt, ipa, bytes);
}

int kernel_split(u64 ipa, u64 bytes)
{
	/* The most tables that a chunk of 1G can need: 513. */
	kvm.arch.mmu.split_page_cache.nobjs = 600;
	return kvm_pgtable_stage2_split(&pgt, ipa, bytes, &kvm.arch.mmu.split_page_cache);
}

u64 kernel_page_bytes(void)
{
	return PAGE_SIZE;
}
