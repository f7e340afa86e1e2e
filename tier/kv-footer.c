/*
 * Objects on the remote: payload, then a footer that says what they are. Format: docs/FORMAT.md.
 *
 * The footer is CRC32Cs, key and a tail of fixed size at the very end, little-endian like the
 * machines this runs on; the tail's checksum covers the whole footer.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/digest.h"

#include <string.h>

#define FORMAT 1
#define SIZE_LIMIT (UINT64_C(1) << 44) /* bytes of a payload: a footer is then at most 64 MiB */

struct tail {
	uint64_t length; /* of the payload */
	int64_t mtime_ns;
	uint8_t version[16];
	uint32_t n_crc, key_len;
	uint32_t format;
	uint32_t crc; /* of all of the footer before this field */
	char magic[8];
};
_Static_assert(sizeof(struct tail) == KV_FOOTER_TAIL, "no padding");

const uint8_t kv_dir_version[16];

size_t kv_footer_len(uint32_t n_crc, size_t key_len)
{
	return n_crc * sizeof(uint32_t) + key_len + sizeof(struct tail);
}

void kv_footer_write(const struct mc_kv_meta *meta, char *to)
{
	size_t key_len = strlen(meta->key), n = meta->n_crc * sizeof(uint32_t);
	struct tail t = {
		.length = meta->size,
		.mtime_ns = kv_time_ns(meta->mtime_s, meta->mtime_ns),
		.n_crc = meta->n_crc,
		.key_len = (uint32_t)key_len,
		.format = FORMAT,
		.magic = "MCKVOBJ",
	};

	memcpy(t.version, meta->version, sizeof(t.version));
	if (n > 0)
		memcpy(to, meta->crc, n);
	memcpy(to + n, meta->key, key_len);
	t.crc = mc_crc32c(mc_crc32c(0, to, n + key_len), &t, offsetof(struct tail, crc));
	memcpy(to + n + key_len, &t, sizeof(t));
}

int kv_footer_parse(
	const char *tail, size_t len, uint64_t size, struct kv_footer *ret, size_t *ret_need)
{
	struct tail t;
	size_t footer, n;
	const char *from;
	struct kv_footer f;

	if (len < sizeof(t))
		return -EBADMSG;
	memcpy(&t, tail + len - sizeof(t), sizeof(t));
	if (memcmp(t.magic, "MCKVOBJ", 8) != 0 || t.format != FORMAT || t.key_len == 0 ||
		t.key_len > KV_KEY_MAX || t.length > SIZE_LIMIT ||
		mc_block_count(t.length) != t.n_crc)
		return -EBADMSG;
	n = t.n_crc * sizeof(uint32_t);
	footer = kv_footer_len(t.n_crc, t.key_len);
	if (t.length > size || size - t.length != footer)
		return -EBADMSG;
	if (footer > len) {
		*ret_need = footer;
		return -EAGAIN;
	}
	from = tail + len - footer;
	if (mc_crc32c(mc_crc32c(0, from, n + t.key_len), &t, offsetof(struct tail, crc)) != t.crc)
		return -EBADMSG;
	f = (struct kv_footer){.size = t.length, .mtime_ns = t.mtime_ns, .n_crc = t.n_crc};
	memcpy(f.version, t.version, sizeof(f.version));
	f.crc = malloc(n > 0 ? n : 1);
	f.key = strndup(from + n, t.key_len);
	if (f.crc == NULL || f.key == NULL) {
		kv_footer_done(&f);
		return -ENOMEM;
	}
	memcpy(f.crc, from, n);
	if (strlen(f.key) != t.key_len || kv_key_check(f.key) < 0) {
		kv_footer_done(&f);
		return -EBADMSG;
	}
	*ret = f;
	return 0;
}

void kv_footer_done(struct kv_footer *f)
{
	free(f->crc);
	free(f->key);
	f->crc = NULL;
	f->key = NULL;
}
