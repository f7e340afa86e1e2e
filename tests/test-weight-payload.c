/* The payload of Mooncake's stored manifests: files below a root, fragments as parts of tensors. */
#include "manifest/dtype.h"
#include "manifest/weight-payload.h"
#include "tests/suite.h"
#include "tests/tier-dir.h"
#include "tier/store.h"

#include <errno.h>
#include <semaphore.h>

#define DRAM (UINT64_C(64) << 20)
#define BIG (3 * MC_BLOCK_SIZE + 100) /* bytes of object 1 */

static const struct mc_model model = {
	.config_path = "config.json", .architecture = "X", .quantisation = ""};
static char *root, *dram;

static void make_dirs(void)
{
	root = tier_dir_make("/var/tmp");
	dram = tier_dir_make("/dev/shm");
}

static void remove_dirs(void)
{
	tier_dir_remove(root);
	tier_dir_remove(dram);
}

/* Two tensors: "a" in two parts of object 0, "b" alone in object 1, at their ends. */
static struct mc_weight_manifest *manifest(const char *dtype, unsigned size, const char *object)
{
	char text[2000];
	struct mc_weight_manifest *w = NULL;
	struct mc_err err = {0};

	snprintf(text, sizeof(text),
		"{\"resource_kind\":\"model_weight\",\"namespace\":\"n\",\"resource_id\":\"r\","
		"\"revision\":\"1\",\"weight_generation\":1,\"group_id\":\"g\",\"manifest_key\":"
		"\"g/manifest\",\"created_at\":\"2026\",\"tensors\":["
		"{\"tensor_id\":\"b\",\"global_shape\":[%llu],\"dtype\":\"uint8\",\"itemsize\":1,"
		"\"layer_id\":null,\"expert_id\":null,\"layout_fingerprint\":\"x\",\"shard_dims\":["
		"]"
		",\"parallel_axes\":[]},"
		"{\"tensor_id\":\"a\",\"global_shape\":[4,6],\"dtype\":\"%s\",\"itemsize\":%u,"
		"\"layer_id\":null,\"expert_id\":null,\"layout_fingerprint\":\"x\",\"shard_dims\":["
		"]"
		",\"parallel_axes\":[]}],\"fragments\":["
		"{\"fragment_id\":\"2\",\"tensor_id\":\"a\",\"global_offset\":[0,2],\"local_shape\""
		":[4,4],\"object_key\":\"g/payload/%s\",\"object_offset\":100,\"nbytes\":%u,"
		"\"aliases\":[]},"
		"{\"fragment_id\":\"1\",\"tensor_id\":\"a\",\"global_offset\":[0,0],\"local_shape\""
		":[4,2],\"object_key\":\"g/payload/%s\",\"object_offset\":7,\"nbytes\":%u,"
		"\"aliases\":[]},"
		"{\"fragment_id\":\"3\",\"tensor_id\":\"b\",\"global_offset\":[0],\"local_shape\":"
		"[%llu],\"object_key\":\"g/payload/1\",\"object_offset\":100,\"nbytes\":%llu,"
		"\"aliases\":[]}]}",
		(unsigned long long)(BIG - 100), dtype, size, object, 16 * size, object, 8 * size,
		(unsigned long long)(BIG - 100), (unsigned long long)(BIG - 100));
	ck_assert_msg(mc_weight_manifest_parse(text, strlen(text), &w, &err) == 0, "%s", err.text);
	return w;
}

static uint8_t byte_at(uint64_t off)
{
	return (uint8_t)(off * 7 + (off >> 12));
}

/* An object of size bytes whose bytes name their places. */
static void put_object(const char *name, uint64_t size)
{
	char path[400];
	FILE *f;

	snprintf(path, sizeof(path), "%s/g", root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/g/payload", root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/g/payload/%s", root, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	for (uint64_t i = 0; i < size; i++)
		putc(byte_at(i), f);
	ck_assert_int_eq(fclose(f), 0);
}

/* A new, empty root. */
static struct mc_remote *open_root(void)
{
	struct mc_remote *r = NULL;
	struct mc_err err = {0};
	char url[300];

	make_dirs();
	snprintf(url, sizeof(url), "dir:%s", root);
	ck_assert_msg(mc_remote_open(url, NULL, &r, &err) == 0, "%s", err.text);
	return r;
}

START_TEST(fragments_are_parts_of_tensors_in_files)
{
	struct mc_weight_manifest *w = manifest("bfloat16", 2, "0");
	struct mc_remote *r = open_root();
	struct mc_manifest *m = NULL, *again = NULL, *unseen = NULL;
	struct mc_err err = {0};
	struct mc_model facts;
	struct mc_tensor t;
	struct mc_entry e;

	put_object("0", 500);
	put_object("1", BIG);
	ck_assert_msg(mc_weight_payload(w, r, &model, &m, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(mc_manifest_tensors(m), 3);
	mc_manifest_tensor(m, 0, &t);
	ck_assert_str_eq(t.name, "a");
	ck_assert_uint_eq(t.dtype, MC_DTYPE_BF16);
	ck_assert(t.boxed);
	ck_assert_uint_eq(t.box_off[1], 0);
	ck_assert_uint_eq(t.shape[1], 2);
	ck_assert_uint_eq(t.off, 7);
	mc_manifest_tensor(m, 1, &t);
	ck_assert_uint_eq(t.box_off[1], 2);
	ck_assert_uint_eq(t.global[1], 6);
	ck_assert_uint_eq(t.off, 100);
	ck_assert_uint_eq(t.len, 32);
	mc_manifest_tensor(m, 2, &t);
	ck_assert(!t.boxed);
	mc_manifest_entry(m, t.entry, &e);
	ck_assert_str_eq(e.name, "g/payload/1");
	ck_assert_uint_eq(e.size, BIG);
	mc_manifest_model(m, &facts);
	ck_assert_str_eq(facts.architecture, "X");
	/* What is the same has the same id; nobody looked is another one. */
	ck_assert_int_eq(mc_weight_payload(w, r, &model, &again, &err), 0);
	ck_assert_mem_eq(mc_manifest_id(m), mc_manifest_id(again), MC_SHA256_SIZE);
	ck_assert_int_eq(mc_weight_payload(w, NULL, &model, &unseen, &err), 0);
	ck_assert_mem_ne(mc_manifest_id(m), mc_manifest_id(unseen), MC_SHA256_SIZE);
	mc_manifest_entry(unseen, 1, &e);
	ck_assert_uint_eq(e.size, 132);
	mc_manifest_unref(unseen);
	mc_manifest_unref(again);
	mc_manifest_unref(m);
	mc_weight_manifest_free(w);
	mc_remote_close(r);
	remove_dirs();
}
END_TEST

static void read_ended(struct mc_file_read *r, int res)
{
	r->res = res;
	sem_post(r->ctx);
}

/* One block of a file against the bytes of the object; or the error. */
static int read_block(struct mc_file *f, uint64_t block, uint32_t len)
{
	sem_t ended;
	struct mc_file_read r = {.file = f,
		.off = block * MC_BLOCK_SIZE,
		.len = len,
		.done = read_ended,
		.ctx = &ended};
	uint64_t at = r.off;

	sem_init(&ended, 0, 0);
	mc_file_read(&r);
	while (sem_wait(&ended) < 0)
		;
	sem_destroy(&ended);
	if (r.res < 0)
		return r.res;
	for (unsigned i = 0; i < r.n_iov; i++)
		for (size_t k = 0; k < r.iov[i].iov_len; k++, at++)
			ck_assert_uint_eq(((uint8_t *)r.iov[i].iov_base)[k], byte_at(at));
	mc_file_read_end(&r);
	return 0;
}

START_TEST(objects_are_read_as_they_are_and_a_change_is_an_error)
{
	struct mc_weight_manifest *w = manifest("uint8", 1, "0");
	struct mc_remote *r = open_root();
	struct mc_store_opts opts = {.remote = r, .dram_dir = dram, .dram_capacity = DRAM};
	struct mc_store_stats stats;
	struct mc_manifest *m = NULL;
	struct mc_store *s = NULL;
	struct mc_source *src;
	struct mc_file *f;
	struct mc_err err = {0};
	char path[300];

	put_object("0", 500);
	put_object("1", BIG);
	ck_assert_int_eq(mc_weight_payload(w, r, &model, &m, &err), 0);
	ck_assert_msg(mc_store_open(&opts, &s, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_manifest_source(m, 2, &src), 0);
	ck_assert_int_eq(mc_store_file_get(s, src, &f), 0);
	ck_assert_int_eq(read_block(f, 0, MC_BLOCK_SIZE), 0);
	ck_assert_int_eq(read_block(f, 3, 100), 0);
	mc_store_stats(s, &stats);
	ck_assert_uint_ge(stats.fetched_bytes, MC_BLOCK_SIZE + 100);
	mc_file_put(f);
	mc_store_close(s, false);
	/* Anew, and the object grows behind its back. */
	s = NULL;
	ck_assert_msg(mc_store_open(&opts, &s, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_manifest_source(m, 2, &src), 0);
	ck_assert_int_eq(mc_store_file_get(s, src, &f), 0);
	snprintf(path, sizeof(path), "%s/g/payload/1", root);
	ck_assert_int_eq(truncate(path, BIG + 1), 0);
	ck_assert_int_eq(read_block(f, 1, MC_BLOCK_SIZE), -EIO);
	mc_file_put(f);
	mc_store_close(s, false);
	mc_manifest_unref(m);
	mc_weight_manifest_free(w);
	mc_remote_close(r);
	remove_dirs();
}
END_TEST

START_TEST(objects_that_do_not_hold_their_fragments_are_refused)
{
	static const struct {
		const char *object, *dtype;
		unsigned size; /* bytes of an element */
		int code;
		const char *text;
	} cases[] = {{"0", "uint8", 1, 0, ""}, {"0", "torch.bfloat16", 2, 0, ""},
		{"0", "bfloat16", 4, -EBADMSG, "\"bfloat16\" of 4 bytes is no type"},
		{"0", "qint8", 1, -EBADMSG, "\"qint8\" of 1 bytes is no type"},
		{"0", "float64", 8, -EINVAL, "has 200 bytes, its fragments need 228"},
		{"none", "uint8", 1, -EINVAL, "g/payload/none: No such file"},
		{"dir", "uint8", 1, -EINVAL, "g/payload/dir is no plain file"},
		{"out/passwd", "uint8", 1, -EINVAL, "g/payload/out/passwd"},
		{"../x", "uint8", 1, -EBADMSG, "no path below the root"},
		{"a//b", "uint8", 1, -EBADMSG, "no path below the root"},
		{"", "uint8", 1, -EBADMSG, "no path below the root"}};
	struct mc_remote *r = open_root();
	char path[300];

	put_object("0", 200);
	put_object("1", BIG);
	snprintf(path, sizeof(path), "%s/g/payload/dir", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/g/payload/out", root);
	ck_assert_int_eq(symlink("/etc", path), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct mc_weight_manifest *w =
			manifest(cases[i].dtype, cases[i].size, cases[i].object);
		struct mc_manifest *m = NULL;
		struct mc_err err = {0};

		ck_assert_int_eq(mc_weight_payload(w, r, &model, &m, &err), cases[i].code);
		ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s", err.text);
		mc_manifest_unref(m);
		mc_weight_manifest_free(w);
	}
	mc_remote_close(r);
	remove_dirs();
}
END_TEST

SUITE_MAIN("weight-payload", fragments_are_parts_of_tensors_in_files,
	objects_are_read_as_they_are_and_a_change_is_an_error,
	objects_that_do_not_hold_their_fragments_are_refused)
