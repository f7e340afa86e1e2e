/* Both sides of a partition write to several remotes: how it ends once all members can be reached.
 */
#include "tests/set-fixture.h"
#include "tests/suite.h"

#include <pthread.h>
#include <stdio.h>

static struct set_fixture x;

/* Puts while the other member is out of reach, as one side of a partition does. */
static void put_on_side(unsigned side, const char *path, const char *text)
{
	x.away[side] = false;
	x.away[!side] = true;
	if (!status_of(&x).members[side].up || status_of(&x).members[!side].up)
		set_fixture_reopen(&x);
	put_text(&x, path, text);
}

static void *open_node(void *arg)
{
	struct mc_remote **r = arg;

	ck_assert_int_eq(mc_remote_set_open(x.urls, x.n, &x.opts, r, NULL), 0);
	return NULL;
}

/* The partition is over; two nodes find what each side did, at the same time. */
static void heal(void)
{
	struct mc_remote *other;
	pthread_t node;

	mc_remote_close(x.r);
	x.opts.open = NULL; /* no member is away */
	ck_assert_int_eq(pthread_create(&node, NULL, open_node, &other), 0);
	open_node(&x.r);
	ck_assert_int_eq(pthread_join(node, NULL), 0);
	await_no_notes(&x);
	ck_assert_int_eq(mc_remote_sync(other, NULL), 0);
	mc_remote_close(other);
	await_no_notes(&x);
}

#define REV "checkpoints/o/m/v1/"

START_TEST(what_both_sides_of_a_partition_wrote_ends_as_one_version)
{
	enum { KEYS = 30 };
	char key[32], text[32];
	bool first;

	set_fixture_open(&x, 2, 2);
	for (unsigned side = 0; side < 2; side++)
		for (unsigned k = 0; k < KEYS; k++) {
			snprintf(key, sizeof(key), "layouts/k%u", k);
			snprintf(text, sizeof(text), "k%u of side %u", k, side);
			put_on_side(side, key, text);
		}
	put_on_side(0, "layouts/only0", "0");
	put_on_side(0, REV "manifest.id", "id 0");
	put_on_side(1, REV "manifest.id", "id 1");
	put_on_side(1, REV "manifest.json", "json 1");
	put_on_side(1, "layouts/only1", "1");
	put_on_side(0, REV "manifest.json", "json 0");
	heal();
	for (unsigned k = 0; k < KEYS; k++) { /* the last one */
		snprintf(key, sizeof(key), "layouts/k%u", k);
		snprintf(text, sizeof(text), "k%u of side 1", k);
		ck_assert_uint_eq(count_copies(&x, key, text), 2);
	}
	ck_assert_uint_eq(count_copies(&x, "layouts/only0", "0"), 2);
	ck_assert_uint_eq(count_copies(&x, "layouts/only1", "1"), 2);
	first = count_copies(&x, REV "manifest.id", "id 0") == 2;
	ck_assert_uint_eq(count_copies(&x, REV "manifest.id", first ? "id 0" : "id 1"), 2);
	ck_assert_uint_eq(count_copies(&x, REV "manifest.json", first ? "json 0" : "json 1"), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(what_one_side_of_a_partition_put_outlives_its_removal_by_the_other)
{
	set_fixture_open(&x, 2, 2);
	put_text(&x, "layouts/k", "old");
	put_text(&x, "layouts/l", "old");
	put_on_side(0, "layouts/k", "new");
	ck_assert_int_eq(mc_remote_unlink(x.r, "layouts/l", NULL), 0);
	put_on_side(1, "layouts/l", "new");
	ck_assert_int_eq(mc_remote_unlink(x.r, "layouts/k", NULL), 0);
	heal();
	ck_assert_uint_eq(count_copies(&x, "layouts/k", "new"), 2);
	ck_assert_uint_eq(count_copies(&x, "layouts/l", "new"), 2);
	set_fixture_done(&x);
}
END_TEST

SUITE_MAIN("remote partition", what_both_sides_of_a_partition_wrote_ends_as_one_version,
	what_one_side_of_a_partition_put_outlives_its_removal_by_the_other)
