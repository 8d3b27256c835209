/*
 * A plugin for the emulator: guest instructions executed, by place of code: a
 * page of the kernel's, 32 bytes of user space's, which is how Go aligns its
 * functions. It owns the counting only; the lab reads the table out of the shared
 * file at any moment and knows which places are whose. Programs at the same
 * address are counted as one.
 *
 * File: pairs of 64-bit words {address, instructions}, in the machine's byte
 * order, found by open addressing. A block is counted at the place that it starts
 * in, whole even if it was left early.
 *
 * Built with: cc -shared -fPIC -O2 -o pagecount.so pagecount.c
 * Used with:  -plugin pagecount.so,out=FILE
 * The declarations are those of the emulator's plugin interface, version 7.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SLOTS (1u << 18)

struct qemu_plugin_tb;
enum flags { NO_REGS };
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*cb)(struct qemu_plugin_tb *, void *), void *user);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*cb)(unsigned, void *), enum flags flags, void *user);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

EXPORT int qemu_plugin_version = 7;

struct slot { uint64_t place, count; };
struct block { struct slot *slot; uint64_t n; };

static struct slot *table;

static struct slot *find(uint64_t place)
{
	uint32_t i = (uint32_t)(((place >> 5) * 0x9e3779b97f4a7c15ull) >> 46) & (SLOTS - 1);

	for (uint32_t k = 0; k < SLOTS; k++, i = (i + 1) & (SLOTS - 1)) {
		if (table[i].place == place)
			return &table[i];
		if (table[i].place == 0) {
			table[i].place = place;
			return &table[i];
		}
	}
	return NULL;
}

static void executed(unsigned cpu, void *user)
{
	struct block *b = user;

	(void)cpu;
	b->slot->count += b->n;
}

static void translated(struct qemu_plugin_tb *tb, void *user)
{
	uint64_t va = qemu_plugin_tb_vaddr(tb);
	struct slot *s = find(va & (va >> 63 ? ~0xfffull : ~0x1full));
	struct block *b;

	(void)user;
	if (!s || !(b = malloc(sizeof *b)))
		return;
	b->slot = s;
	b->n = qemu_plugin_tb_n_insns(tb);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGS, b);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	size_t size = SLOTS * sizeof(struct slot);
	int fd = -1;

	(void)info;
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			fd = open(argv[i] + 4, O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		return 1;
	table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (table == MAP_FAILED)
		return 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	return 0;
}
