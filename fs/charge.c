/*
 * Memory limits of clients.
 *
 * Invariant: an answer is remembered by the group's path, for a second; which group a task is in is
 * read each time.
 */
#include "fs/charge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "fs/place.h"
#include "tier/cgroup.h"
#include "tier/cleanup.h"
#include "tier/lock.h"

#define REMEMBERED 64 /* groups, by hash */
#define EXPIRES_NS UINT64_C(1000000000)

struct remembered {
	char *path; /* owned; NULL = free */
	uint64_t until_ns;
	enum mc_charge charge;
};

struct mc_charges {
	const char *root; /* borrowed */
	struct mc_mutex lock;
	struct remembered groups[REMEMBERED] MC_GUARDED_BY(lock);
};

int mc_charges_open(const char *root, struct mc_charges **ret)
{
	struct mc_charges *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	mc_mutex_init(&c->lock);
	c->root = root;
	*ret = c;
	return 0;
}

void mc_charges_close(struct mc_charges *c)
{
	if (c == NULL)
		return;
	for (unsigned i = 0; i < REMEMBERED; i++)
		free(c->groups[i].path);
	mc_mutex_done(&c->lock);
	free(c);
}

/* Whether the machine promises no more memory than it has: then anybody may be refused some. */
static bool is_strict(const struct mc_charges *c)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;
	char mode = '0';

	if (asprintf(&path, "%s/proc/sys/vm/overcommit_memory", c->root) < 0)
		return true;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, &mode, 1) == 1 && mode == '2';
}

/* Looks at the group and those above it that are not above the daemon, too. */
static enum mc_charge look(const struct mc_charges *c, const struct mc_cgroup *g)
{
	/* Bytes of this machine: as much is no limit. */
	uint64_t limit,
		memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct mc_cgroup own;
	size_t both;

	if (is_strict(c))
		return MC_CHARGE_LIMITED;
	if (mc_cgroup_of(c->root, "self", &own) < 0 || own.v1 != g->v1)
		return MC_CHARGE_UNKNOWN;
	both = mc_cgroup_common(g, &own);
	if (both == strlen(g->path))
		return MC_CHARGE_FREE;
	if (mc_cgroup_limit(c->root, g, both + 1, &limit) < 0)
		return MC_CHARGE_UNKNOWN;
	return limit < memory ? MC_CHARGE_LIMITED : MC_CHARGE_FREE;
}

static bool recall(struct mc_charges *c, struct remembered *m, const char *path,
	enum mc_charge *ret) MC_REQUIRES(c->lock)
{
	bool known = m->path != NULL && m->until_ns > mc_now_ns() && strcmp(m->path, path) == 0;

	if (known)
		*ret = m->charge;
	return known;
}

enum mc_charge mc_charges_of(struct mc_charges *c, pid_t tid)
{
	enum mc_charge charge;
	struct remembered *m;
	struct mc_cgroup g;
	char task[16], *path;
	bool known;
	int r;

	snprintf(task, sizeof(task), "%d", (int)tid);
	r = tid > 0 ? mc_cgroup_of(c->root, task, &g) : -ESRCH;
	if (r < 0)
		return r == -ENOENT ? MC_CHARGE_FREE : MC_CHARGE_UNKNOWN;
	m = &c->groups[mc_hash_mix(mc_hash_bytes(MC_HASH_SEED, g.path, strlen(g.path))) %
		REMEMBERED];
	mc_mutex_lock(&c->lock);
	known = recall(c, m, g.path, &charge);
	mc_mutex_unlock(&c->lock);
	if (known)
		return charge;
	charge = look(c, &g);
	path = strdup(g.path);
	mc_mutex_lock(&c->lock);
	free(m->path);
	*m = (struct remembered){
		.path = path, .until_ns = mc_now_ns() + EXPIRES_NS, .charge = charge};
	mc_mutex_unlock(&c->lock);
	return charge;
}
