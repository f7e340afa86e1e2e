/* libFuzzer entry: the end of a KV object on the remote, its checksum put right so that what it
 * says is believed; what is accepted keeps to the rules of keys and sizes. */
#include "tier/digest.h"
#include "tier/kv-remote.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define CRC_FROM_END 12 /* the checksum and the magic behind it */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_checksum_right(char *tail, size_t len)
{
	uint32_t n_crc, key_len, crc;
	uint64_t footer;

	memcpy(&n_crc, tail + len - 24, sizeof(n_crc));
	memcpy(&key_len, tail + len - 20, sizeof(key_len));
	footer = 4 * (uint64_t)n_crc + key_len + KV_FOOTER_TAIL;
	if (footer > len)
		return;
	crc = mc_crc32c(0, tail + len - footer, footer - CRC_FROM_END);
	memcpy(tail + len - CRC_FROM_END, &crc, sizeof(crc));
}

/* The first 8 bytes are the object's size, the rest its end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char tail[8192];
	struct kv_footer f;
	size_t len, need = 0;
	uint64_t whole;
	int r;

	if (size < sizeof(whole) + KV_FOOTER_TAIL || size - sizeof(whole) > sizeof(tail))
		return 0;
	memcpy(&whole, data, sizeof(whole));
	len = size - sizeof(whole);
	memcpy(tail, data + sizeof(whole), len);
	put_checksum_right(tail, len);
	r = kv_footer_parse(tail, len, whole < len ? len : whole, &f, &need);
	assert(r == 0 || r == -EBADMSG || r == -EAGAIN);
	assert(r != -EAGAIN || (need > len && need <= whole));
	if (r != 0)
		return 0;
	assert(f.n_crc == mc_block_count(f.size) && kv_key_check(f.key) == 0);
	kv_footer_done(&f);
	return 0;
}
