/* Scrubbing of KV objects: written anew, dropped, or told as lost. */
#include "tests/kv-fixture.h"
#include "tests/scrub-fixture.h"

static struct {
	struct mc_mutex lock;
	unsigned lost;
	char text[512];
} told = {.lock = MC_MUTEX_INIT};

static void on_event(void *ctx, const char *event, const char *text)
{
	if (strcmp(event, "kv-object-lost") != 0)
		return;
	mc_mutex_lock(&told.lock);
	told.lost++;
	snprintf(told.text, sizeof(told.text), "%s", text);
	mc_mutex_unlock(&told.lock);
}

static bool flip_in(const char *path, const char *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *map, *at;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	map = st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	at = map != NULL ? memmem(map, (size_t)st.st_size, bytes, size) : NULL;
	if (at != NULL)
		flip(path, (uint64_t)(at - map) + dice(size));
	if (map != NULL)
		munmap(map, (size_t)st.st_size);
	return at != NULL;
}

static const char *wanted_bytes;
static size_t wanted_size;
static unsigned flipped;

static int flip_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (type == FTW_F && strstr(path, "journal") == NULL)
		flipped += flip_in(path, wanted_bytes, wanted_size);
	return 0;
}

/* Flips a bit of the object's payload, wherever it lies on NVMe: large ones lie in parts. */
static void flip_object(const struct kv_fixture *x, size_t size, uint32_t object_seed)
{
	int fd = memfd_create("object", MFD_CLOEXEC);
	char *bytes;

	ck_assert_int_ge(fd, 0);
	kv_fill_fd(fd, size, object_seed);
	bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	close(fd);
	wanted_size = size < 64 ? size : 64;
	wanted_bytes = bytes + dice(size - wanted_size + 1) / 64 * 64;
	flipped = 0;
	ck_assert_int_eq(nftw(x->nvme, flip_file, 16, FTW_PHYS), 0);
	ck_assert_uint_eq(flipped, 1);
	munmap(bytes, size);
}

/* A store of nothing, for a scrub of KV alone. */
struct both {
	struct place p;
	struct kv_fixture x;
};

static void both_open(struct both *b, bool remote)
{
	place_make(&b->p);
	place_open(&b->p, 64 * MIB, 0);
	kv_fixture_paths(&b->x, 128 * MIB);
	b->x.opts.nvme_dir = b->x.nvme;
	b->x.opts.nvme_capacity = 512 * MIB;
	b->x.opts.event = on_event;
	if (remote) {
		kv_fixture_remote(&b->x);
		b->x.opts.replicas = 1;
	}
	kv_fixture_start(&b->x);
	told.lost = 0;
}

static void both_close(struct both *b)
{
	kv_fixture_close(&b->x);
	place_close(&b->p, false);
	place_remove(&b->p);
}

static const struct object {
	const char *key;
	size_t size;
} objects[] = {{"tiny", 100}, {"small", 5000}, {"record", 300000}, {"blocks", (1u << 20) + 77},
	{"large", 6u << 20}, {"image", (9u << 20) + 5}, {"other", 7000}, {"end", 64}};
#define N_OBJECTS (sizeof(objects) / sizeof(*objects))

static void put_all(struct both *b)
{
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		ck_assert_int_eq(kv_put(b->x.kv, objects[i].key, objects[i].size, i + 1, 0), 0);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		ck_assert_int_eq(mc_kv_sync(b->x.kv, objects[i].key), 0);
}

static struct mc_kv_attr attr_of(struct both *b, uint32_t i)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(b->x.kv, objects[i].key, &a), 0);
	return a;
}

static void leave_dram(struct both *b, uint32_t i)
{
	while (mc_kv_evict(b->x.kv, objects[i].key) != 0)
		usleep(1000); /* it is being flushed or copied */
}

START_TEST(damaged_objects_are_written_anew_from_dram)
{
	struct both b;
	struct mc_scrub_counts c;

	scrub_seed = seed_choose();
	both_open(&b, false);
	put_all(&b);
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_ge(c.checked, N_OBJECTS);
	ck_assert_uint_eq(c.bad, 0);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		flip_object(&b.x, objects[i].size, i + 1);
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_eq(c.bad, N_OBJECTS);
	ck_assert_uint_eq(c.repaired, N_OBJECTS);
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		ck_assert_int_eq(mc_kv_sync(b.x.kv, objects[i].key), 0);
		leave_dram(&b, i);
		kv_expect(b.x.kv, objects[i].key, objects[i].size, i + 1);
	}
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_eq(c.bad, 0);
	both_close(&b);
}
END_TEST

START_TEST(damaged_objects_with_a_copy_on_the_remote_leave_nvme)
{
	struct both b;
	struct mc_scrub_counts c;

	scrub_seed = seed_choose();
	both_open(&b, true);
	put_all(&b);
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		while (attr_of(&b, i).remotes == 0)
			usleep(1000);
		leave_dram(&b, i);
		flip_object(&b.x, objects[i].size, i + 1);
	}
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_eq(c.bad, N_OBJECTS);
	ck_assert_uint_eq(c.dropped, N_OBJECTS);
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		ck_assert_uint_eq(attr_of(&b, i).nvme, 0);
		kv_expect(b.x.kv, objects[i].key, objects[i].size, i + 1);
	}
	ck_assert_uint_eq(one_pass(b.p.store, b.x.kv).bad, 0);
	both_close(&b);
}
END_TEST

START_TEST(a_damaged_last_copy_stays_and_is_told)
{
	struct both b;
	struct mc_scrub_counts c;
	struct mc_kv_object *obj;

	scrub_seed = seed_choose();
	both_open(&b, false);
	put_all(&b);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		leave_dram(&b, i);
	flip_object(&b.x, objects[1].size, 2);
	for (unsigned i = 1; i <= 2; i++) { /* each pass says so */
		c = one_pass(b.p.store, b.x.kv);
		ck_assert_uint_eq(c.bad, 1);
		ck_assert_uint_eq(c.lost, 1);
		ck_assert_uint_eq(told.lost, i);
		ck_assert_ptr_nonnull(strstr(told.text, "key=\"small\""));
		ck_assert_uint_gt(attr_of(&b, 1).nvme, 0);
		usleep(100000); /* lines are not written all at once */
	}
	ck_assert_int_eq(kv_open_object(b.x.kv, objects[1].key, &obj), -EIO);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		if (i != 1)
			kv_expect(b.x.kv, objects[i].key, objects[i].size, i + 1);
	both_close(&b);
}
END_TEST

SUITE_MAIN("scrub-kv", damaged_objects_are_written_anew_from_dram,
	damaged_objects_with_a_copy_on_the_remote_leave_nvme, a_damaged_last_copy_stays_and_is_told)
