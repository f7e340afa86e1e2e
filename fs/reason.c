/* The last failures. Invariant: at most one entry for what is not 0; the oldest is overwritten. */
#include "fs/reason.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/lock.h"

#define KEPT 1024

struct reason {
	uint64_t about; /* 0 = free */
	char text[MC_REASON_BYTES];
};

struct mc_reasons {
	struct mc_mutex lock;
	struct reason kept[KEPT];
	unsigned next;
};

int mc_reasons_open(struct mc_reasons **ret)
{
	struct mc_reasons *rs = calloc(1, sizeof(*rs));

	if (rs == NULL)
		return -ENOMEM;
	mc_mutex_init(&rs->lock);
	*ret = rs;
	return 0;
}

void mc_reasons_close(struct mc_reasons *rs)
{
	if (rs == NULL)
		return;
	mc_mutex_done(&rs->lock);
	free(rs);
}

static struct reason *find_locked(struct mc_reasons *rs, uint64_t about) MC_REQUIRES(rs->lock)
{
	for (unsigned i = 0; i < KEPT; i++)
		if (rs->kept[i].about == about)
			return &rs->kept[i];
	return NULL;
}

void mc_reasons_set(struct mc_reasons *rs, uint64_t about, const char *text)
{
	struct reason *r;

	about |= 1;
	mc_mutex_lock(&rs->lock);
	r = find_locked(rs, about);
	if (text == NULL || text[0] == '\0') {
		if (r != NULL)
			r->about = 0;
	} else {
		if (r == NULL)
			r = &rs->kept[rs->next++ % KEPT];
		r->about = about;
		snprintf(r->text, sizeof(r->text), "%s", text);
	}
	mc_mutex_unlock(&rs->lock);
}

void mc_reasons_get(struct mc_reasons *rs, uint64_t about, char out[MC_REASON_BYTES])
{
	const struct reason *r;

	mc_mutex_lock(&rs->lock);
	r = find_locked(rs, about | 1);
	snprintf(out, MC_REASON_BYTES, "%s", r != NULL ? r->text : "");
	mc_mutex_unlock(&rs->lock);
}
