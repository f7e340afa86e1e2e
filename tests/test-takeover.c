/* The table that the next worker reads: texts, records, and what a kill at any moment leaves. */
#include "fs/node-record.h"
#include "fs/node.h"
#include "fs/takeover.h"
#include "fs/texts.h"
#include "tests/suite.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SMALL 4096 /* bytes of a small memory for texts: 127 of the shortest */

static struct mc_texts *texts_in(void *mem)
{
	struct mc_texts *t;

	ck_assert_int_eq(mc_texts_open(mem, SMALL, &t), 0);
	return t;
}

static void expect_text(const struct mc_texts *t, uint32_t ref, const char *want)
{
	size_t len;
	const char *text = mc_texts_get(t, ref, &len);

	ck_assert_ptr_nonnull(text);
	ck_assert_uint_eq(len, strlen(want));
	ck_assert_int_eq(memcmp(text, want, len), 0);
}

START_TEST(texts_are_there_until_they_are_dropped_and_full_is_told)
{
	static _Alignas(8) char mem[SMALL];
	struct mc_texts *t = texts_in(mem);
	char word[16];
	uint32_t refs[127];

	for (unsigned i = 0; i < 127; i++) {
		snprintf(word, sizeof(word), "text %u", i);
		refs[i] = mc_texts_add(t, word, strlen(word));
		ck_assert_uint_ne(refs[i], 0);
	}
	ck_assert_uint_eq(mc_texts_add(t, "more", 4), 0);
	for (unsigned i = 0; i < 127; i++) {
		snprintf(word, sizeof(word), "text %u", i);
		expect_text(t, refs[i], word);
	}
	mc_texts_drop(t, refs[5]);
	ck_assert_uint_eq(mc_texts_add(t, "more", 4), refs[5]);
	ck_assert_ptr_null(mc_texts_get(t, 0, &(size_t){0}));
	ck_assert_ptr_null(mc_texts_get(t, 4000, &(size_t){0}));
	mc_texts_close(t);
}
END_TEST

START_TEST(what_is_not_claimed_is_free_for_the_next_user)
{
	static _Alignas(8) char mem[SMALL];
	char large[900];
	struct mc_texts *t = texts_in(mem);
	uint32_t a, b, c;

	memset(large, 'x', sizeof(large));
	mc_texts_add(t, large, sizeof(large));
	a = mc_texts_add(t, "kept", 4);
	mc_texts_add(t, large, sizeof(large));
	b = mc_texts_add(t, "kept, too", 9);
	mc_texts_add(t, large, sizeof(large));
	mc_texts_close(t);
	t = texts_in(mem);
	ck_assert(mc_texts_claim(t, a));
	ck_assert(mc_texts_claim(t, b));
	ck_assert(mc_texts_claim(t, a));
	ck_assert(!mc_texts_claim(t, 0));
	mc_texts_ready(t);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_ne(mc_texts_add(t, large, sizeof(large)), 0);
	c = mc_texts_add(t, large, sizeof(large));
	ck_assert_uint_eq(c, 0);
	expect_text(t, a, "kept");
	expect_text(t, b, "kept, too");
	mc_texts_close(t);
}
END_TEST

START_TEST(a_place_is_read_as_it_was_written_and_goes_with_its_last_node)
{
	struct mc_takeover *t;
	struct mc_nodes *nodes;
	struct mc_place *p;
	struct mc_place_was was;
	struct mc_node *a, *b;
	uint32_t ref;

	ck_assert_int_eq(mc_takeover_open(&t), 0);
	ck_assert_int_eq(mc_nodes_open(&nodes), 0);
	mc_nodes_record(nodes, t);
	ck_assert_int_eq(mc_place_open("org", "model", NULL, NULL, &p), 0);
	ck_assert_int_eq(
		mc_nodes_get(nodes, &(struct mc_spot){.kind = MC_NODE_LATEST, .place = p}, &a), 0);
	ck_assert_int_eq(
		mc_nodes_get(nodes, &(struct mc_spot){.kind = MC_NODE_VIEW_LATEST, .place = p}, &b),
		0);
	ref = mc_takeover_node(t, a->slot)->place;
	ck_assert_uint_eq(mc_takeover_node(t, b->slot)->place, ref);
	ck_assert(mc_place_was(t, ref, &was));
	ck_assert_str_eq(was.org, "org");
	ck_assert_str_eq(was.model, "model");
	ck_assert_ptr_null(was.rev);
	ck_assert_ptr_null(was.layout);
	ck_assert_ptr_null(was.manifest);
	ck_assert_uint_eq(was.hash, p->hash);
	mc_nodes_put(nodes, a, 1);
	ck_assert_uint_eq(p->record, ref);
	mc_nodes_put(nodes, b, 1);
	ck_assert_uint_eq(p->record, 0);
	mc_place_unref(p);
	mc_nodes_close(nodes);
	mc_takeover_close(t);
}
END_TEST

START_TEST(nodes_come_back_with_their_numbers_and_old_numbers_stay_dead)
{
	const struct mc_spot first = {.kind = MC_NODE_KV_FILE, .at = MC_AT_DRAM, .key = "a/b"},
			     later = {.kind = MC_NODE_KV_FILE, .at = MC_AT_DRAM, .key = "c"};
	struct mc_nodes *t;
	struct mc_node *n;
	uint64_t id;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	ck_assert_int_eq(mc_nodes_restore(t, &(struct mc_node_was){.slot = 1, .gen = 8}, &n), 0);
	ck_assert_ptr_null(n);
	ck_assert_int_eq(
		mc_nodes_restore(t,
			&(struct mc_node_was){.slot = 2, .gen = 5, .refs = 3, .spot = first}, &n),
		0);
	id = mc_node_id(n);
	ck_assert_uint_eq(id, UINT64_C(1) << 62 | UINT64_C(5) << 32 | 3);
	ck_assert_ptr_eq(mc_nodes_find(t, id), n);
	ck_assert(mc_nodes_has(t, &first));
	ck_assert_ptr_null(mc_nodes_find(t, UINT64_C(7) << 32 | 2));
	ck_assert_ptr_null(mc_nodes_forget(t, n, 3));
	ck_assert_ptr_null(mc_nodes_find(t, id));
	ck_assert_int_eq(mc_nodes_get(t, &later, &n), 0);
	ck_assert_uint_eq(n->slot, 2);
	ck_assert_uint_eq(n->gen, 6);
	ck_assert_int_eq(mc_nodes_get(t, &first, &n), 0);
	ck_assert_uint_eq(n->slot, 1);
	ck_assert_uint_eq(n->gen, 8);
	mc_nodes_close(t);
}
END_TEST

START_TEST(a_table_is_passed_on_by_its_descriptor_and_other_memory_refused)
{
	struct mc_takeover *a, *b;

	ck_assert_int_eq(mc_takeover_open(&a), 0);
	mc_takeover_head(a)->start_s = 77;
	ck_assert(mc_takeover_on(a));
	ck_assert_int_eq(mc_takeover_from(dup(mc_takeover_fd(a)), &b), 0);
	ck_assert_int_eq(mc_takeover_head(b)->start_s, 77);
	mc_takeover_end(b, MC_TAKEOVER_FULL);
	ck_assert(!mc_takeover_on(a));
	ck_assert_ptr_nonnull(mc_takeover_why_not(a));
	ck_assert_ptr_null(mc_takeover_node(a, 1));
	mc_takeover_close(b);
	mc_takeover_head(a)->magic[0] = 'x';
	ck_assert_int_eq(mc_takeover_from(dup(mc_takeover_fd(a)), &b), -EPROTO);
	ck_assert_int_eq(mc_takeover_from(dup(STDERR_FILENO), &b), -EPROTO);
	mc_takeover_close(a);
}
END_TEST

START_TEST(more_nodes_than_records_end_the_table_and_nothing_else)
{
	struct mc_takeover *t;

	ck_assert_int_eq(mc_takeover_open(&t), 0);
	ck_assert_ptr_nonnull(mc_takeover_node(t, (1u << 22) - 1));
	ck_assert_ptr_null(mc_takeover_node(t, 1u << 22));
	ck_assert(!mc_takeover_on(t));
	mc_takeover_close(t);
}
END_TEST

/* ---- kills */

#define NAMES 24

/* What a kernel would hold, which knows of a node from the answer on and until it gives it back. */
struct kernel {
	_Atomic uint64_t ids[NAMES], lookups[NAMES];
	_Atomic uint64_t rounds;
};

static void key_of(unsigned i, char out[32])
{
	snprintf(out, 32, "some/directory/key-%u", i * i * 131);
}

static void work(struct mc_takeover *t, struct kernel *k, unsigned seed)
{
	struct mc_nodes *nodes;
	struct mc_place *p;

	if (mc_nodes_open(&nodes) < 0 || mc_place_open("org", NULL, NULL, NULL, &p) < 0)
		_exit(1);
	mc_nodes_record(nodes, t);
	for (;;) {
		unsigned i = (unsigned)rand_r(&seed) % NAMES;
		char key[32];
		const struct mc_spot s = {
			.kind = MC_NODE_KV_FILE, .at = MC_AT_NVME, .place = p, .key = key};
		struct mc_node *n;

		key_of(i, key);
		if (atomic_load(&k->lookups[i]) > 3 || rand_r(&seed) % 3 == 0) {
			uint64_t had = atomic_exchange(&k->lookups[i], 0);

			n = mc_nodes_find(nodes, atomic_load(&k->ids[i]));
			if (had > 0)
				mc_nodes_put(nodes, n, had);
		} else if (mc_nodes_get(nodes, &s, &n) == 0) {
			atomic_store(&k->ids[i], mc_node_id(n));
			atomic_fetch_add(&k->lookups[i], 1);
		}
		atomic_fetch_add(&k->rounds, 1);
	}
}

/* Everything that the kernel knows is in the table, with its name and no fewer references. */
static void check_records(struct mc_takeover *t, const struct kernel *k)
{
	for (unsigned i = 0; i < NAMES; i++) {
		uint64_t lookups = atomic_load(&k->lookups[i]), id = atomic_load(&k->ids[i]);
		struct mc_node_record *r;
		struct mc_place_was was;
		const char *text;
		char key[32];
		size_t len;

		if (lookups == 0)
			continue;
		key_of(i, key);
		r = mc_takeover_node(t, (uint32_t)id - 1);
		ck_assert_ptr_nonnull(r);
		ck_assert_uint_eq(atomic_load(&r->used), 1);
		ck_assert_uint_eq(r->gen, (uint32_t)(id >> 32) & 0x1fffffff);
		ck_assert_uint_ge(atomic_load(&r->refs), lookups);
		text = mc_texts_get(mc_takeover_texts(t), r->key, &len);
		ck_assert_ptr_nonnull(text);
		ck_assert_uint_eq(len, strlen(key) + 1);
		ck_assert_str_eq(text, key);
		ck_assert(mc_place_was(t, r->place, &was));
		ck_assert_str_eq(was.org, "org");
	}
}

START_TEST(a_kill_at_any_moment_leaves_what_the_kernel_knows)
{
	const char *given = getenv("MC_SEED");
	unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	struct kernel *k =
		mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	printf("seed %u\n", seed);
	fflush(stdout);
	ck_assert_ptr_ne(k, MAP_FAILED);
	for (unsigned round = 0; round < 40; round++) {
		uint64_t rounds = 1 + (unsigned)rand_r(&seed) % 20000;
		struct mc_takeover *t;
		pid_t child;
		int status;

		memset(k, 0, sizeof(*k));
		ck_assert_int_eq(mc_takeover_open(&t), 0);
		child = fork();
		ck_assert_int_ge(child, 0);
		if (child == 0)
			work(t, k, seed);
		while (atomic_load(&k->rounds) < rounds)
			usleep(200);
		kill(child, SIGKILL);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFSIGNALED(status));
		check_records(t, k);
		mc_takeover_close(t);
	}
	munmap(k, sizeof(*k));
}
END_TEST

SUITE_MAIN("takeover", texts_are_there_until_they_are_dropped_and_full_is_told,
	what_is_not_claimed_is_free_for_the_next_user,
	a_place_is_read_as_it_was_written_and_goes_with_its_last_node,
	nodes_come_back_with_their_numbers_and_old_numbers_stay_dead,
	a_table_is_passed_on_by_its_descriptor_and_other_memory_refused,
	more_nodes_than_records_end_the_table_and_nothing_else,
	a_kill_at_any_moment_leaves_what_the_kernel_knows)
