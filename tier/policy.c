/*
 * Replacement by learned worth: entries lie on lists by how often and how long ago they were used,
 * and the victim comes from the list whose entries are worth least (worth.h). From that list the
 * newest leaves: of equals, those that have waited longest are nearest to their next use.
 *
 * Chosen by replaying traces of LLM serving (figures: tests/replay). There the next
 * use of a block is farther away than a small tier can hold, so recency lists churn without hits; a
 * tier that knows how its uses are spaced keeps fewer blocks, but long enough.
 *
 * Statistics are slow to see a scan, hence a plain rule beside them: when nothing known has been
 * used for a while, new content may only replace content used once.
 *
 * Invariants
 * 1. A linked entry is on list e->list: AHEAD only with uses = 0, SET_ASIDE after a refusal, else
 * the list of its class and band. link_newest and unlink_entry alone change lists.
 * 2. An entry's band lags behind its age by fewer than PASS uses.
 * 3. by_worth holds every ranked list, least worth first, as of the last computation; place is its
 * inverse; filled has the bit of a place exactly when the list there is not empty.
 * 4. entries and weight are sums over all lists, ahead over AHEAD.
 * 5. The history has HISTORY_MIN slots, or fewer than 4 for each entry of the fullest time.
 */
#include "tier/policy.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tier/cleanup.h"
#include "tier/history.h"
#include "tier/worth.h"

#define RANKED (MC_WORTH_CLASSES * MC_WORTH_BANDS)
enum { AHEAD = RANKED, SET_ASIDE, LISTS, NONE = LISTS };
#define WORDS ((RANKED + 63) / 64)

/* Uses of one entry fewer than BURST uses apart are one use: as many streams may read in step. */
#define BURST 16
/* Uses between two passes over the lists; a pass also takes back up to so many refused entries. */
#define PASS 64
/* A fetched-ahead entry is spared for so many uses, */
#define AHEAD_USES 1024
/* and while all of them fill at most this part of the capacity. */
#define AHEAD_SHARE 4
/* A run of new content longer than this part of the entries is a scan: the most it can cost. */
#define SCAN_SHARE 16
/* 256 KiB: a small tier, too, sees uses 32,768 evictions apart. Larger ones remember twice their
 * entries. */
#define HISTORY_MIN 32768u
#define HISTORY_PER_ENTRY 2
/* History is as long as the past that worth is learned from: it turns over in so many steps. */
#define LEARN MC_WORTH_STEPS
/* History keeps 24 bits of time, counted in 16 uses: 2^28 uses. */
#define HISTORY_SHIFT 4

struct mc_policy {
	uint64_t capacity, weight, ahead; /* bytes */
	uint64_t entries;
	uint32_t now; /* uses so far, of any entry */
	uint32_t next_learn;
	uint32_t run; /* uses since the last one of content known before the run */
	uint16_t by_worth[RANKED], place[RANKED];
	uint64_t filled[WORDS], once[WORDS]; /* bits of places; once: lists of class 0 */
	struct mc_policy_entry head[LISTS];
	struct mc_worth worth;
	struct mc_history history;
};

static bool is_empty(const struct mc_policy *p, unsigned list)
{
	return p->head[list].next == &p->head[list];
}

static float value(const struct mc_policy *p, unsigned list)
{
	return p->worth.value[list / MC_WORTH_BANDS][list % MC_WORTH_BANDS];
}

static void note_filled(struct mc_policy *p, unsigned list)
{
	if (list < RANKED)
		p->filled[p->place[list] / 64] |= UINT64_C(1) << p->place[list] % 64;
}

static void note_empty(struct mc_policy *p, unsigned list)
{
	if (list < RANKED)
		p->filled[p->place[list] / 64] &= ~(UINT64_C(1) << p->place[list] % 64);
}

/* After worth was computed. By insertion: the order of the last time is nearly right. */
static void sort_lists(struct mc_policy *p)
{
	for (unsigned i = 1; i < RANKED; i++) {
		uint16_t list = p->by_worth[i];
		unsigned k = i;

		for (; k > 0 && value(p, list) < value(p, p->by_worth[k - 1]); k--)
			p->by_worth[k] = p->by_worth[k - 1];
		p->by_worth[k] = list;
	}
	for (unsigned w = 0; w < WORDS; w++)
		p->filled[w] = p->once[w] = 0;
	for (unsigned i = 0; i < RANKED; i++) {
		p->place[p->by_worth[i]] = (uint16_t)i;
		if (!is_empty(p, p->by_worth[i]))
			note_filled(p, p->by_worth[i]);
		if (p->by_worth[i] < MC_WORTH_BANDS)
			p->once[i / 64] |= UINT64_C(1) << i % 64;
	}
}

/* The list of least worth that is not empty; only_once: among those of entries used once. */
static unsigned least_worth(const struct mc_policy *p, bool only_once)
{
	for (unsigned w = 0; w < WORDS; w++) {
		uint64_t places = only_once ? p->filled[w] & p->once[w] : p->filled[w];

		if (places != 0)
			return p->by_worth[w * 64 + (unsigned)__builtin_ctzll(places)];
	}
	return NONE;
}

/* Uses from one computation of worth to the next. */
static uint32_t learn_step(const struct mc_policy *p)
{
	return (uint32_t)(mc_history_slots(&p->history) / LEARN);
}

int mc_policy_open(uint64_t capacity, struct mc_policy **ret)
{
	cleanup_free struct mc_policy *p = calloc(1, sizeof(*p));
	int r;

	assert(capacity > 0);
	if (p == NULL)
		return -ENOMEM;
	r = mc_history_init(&p->history, HISTORY_MIN);
	if (r < 0)
		return r;
	p->capacity = capacity;
	for (unsigned l = 0; l < LISTS; l++)
		p->head[l].prev = p->head[l].next = &p->head[l];
	for (unsigned l = 0; l < RANKED; l++)
		p->by_worth[l] = (uint16_t)l;
	mc_worth_init(&p->worth);
	sort_lists(p);
	p->next_learn = learn_step(p);
	*ret = steal_ptr(p);
	return 0;
}

void mc_policy_resize(struct mc_policy *p, uint64_t capacity)
{
	assert(capacity > 0);
	p->capacity = capacity;
}

void mc_policy_close(struct mc_policy *p)
{
	if (p == NULL)
		return;
	mc_history_done(&p->history);
	free(p);
}

static void link_newest(struct mc_policy *p, struct mc_policy_entry *e, unsigned list)
{
	struct mc_policy_entry *h = &p->head[list];

	e->list = (uint16_t)list;
	e->prev = h;
	e->next = h->next;
	h->next->prev = e;
	h->next = e;
	p->entries++;
	p->weight += e->weight;
	if (list == AHEAD)
		p->ahead += e->weight;
	note_filled(p, list);
}

static void unlink_entry(struct mc_policy *p, struct mc_policy_entry *e)
{
	assert(e->next != NULL);
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->prev = e->next = NULL;
	p->entries--;
	p->weight -= e->weight;
	if (e->list == AHEAD)
		p->ahead -= e->weight;
	if (is_empty(p, e->list))
		note_empty(p, e->list);
}

static unsigned class_of(const struct mc_policy_entry *e)
{
	return mc_worth_class(e->uses > 0 ? e->uses : 1);
}

/* To the ranked list that its uses and age give. */
static void rank(struct mc_policy *p, struct mc_policy_entry *e)
{
	if (e->next != NULL)
		unlink_entry(p, e);
	link_newest(p, e, class_of(e) * MC_WORTH_BANDS + mc_worth_band(p->now - e->stamp));
}

/* Entries that outgrew their band go to the next. From old to young: each moves once. */
static void age(struct mc_policy *p)
{
	for (unsigned l = RANKED; l-- > 0;) {
		uint32_t end = mc_worth_band_end(l % MC_WORTH_BANDS);
		struct mc_policy_entry *oldest = p->head[l].prev;

		while (end != UINT32_MAX && oldest != &p->head[l] &&
			p->now - oldest->stamp >= end) {
			rank(p, oldest);
			oldest = p->head[l].prev;
		}
	}
}

/* A fetched-ahead entry is spared no longer: a start that had no use so far. */
static void expose(struct mc_policy *p, struct mc_policy_entry *e)
{
	mc_worth_start(&p->worth, class_of(e));
	rank(p, e);
}

/* Sparing ends: for entries fetched ahead in vain, and some of those that were set aside. */
static void take_back(struct mc_policy *p)
{
	struct mc_policy_entry *ahead = &p->head[AHEAD], *aside = &p->head[SET_ASIDE];

	while (ahead->prev != ahead && p->now - ahead->prev->stamp >= AHEAD_USES)
		expose(p, ahead->prev);
	for (unsigned i = 0; i < PASS && aside->prev != aside; i++)
		rank(p, aside->prev);
}

/* One more use of some entry: the clock moves. */
static void tick(struct mc_policy *p)
{
	p->now++;
	if (p->now % PASS == 0) {
		age(p);
		take_back(p);
	}
	if (p->now == p->next_learn) {
		mc_worth_learn(&p->worth, learn_step(p), 1 - 1.0f / LEARN);
		sort_lists(p);
		p->next_learn = p->now + learn_step(p);
	}
}

static void begin(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight)
{
	assert(weight > 0 && e->next == NULL);
	*e = (struct mc_policy_entry){.key_hash = key_hash, .weight = weight, .stamp = p->now};
	if ((p->entries + 1) * HISTORY_PER_ENTRY > mc_history_slots(&p->history))
		mc_history_grow(&p->history);
}

/* A use that counts, since uses after the last one; new content has uses = 0. */
static void count_use(struct mc_policy *p, struct mc_policy_entry *e, uint32_t since)
{
	if (e->uses > 0) {
		mc_worth_hit(&p->worth, class_of(e), mc_worth_band(since));
		/* A scan that looks twice at its own blocks is still a scan. */
		p->run = since >= p->run ? 0 : p->run;
	} else {
		p->run++;
	}
	if (e->uses < UINT8_MAX)
		e->uses++;
	mc_worth_start(&p->worth, class_of(e));
	e->stamp = p->now;
	rank(p, e);
}

/* The uses it had before it was evicted; returns how many uses ago the last was. */
static uint32_t recall(struct mc_policy *p, struct mc_policy_entry *e)
{
	uint32_t ago = 0;

	mc_history_take(&p->history, e->key_hash, p->now >> HISTORY_SHIFT, &ago, &e->uses);
	return ago << HISTORY_SHIFT;
}

void mc_policy_insert(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight)
{
	tick(p);
	begin(p, e, key_hash, weight);
	count_use(p, e, recall(p, e));
}

void mc_policy_insert_ahead(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight)
{
	struct mc_policy_entry *ahead = &p->head[AHEAD];

	begin(p, e, key_hash, weight);
	link_newest(p, e, AHEAD);
	while (p->ahead > p->capacity / AHEAD_SHARE && ahead->prev != e)
		expose(p, ahead->prev);
}

void mc_policy_hit(struct mc_policy *p, struct mc_policy_entry *e)
{
	uint32_t since = p->now - e->stamp;

	if (e->uses > 0 && since < BURST)
		return;
	tick(p);
	if (e->uses == 0)
		since = recall(p, e);
	count_use(p, e, since);
}

void mc_policy_evict(struct mc_policy *p, struct mc_policy_entry *e)
{
	if (e->uses > 0)
		mc_history_put(&p->history, e->key_hash, e->stamp >> HISTORY_SHIFT, e->uses,
			p->now >> HISTORY_SHIFT);
	unlink_entry(p, e);
}

void mc_policy_remove(struct mc_policy *p, struct mc_policy_entry *e)
{
	unlink_entry(p, e);
}

/* The next to look at; NULL when nothing is linked. */
static struct mc_policy_entry *candidate(const struct mc_policy *p)
{
	unsigned list = NONE;

	if (p->run > p->entries / SCAN_SHARE)
		list = least_worth(p, true);
	if (list == NONE)
		list = least_worth(p, false);
	if (list != NONE)
		return p->head[list].next;
	list = is_empty(p, SET_ASIDE) ? AHEAD : SET_ASIDE;
	return is_empty(p, list) ? NULL : p->head[list].prev;
}

struct mc_policy_entry *mc_policy_victim(
	struct mc_policy *p, mc_policy_evictable *evictable, void *ctx, unsigned max_scan)
{
	for (unsigned i = 0; i < max_scan; i++) {
		struct mc_policy_entry *e = candidate(p);

		if (e == NULL || evictable(ctx, e))
			return e;
		unlink_entry(p, e);
		link_newest(p, e, SET_ASIDE);
	}
	return NULL;
}

void mc_policy_stats(const struct mc_policy *p, struct mc_policy_stats *ret)
{
	*ret = (struct mc_policy_stats){.entries = p->entries,
		.weight = p->weight,
		.history_bytes = mc_history_slots(&p->history) * MC_HISTORY_SLOT_SIZE};
}
