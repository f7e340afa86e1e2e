/* See set-fixture.h. */
#include "tests/set-fixture.h"

#include "tests/remote-waiter.h"
#include "tier/digest.h"
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_member(void *ctx, const char *url, const struct mc_remote_opts *opts,
	struct mc_remote **ret, struct mc_err *err)
{
	struct set_fixture *x = ctx;
	unsigned i = (unsigned)(url[strlen(url) - 1] - '0');
	struct mc_remote *inner;
	int r;

	if (__atomic_load_n(&x->away[i], __ATOMIC_SEQ_CST))
		return mc_err_set(err, -ECONNREFUSED, "%s is away", url);
	r = mc_remote_open(url, opts, &inner, err);
	return r < 0 ? r : mc_remote_fault_open(inner, &x->faults[i], ret);
}

static void open_set(struct set_fixture *x)
{
	struct mc_err err = {0};

	ck_assert_msg(
		mc_remote_set_open(x->urls, x->n, &x->opts, &x->r, &err) == 0, "%s", err.text);
}

void set_fixture_open(struct set_fixture *x, unsigned n, unsigned copies)
{
	*x = (struct set_fixture){.root = "/tmp/mc-test-set-XXXXXX", .n = n};
	ck_assert_ptr_nonnull(mkdtemp(x->root));
	for (unsigned i = 0; i < n; i++) {
		char text[128];

		snprintf(text, sizeof(text), "%s/m%u", x->root, i);
		ck_assert_int_eq(mkdir(text, 0700), 0);
		snprintf(text, sizeof(text), "dir:%s/m%u#name=m%u", x->root, i, i);
		ck_assert_int_eq(mc_set_url_parse(text, &x->urls[i], NULL), 0);
	}
	x->remote_opts = (struct mc_remote_opts){.deadline_ms = 4000};
	x->opts = (struct mc_set_opts){.remote = &x->remote_opts,
		.copies = copies,
		.tend = true,
		.open = open_member,
		.ctx = x};
	open_set(x);
}

void set_fixture_reopen(struct set_fixture *x)
{
	mc_remote_close(x->r);
	open_set(x);
}

void set_fixture_done(struct set_fixture *x)
{
	char cmd[100];

	mc_remote_close(x->r);
	for (unsigned i = 0; i < x->n; i++)
		mc_set_url_done(&x->urls[i]);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", x->root);
	ck_assert_int_eq(system(cmd), 0);
}

void chunk_path(const void *buf, size_t len, char *ret)
{
	uint8_t digest[MC_SHA256_SIZE];
	char hex[MC_SHA256_HEX + 1];

	ck_assert_int_eq(mc_sha256(buf, len, digest), 0);
	mc_hex_encode(digest, sizeof(digest), hex);
	snprintf(ret, 80, "chunks/%.2s/%s", hex, hex);
}

void set_homes(struct set_fixture *x, const char *path, unsigned ret[SET_MEMBERS])
{
	struct set_order order;

	ck_assert_int_eq(set_order((struct mc_set *)mc_remote_backend(x->r), path, &order), 0);
	for (unsigned i = 0; i < x->n; i++)
		ret[i] = order.at[i];
}

static void full_path(struct set_fixture *x, unsigned member, const char *path, char ret[512])
{
	snprintf(ret, 512, "%s/m%u/%s", x->root, member, path);
}

bool member_has(
	struct set_fixture *x, unsigned member, const char *path, const void *buf, size_t len)
{
	char full[512], *got = malloc(len + 1);
	bool same;
	FILE *f;

	full_path(x, member, path, full);
	f = fopen(full, "re");
	if (f == NULL || got == NULL) {
		free(got);
		return false;
	}
	same = buf == NULL || (fread(got, 1, len + 1, f) == len && memcmp(got, buf, len) == 0);
	fclose(f);
	free(got);
	return same;
}

void member_write(
	struct set_fixture *x, unsigned member, const char *path, const void *buf, size_t len)
{
	char full[512], cmd[600];
	FILE *f;

	full_path(x, member, path, full);
	snprintf(cmd, sizeof(cmd), "mkdir -p \"$(dirname '%s')\"", full);
	ck_assert_int_eq(system(cmd), 0);
	f = fopen(full, "we");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(buf, 1, len, f), len);
	fclose(f);
}

void member_remove(struct set_fixture *x, unsigned member, const char *path)
{
	char full[512];

	full_path(x, member, path, full);
	ck_assert_int_eq(unlink(full), 0);
}

/* Between two looks at what has no event. */
static void pause_for(uint64_t *left)
{
	ck_assert_uint_gt((*left)--, 0);
	usleep(5000);
}

void await_member_has(
	struct set_fixture *x, unsigned member, const char *path, const void *buf, size_t len)
{
	for (uint64_t left = 12000; !member_has(x, member, path, buf, len);)
		pause_for(&left);
}

void await_up(struct set_fixture *x, unsigned member, bool up)
{
	struct mc_set_status st;

	for (uint64_t left = 12000; mc_remote_set_status(x->r, &st), st.members[member].up != up;)
		pause_for(&left);
}

void await_no_notes(struct set_fixture *x)
{
	struct mc_set_status st;
	uint64_t notes, left = 12000;

	for (;;) {
		notes = 0;
		mc_remote_set_status(x->r, &st);
		for (unsigned i = 0; i < st.n; i++)
			notes += st.members[i].notes;
		if (notes == 0)
			return;
		pause_for(&left);
	}
}

void member_fails(struct set_fixture *x, unsigned member, int error)
{
	const struct mc_fault_rule rule = {
		.op = MC_FAULT_OPS, .kind = MC_FAULT_FAIL, .error = error};

	mc_fault_clear(x->faults[member]);
	if (error != 0)
		mc_fault_add(x->faults[member], &rule);
}

void member_hangs(struct set_fixture *x, unsigned member, bool hangs)
{
	const struct mc_fault_rule rule = {.op = MC_FAULT_OPS, .kind = MC_FAULT_HANG};

	if (hangs)
		mc_fault_add(x->faults[member], &rule);
	else
		mc_fault_clear(x->faults[member]);
}

int set_read_at(struct mc_remote *r, const char *path, void *buf, uint32_t len, uint32_t avoid,
	uint32_t *ret_served)
{
	struct waiter w = {.req.avoid = avoid};
	int res;

	waiter_start(r, &w, path, 0, len, buf);
	res = waiter_wait(&w);
	if (ret_served != NULL)
		*ret_served = w.req.served;
	return res;
}

void set_fixture_open_chunk(
	struct set_fixture *x, unsigned n, unsigned copies, const char *text, char *ret_path)
{
	set_fixture_open(x, n, copies);
	chunk_path(text, strlen(text), ret_path);
	put_text(x, ret_path, text);
}

void put_text(struct set_fixture *x, const char *path, const char *text)
{
	ck_assert_int_eq(mc_remote_put(x->r, path, text, strlen(text), 0, NULL), 0);
}

int read_chunk(struct set_fixture *x, const char *path, const char *text)
{
	char buf[256];
	uint32_t avoid = 0, served;
	int r;

	do {
		r = set_read_at(x->r, path, buf, (uint32_t)strlen(text), avoid, &served);
		avoid |= served;
	} while (r == 0 && memcmp(buf, text, strlen(text)) != 0);
	return r;
}

unsigned count_copies(struct set_fixture *x, const char *path, const char *text)
{
	unsigned n = 0;

	for (unsigned i = 0; i < x->n; i++)
		n += member_has(x, i, path, text, strlen(text));
	return n;
}

struct mc_set_status status_of(struct set_fixture *x)
{
	struct mc_set_status st;

	mc_remote_set_status(x->r, &st);
	return st;
}
