/*
 * The peer of the cold read measurement: reads one file through libnfs and nothing else. Each of
 * `connections` threads owns a context and keeps `depth` reads of `size` bytes in flight; what
 * arrives is copied into a buffer, as a reader must. libnfs' automatic reconnect is off.
 *
 *   raw-nfs-read [--connections N] [--depth N] [--size BYTES] [--passes N] [--json] URL PATH
 *
 * URL as for mooncakefs: nfs://SERVER/EXPORT?nfsport=…; PATH relative to the export.
 */
#include <fcntl.h>
#include <nfsc/libnfs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct job {
	const char *url, *path;
	unsigned depth;
	uint64_t size;      /* bytes of one read */
	uint64_t file_size; /* set by the first connection */
	uint64_t end;       /* of all passes: bytes */
	_Atomic uint64_t next;
	_Atomic bool failed;
	pthread_barrier_t ready;
};

struct reader {
	struct job *job;
	pthread_t thread;
	struct nfs_context *nfs;
	struct nfsfh *fh;
	unsigned in_flight;
};

struct slot {
	struct reader *r;
	uint64_t want;
	char *buf;
};

static void issue(struct slot *s);

static void got(int res, struct nfs_context *nfs, void *data, void *priv)
{
	struct slot *s = priv;

	s->r->in_flight--;
	if (res < 0 || (uint64_t)res != s->want) {
		fprintf(stderr, "raw-nfs-read: %s\n", res < 0 ? nfs_get_error(nfs) : "short read");
		s->r->job->failed = true;
		return;
	}
	memcpy(s->buf, data, (size_t)res);
	issue(s);
}

static void issue(struct slot *s)
{
	struct job *j = s->r->job;
	uint64_t at = atomic_fetch_add(&j->next, j->size), off;

	if (at >= j->end || j->failed)
		return;
	off = at % j->file_size;
	s->want = j->file_size - off < j->size ? j->file_size - off : j->size;
	if (nfs_pread_async(s->r->nfs, s->r->fh, off, s->want, got, s) != 0) {
		j->failed = true;
		return;
	}
	s->r->in_flight++;
}

static int open_file(struct reader *r)
{
	struct nfs_url *u;
	struct nfs_stat_64 st;
	char path[4096];

	r->nfs = nfs_init_context();
	u = r->nfs == NULL ? NULL : nfs_parse_url_dir(r->nfs, r->job->url);
	if (u == NULL)
		return -1;
	nfs_set_autoreconnect(r->nfs, 0);
	snprintf(path, sizeof(path), "/%s", r->job->path);
	if (nfs_mount(r->nfs, u->server, u->path) != 0 ||
		nfs_open(r->nfs, path, O_RDONLY, &r->fh) != 0 ||
		nfs_fstat64(r->nfs, r->fh, &st) != 0) {
		fprintf(stderr, "raw-nfs-read: %s\n", nfs_get_error(r->nfs));
		nfs_destroy_url(u);
		return -1;
	}
	nfs_destroy_url(u);
	r->job->file_size = st.nfs_size / r->job->size * r->job->size;
	return r->job->file_size == 0 ? -1 : 0;
}

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct slot *slots = calloc(r->job->depth, sizeof(*slots));

	for (unsigned i = 0; i < r->job->depth; i++) {
		slots[i].r = r;
		slots[i].buf = malloc(r->job->size);
		memset(slots[i].buf, 1, r->job->size);
	}
	pthread_barrier_wait(&r->job->ready);
	for (unsigned i = 0; i < r->job->depth; i++)
		issue(&slots[i]);
	while (r->in_flight > 0 && !r->job->failed) {
		struct pollfd p = {
			.fd = nfs_get_fd(r->nfs), .events = (short)nfs_which_events(r->nfs)};

		if (poll(&p, 1, 100) < 0 || nfs_service(r->nfs, p.revents) < 0)
			r->job->failed = true;
	}
	for (unsigned i = 0; i < r->job->depth; i++)
		free(slots[i].buf);
	free(slots);
	return NULL;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int run(struct job *j, unsigned connections, uint64_t passes, bool json)
{
	struct reader *readers = calloc(connections, sizeof(*readers));
	double begin, seconds;

	for (unsigned i = 0; i < connections; i++) {
		readers[i].job = j;
		if (open_file(&readers[i]) < 0)
			return 1;
	}
	j->end = j->file_size * passes;
	pthread_barrier_init(&j->ready, NULL, connections + 1);
	for (unsigned i = 0; i < connections; i++)
		pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]);
	pthread_barrier_wait(&j->ready);
	begin = now_s();
	for (unsigned i = 0; i < connections; i++)
		pthread_join(readers[i].thread, NULL);
	seconds = now_s() - begin;
	for (unsigned i = 0; i < connections; i++)
		nfs_destroy_context(readers[i].nfs);
	free(readers);
	if (j->failed)
		return 1;
	printf(json ? "{\"bytes\": %llu, \"seconds\": %.6f, \"gb_per_s\": %.3f}\n"
		    : "%llu bytes in %.3f s: %.3f GB/s\n",
		(unsigned long long)j->end, seconds, (double)j->end / 1e9 / seconds);
	return 0;
}

int main(int argc, char **argv)
{
	struct job j = {.depth = 8, .size = 1 << 20};
	unsigned connections = 2;
	uint64_t passes = 1;
	bool json = false;
	int i = 1;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "0";

		if (strcmp(argv[i], "--json") == 0) {
			json = true;
			continue;
		}
		if (strcmp(argv[i], "--connections") == 0)
			connections = (unsigned)strtoul(value, NULL, 10);
		else if (strcmp(argv[i], "--depth") == 0)
			j.depth = (unsigned)strtoul(value, NULL, 10);
		else if (strcmp(argv[i], "--size") == 0)
			j.size = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--passes") == 0)
			passes = strtoull(value, NULL, 10);
		else
			break;
		i++;
	}
	if (argc - i != 2 || connections == 0 || j.depth == 0 || j.size == 0 || passes == 0) {
		fprintf(stderr,
			"usage: raw-nfs-read [--connections N] [--depth N] [--size BYTES] "
			"[--passes N] [--json] URL PATH\n");
		return 2;
	}
	j.url = argv[i];
	j.path = argv[i + 1];
	return run(&j, connections, passes, json);
}
