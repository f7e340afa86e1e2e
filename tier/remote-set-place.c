/*
 * Which members of a set are the homes of a path, and what a copy must look like as far as its path
 * says. A pure function of names and weights: every node, and every later version, computes the
 * same.
 */
#include "tier/remote-set-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/kv-remote.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define CHUNKS "chunks"
#define KV "kv"

/* Whether path is the directory or lies below it. */
static bool is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

unsigned set_copies(const struct mc_set *s, const char *path)
{
	if (is_in(path, CHUNKS))
		return s->opts.copies;
	return is_in(path, KV) ? s->opts.kv_copies : s->n_homes;
}

bool set_is_ours(const char *path)
{
	static const char *const dirs[] = {CHUNKS, KV, "checkpoints", "layouts"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		if (is_in(path, dirs[i]))
			return true;
	return false;
}

/*
 * The exponential of rate `weight` that (name, path) draws: the smallest is the first home, and a
 * member is first for weight ÷ sum of all paths. Without weight a member comes last.
 */
static int draw(const struct mc_set_url *u, const char *path, double *ret)
{
	size_t n_name = strlen(u->name) + 1, n_path = strlen(path);
	uint8_t digest[MC_SHA256_SIZE];
	char text[2 * MC_REMOTE_PATH_MAX];
	uint64_t h = 0;
	int r;

	if (n_name > MC_REMOTE_PATH_MAX || n_path >= MC_REMOTE_PATH_MAX)
		return -EINVAL;
	memcpy(text, u->name, n_name);
	memcpy(text + n_name, path, n_path);
	r = mc_sha256(text, n_name + n_path, digest);
	for (int i = 7; i >= 0; i--)
		h = h << 8 | digest[i];
	*ret = -log(((double)(h >> 11) + 0.5) / 9007199254740992.0 /* 2^53 */);
	*ret = u->weight > 0 ? *ret / u->weight : INFINITY;
	return r;
}

int set_order(const struct mc_set *s, const char *path, struct set_order *ret)
{
	double draws[MC_SET_MAX];

	ret->copies = set_copies(s, path);
	for (unsigned i = 0; i < s->n; i++) {
		unsigned at = i;
		int r = draw(&s->members[i].url, path, &draws[i]);

		if (r < 0)
			return r;
		for (; at > 0 && draws[ret->at[at - 1]] > draws[i]; at--)
			ret->at[at] = ret->at[at - 1];
		ret->at[at] = (uint8_t)i;
	}
	return 0;
}

/* "chunks/<2 hex>/<64 hex>": the digest that its bytes must have. */
static bool digest_of_chunk(const char *path, uint8_t ret[MC_SHA256_SIZE])
{
	const char *name = strrchr(path, '/');

	return is_in(path, CHUNKS) && name != NULL &&
		mc_hex_decode(name + 1, ret, MC_SHA256_SIZE) == 0;
}

bool set_is_content_named(const char *path)
{
	uint8_t digest[MC_SHA256_SIZE];

	return digest_of_chunk(path, digest);
}

static int check_kv(const char *buf, size_t len)
{
	struct kv_footer f;
	size_t need;
	int r = kv_footer_parse(buf, len, len, &f, &need);

	if (r < 0)
		return r == -ENOMEM ? r : -EBADMSG;
	if (f.n_crc != mc_block_count(f.size))
		r = -EBADMSG;
	for (uint64_t b = 0; r == 0 && b < f.n_crc; b++)
		if (mc_crc32c(0, buf + (b << MC_BLOCK_SHIFT), mc_block_len(f.size, b)) != f.crc[b])
			r = -EBADMSG;
	kv_footer_done(&f);
	return r;
}

int set_check_bytes(const char *path, const void *buf, size_t len)
{
	uint8_t want[MC_SHA256_SIZE], is[MC_SHA256_SIZE];
	int r;

	if (digest_of_chunk(path, want)) {
		r = mc_sha256(buf, len, is);
		return r < 0 ? r : memcmp(is, want, sizeof(is)) == 0 ? 0 : -EBADMSG;
	}
	return is_in(path, KV) ? check_kv(buf, len) : 1;
}
