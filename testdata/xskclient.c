/*
 * A client of -xsk-listen in C, from the layout that README.md documents: it attaches
 * to a queue, receives COUNT packets, swaps the addresses of each where it lies, sends
 * it back, and says how many packets and bytes there were and the FNV-1a of them all
 * as they came in.
 *
 *	xskclient SOCKET QUEUE COUNT
 *
 * Frames go round: fill ring, driver, RX ring, us, TX ring, driver, completion ring,
 * fill ring. There are as many entries in each ring as frames, so nothing is ever
 * full but the TX ring, and that never of frames that we hold.
 *
 * Who fills a ring writes entries, then its producer with release; who takes reads the
 * producer with acquire, then entries, then writes its consumer with release. Where
 * one side may sleep, its flag and the other's index must be ordered fully: each writes
 * its own word, then reads the other's. Sequentially consistent atomics, C11's default,
 * are all of that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAGIC = 0x4b53584d, VERSION = 1, HEADER = 16, LONGEST = 1024 };
enum { ATTACH = 1, COUNTS = 3, ANSWER = 0x8000, CLOSED = 0xfffe, REFUSED = 0xffff };
enum { WANT_WAKEUP = 1, WANT_ZEROCOPY = 2 };
enum { FD_UMEM, FD_RINGS, FD_KICK, FD_WAKE, FDS };
enum { FILL, COMPLETION, RX, TX, RINGS };
enum { FRAME = 2048, FRAMES = 256, BATCH = 32, PATIENCE = 10000 /* ms */ };
enum { ATTACH_SIZE = HEADER + 4 * 12, ANSWER_SIZE = HEADER + 4 * 6 + 8 * 2 + RINGS * 40 };

struct desc {
	uint64_t addr;
	uint32_t len, options;
};

struct ring {
	_Atomic uint32_t *producer, *consumer, *flags;
	void *entries;
	uint32_t mask, at; /* at is our own index */
};

static uint8_t *umem;
static uint64_t umem_size;
static struct ring rings[RINGS];
static int fds[FDS];

static void die(const char *what)
{
	fprintf(stderr, "xskclient: %s\n", what);
	exit(1);
}

static void die_errno(const char *what)
{
	fprintf(stderr, "xskclient: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* All of the protocol is little endian, whatever we are; the rings are the host's. */
static void put(uint8_t *b, int bytes, uint64_t v)
{
	for (int i = 0; i < bytes; i++)
		b[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *b, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)b[i] << 8 * i;
	return v;
}

static void put_header(uint8_t *b, int kind, uint32_t size)
{
	memset(b, 0, size);
	put(b, 4, MAGIC);
	put(b + 4, 2, VERSION);
	put(b + 6, 2, (uint64_t)kind);
	put(b + 8, 4, size);
}

static void say(int s, const uint8_t *b, size_t size)
{
	if (send(s, b, size, MSG_NOSIGNAL) != (ssize_t)size)
		die_errno("send");
}

/* Reads one message; descriptors come with its first byte. Returns its size. */
static size_t hear(int s, uint8_t b[LONGEST], int *kind)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	size_t got = 0, size = HEADER;

	while (got < size) {
		struct iovec part = { b + got, size - got };
		struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
		ssize_t n = recvmsg(s, &m, MSG_CMSG_CLOEXEC);

		if (n < 0)
			die_errno("recvmsg");
		if (n == 0)
			die("the appliance has gone");
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
			if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fds))
				memcpy(fds, CMSG_DATA(c), sizeof fds);
		got += (size_t)n;
		if (got >= HEADER && size == HEADER) {
			size = get(b + 8, 4);
			if (get(b, 4) != MAGIC || get(b + 4, 2) != VERSION || size < HEADER || size > LONGEST)
				die("not a message of the attach protocol");
		}
	}
	*kind = (int)get(b + 6, 2);
	if (*kind == REFUSED || *kind == CLOSED) {
		fprintf(stderr, "xskclient: refused: %.*s\n", (int)(size - HEADER), b + HEADER);
		exit(1);
	}
	return size;
}

static uint8_t *map(int fd, uint64_t size)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < size)
		die("a file is shorter than the answer says");
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		die_errno("mmap");
	return p;
}

static void attach(int s, uint32_t queue)
{
	const uint32_t words[12] = { 0 /* port */, queue, FRAME, FRAMES, 0 /* headroom */,
				     FRAMES, FRAMES, FRAMES, FRAMES, WANT_WAKEUP | WANT_ZEROCOPY };
	uint8_t b[LONGEST], *shared;
	uint64_t size;
	int kind;

	put_header(b, ATTACH, ATTACH_SIZE);
	for (int i = 0; i < 12; i++)
		put(b + HEADER + 4 * i, 4, words[i]);
	say(s, b, ATTACH_SIZE);
	for (int i = 0; i < FDS; i++)
		fds[i] = -1;
	if (hear(s, b, &kind) != ANSWER_SIZE || kind != (ATTACH | ANSWER) || fds[0] < 0)
		die("not an answer to attach");
	if (!(get(b + HEADER, 4) & WANT_ZEROCOPY))
		die("no zero copy");
	umem_size = get(b + HEADER + 24, 8);
	size = get(b + HEADER + 32, 8);
	if (umem_size != (uint64_t)FRAME * FRAMES)
		die("another UMEM than was asked for");
	umem = map(fds[FD_UMEM], umem_size);
	shared = map(fds[FD_RINGS], size);
	for (int i = 0; i < RINGS; i++) {
		const uint8_t *p = b + HEADER + 40 + 40 * i; /* producer, consumer, flags, entries: offsets; number of entries */
		uint64_t bytes = (uint64_t)FRAMES * (i < RX ? sizeof(uint64_t) : sizeof(struct desc));
		struct ring *r = &rings[i];

		if (get(p + 32, 4) != FRAMES || get(p + 24, 8) > size || size - get(p + 24, 8) < bytes)
			die("a ring lies outside its file");
		for (int k = 0; k < 3; k++)
			if (get(p + 8 * k, 8) > size - 4 || get(p + 8 * k, 8) % 4)
				die("a ring's word lies outside its file");
		r->producer = (_Atomic uint32_t *)(void *)(shared + get(p, 8));
		r->consumer = (_Atomic uint32_t *)(void *)(shared + get(p + 8, 8));
		r->flags = (_Atomic uint32_t *)(void *)(shared + get(p + 16, 8));
		r->entries = shared + get(p + 24, 8);
		r->mask = FRAMES - 1;
	}
}

static uint32_t ready(struct ring *r)
{
	uint32_t n = atomic_load(r->producer) - r->at;

	return n < BATCH ? n : BATCH;
}

static void took(struct ring *r, uint32_t n)
{
	r->at += n;
	atomic_store(r->consumer, r->at);
}

/* Wakes the driver where it sleeps on this ring. */
static void nudge(struct ring *r)
{
	const uint64_t one = 1;

	if (atomic_load(r->flags) & 1 && write(fds[FD_KICK], &one, sizeof one) < 0 && errno != EAGAIN)
		die_errno("kick");
}

static void gave(struct ring *r, uint32_t n)
{
	if (n == 0)
		return;
	r->at += n;
	atomic_store(r->producer, r->at);
	nudge(r);
}

static void give_frame(uint32_t ahead, uint64_t addr)
{
	struct ring *r = &rings[FILL];

	((uint64_t *)r->entries)[(r->at + ahead) & r->mask] = addr - addr % FRAME;
}

/* Frames that were sent go back to the driver. Returns how many. */
static uint32_t refill(void)
{
	struct ring *r = &rings[COMPLETION];
	uint32_t n = ready(r);

	for (uint32_t i = 0; i < n; i++)
		give_frame(i, ((uint64_t *)r->entries)[(r->at + i) & r->mask]);
	took(r, n);
	gave(&rings[FILL], n);
	if (n != 0)
		nudge(&rings[TX]); /* packets may wait for room in the completion ring */
	return n;
}

static void swap_addresses(uint8_t *b)
{
	uint8_t to[6];

	memcpy(to, b, 6);
	memcpy(b, b + 6, 6);
	memcpy(b + 6, to, 6);
}

static uint64_t bytes, sum = 0xcbf29ce484222325;

/* Returns how many packets were received and sent back, at most so many. */
static uint32_t forward(uint64_t most)
{
	struct ring *rx = &rings[RX], *tx = &rings[TX];
	uint32_t n = ready(rx);

	if (n > most)
		n = (uint32_t)most;
	for (uint32_t i = 0; i < n; i++) {
		struct desc *d = (struct desc *)rx->entries + ((rx->at + i) & rx->mask);
		uint8_t *b = umem + d->addr;

		if (d->addr >= umem_size || d->len < 14 || d->len > umem_size - d->addr || d->options != 0)
			die("an entry of the RX ring is none");
		for (uint32_t k = 0; k < d->len; k++)
			sum = (sum ^ b[k]) * 0x100000001b3;
		bytes += d->len;
		swap_addresses(b);
		((struct desc *)tx->entries)[(tx->at + i) & tx->mask] = (struct desc){ d->addr, d->len, 0 };
	}
	took(rx, n);
	gave(tx, n);
	return n;
}

/* Sleeps until there is something in the RX or the completion ring. */
static void doze(void)
{
	struct pollfd p = { .fd = fds[FD_WAKE], .events = POLLIN };
	uint64_t times;

	atomic_store(rings[RX].flags, 1);
	atomic_store(rings[COMPLETION].flags, 1);
	if (ready(&rings[RX]) == 0 && ready(&rings[COMPLETION]) == 0) {
		int n = poll(&p, 1, PATIENCE);

		if (n == 0)
			die("nothing comes");
		if (n < 0 || (read(fds[FD_WAKE], &times, sizeof times) < 0 && errno != EAGAIN))
			die_errno("wake");
	}
	atomic_store(rings[RX].flags, 0);
	atomic_store(rings[COMPLETION].flags, 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	uint64_t count, packets = 0, sent = 0;
	uint8_t b[LONGEST];
	int s, kind;

	if (argc != 4 || strlen(argv[1]) >= sizeof to.sun_path)
		die("usage: xskclient SOCKET QUEUE COUNT");
	strcpy(to.sun_path, argv[1]);
	count = strtoull(argv[3], NULL, 10);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof to) < 0)
		die_errno(argv[1]);
	attach(s, (uint32_t)strtoul(argv[2], NULL, 10));
	for (uint32_t i = 0; i < FRAMES; i++)
		give_frame(i, (uint64_t)i * FRAME);
	gave(&rings[FILL], FRAMES);

	while (sent < count) {
		uint32_t out = refill(), in = forward(count - packets);

		packets += in;
		sent += out;
		if (in == 0 && out == 0)
			doze();
	}

	put_header(b, COUNTS, HEADER);
	say(s, b, HEADER);
	if (hear(s, b, &kind) != HEADER + 8 * 6 || kind != (COUNTS | ANSWER))
		die("not an answer to counts");
	printf("packets=%llu bytes=%llu sum=%016llx", (unsigned long long)packets, (unsigned long long)bytes, (unsigned long long)sum);
	printf(" rx_dropped=%llu rx_invalid_descs=%llu tx_invalid_descs=%llu rx_ring_full=%llu\n",
	       (unsigned long long)get(b + HEADER, 8), (unsigned long long)get(b + HEADER + 8, 8),
	       (unsigned long long)get(b + HEADER + 16, 8), (unsigned long long)get(b + HEADER + 24, 8));
	return 0; /* the kernel closes the socket, and with it the queue is free */
}
