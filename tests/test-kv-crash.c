/*
 * Crash exploration of the whole KV store: sequences of at most three operations on two keys, from
 * an empty store and from one that holds both, with a crash at every changing call of the last
 * operation; see kv-crash-run.h.
 *
 * A sample of the sequences of three is explored, with MC_LONG=1 all of them
 * (tests/crash-explore.sh); MC_SEED=n chooses others.
 */
#include "tests/kv-crash-run.h"
#include "tests/suite.h"
#include "tier/lock.h"

#include <linux/capability.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SAMPLE 12 /* sequences, of each kind of crash */

/* A crash at each call of the last step. False: it does nothing, nor what would follow it. */
static bool explore_last(const struct kv_sequence *s, struct kv_told *t, unsigned *states)
{
	uint64_t end;

	kv_crash_explore(s, 0, t);
	++*states;
	if (t->idle)
		return false;
	end = t->calls + 1;
	for (uint64_t at = t->before + 1; at <= end; at++, ++*states)
		kv_crash_explore(s, at, t);
	return true;
}

static void extend(struct kv_sequence *s, struct kv_told *t, unsigned *states)
{
	if (s->n > 0 && !explore_last(s, t, states))
		return;
	for (unsigned step = 0; step < STEPS && s->n < KV_SEQUENCE_MAX; step++) {
		s->steps[s->n++] = step;
		extend(s, t, states);
		s->n--;
		if (s->n == 0) { /* the long mode runs for hours */
			printf("first step %u of %u: %u states so far\n", step + 1, STEPS, *states);
			fflush(stdout);
		}
	}
}

/* One more sequence, with a crash at some of the calls of its last step. */
static void pick(struct kv_sequence *s, struct kv_told *t, unsigned *states, unsigned *seed)
{
	uint64_t first, end;

	s->n = KV_SEQUENCE_MAX;
	for (unsigned i = 0; i < s->n; i++)
		s->steps[i] = (enum kv_step)((unsigned)rand_r(seed) % STEPS);
	kv_crash_explore(s, 0, t);
	first = t->before + 1;
	end = t->calls + 1;
	++*states;
	for (unsigned i = 0; i < 3 && !t->idle; i++, ++*states)
		kv_crash_explore(s, first + (unsigned)rand_r(seed) % (end - first + 1), t);
}

static struct kv_told *make_told(void)
{
	struct kv_told *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(t, MAP_FAILED);
	return t;
}

static void explore_all(enum kv_crash crash)
{
	struct kv_told *t = make_told();
	unsigned states = 0, seed = kv_crash_seed() * CRASHES + crash;
	struct kv_sequence s = {.crash = crash};
	uint64_t start = mc_now_ns();

	for (unsigned i = 0; i < (getenv("MC_LONG") != NULL ? 2 * KV_REMOTES : SAMPLE); i++) {
		s.full = i % 2 != 0;
		s.remote = (enum kv_crash_remote)(i / 2 % KV_REMOTES);
		if (getenv("MC_LONG") != NULL)
			extend(&s, t, &states);
		else
			pick(&s, t, &states, &seed);
	}
	munmap(t, sizeof(*t));
	printf("%s: %u states in %.1f s, MC_SEED=%u\n", kv_crash_names[crash], states,
		(double)(mc_now_ns() - start) / 1e9, kv_crash_seed());
}

START_TEST(recovers_from_a_power_failure_at_every_call)
{
	explore_all(POWER);
}
END_TEST

START_TEST(goes_on_after_a_kill_at_every_call)
{
	explore_all(KILL);
}
END_TEST

START_TEST(recovers_from_a_kill_at_every_call_and_a_reboot)
{
	explore_all(KILL_REBOOT);
}
END_TEST

/* Crashes during the last step only. */
static void check_last(struct kv_sequence *s)
{
	struct kv_told *t = make_told();
	unsigned states = 0;

	ck_assert(explore_last(s, t, &states));
	munmap(t, sizeof(*t));
}

START_TEST(a_rename_is_seen_once_after_a_kill_between_journal_and_memory)
{
	struct kv_sequence s = {.steps = {EVICT_A, RENAME_BA}, .n = 2, .full = true, .crash = KILL};

	check_last(&s);
}
END_TEST

START_TEST(a_remote_copy_is_not_counted_on_after_a_kill_while_it_was_removed)
{
	struct kv_sequence s = {.steps = {REMOVE_A},
		.n = 1,
		.full = true,
		.remote = KV_REMOTE_FIRST,
		.crash = KILL};

	check_last(&s);
	s.steps[0] = RENAME_BA;
	check_last(&s);
}
END_TEST

START_TEST(a_remote_copy_that_no_record_tells_of_does_not_bring_back_what_is_removed)
{
	struct kv_sequence s = {
		.steps = {PUT_A}, .n = 1, .remote = KV_REMOTE_FIRST, .crash = POWER};

	check_last(&s);
}
END_TEST

START_TEST(a_remote_copy_made_for_room_on_nvme_does_not_bring_back_what_is_removed_or_replaced)
{
	struct kv_told *t = make_told();
	unsigned states = 0;

	for (enum kv_crash crash = POWER; crash < CRASHES; crash++)
		for (unsigned key = 0; key < 2; key++) {
			struct kv_sequence s = {.steps = {key == 0 ? DROP_A : DROP_B},
				.n = 1,
				.full = true,
				.remote = KV_REMOTE_LAST,
				.crash = crash};

			ck_assert(explore_last(&s, t, &states));
		}
	munmap(t, sizeof(*t));
	printf("%u states\n", states);
}
END_TEST

START_TEST(what_a_rename_replaced_does_not_come_back_when_the_new_name_is_removed)
{
	struct kv_sequence s = {.steps = {RENAME_AB, REMOVE_B},
		.n = 2,
		.full = true,
		.remote = KV_REMOTE_FIRST,
		.crash = POWER};

	check_last(&s);
}
END_TEST

/* In DRAM and on the remote, and not on NVMe; what has the new name lies there as well, or on NVMe.
 */
START_TEST(a_rename_on_the_remote_is_seen_once_after_a_kill_between_its_names)
{
	struct kv_told *t = make_told();
	unsigned states = 0;

	for (enum kv_crash crash = POWER; crash < CRASHES; crash++)
		for (unsigned both = 0; both < 2; both++) {
			struct kv_sequence s = {.steps = {both ? DROP_B : DROP_A, DROP_A},
				.n = 2 + both,
				.full = true,
				.remote = KV_REMOTE_LAST,
				.crash = crash};

			s.steps[s.n - 1] = RENAME_AB;
			ck_assert(explore_last(&s, t, &states));
		}
	munmap(t, sizeof(*t));
	printf("%u states\n", states);
}
END_TEST

/* Without the right to mount the DRAM tier is a directory: unmounting is most of the time else. */
static void drop_mounts(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) != 0)
		return;
	data[0].effective &= ~(1u << CAP_SYS_ADMIN);
	syscall(SYS_capset, &head, data);
}

int main(void)
{
	const TTest *const tests[] = {recovers_from_a_power_failure_at_every_call,
		goes_on_after_a_kill_at_every_call, recovers_from_a_kill_at_every_call_and_a_reboot,
		a_rename_is_seen_once_after_a_kill_between_journal_and_memory,
		a_remote_copy_is_not_counted_on_after_a_kill_while_it_was_removed,
		a_remote_copy_that_no_record_tells_of_does_not_bring_back_what_is_removed,
		a_remote_copy_made_for_room_on_nvme_does_not_bring_back_what_is_removed_or_replaced,
		what_a_rename_replaced_does_not_come_back_when_the_new_name_is_removed,
		a_rename_on_the_remote_is_seen_once_after_a_kill_between_its_names};

	drop_mounts();
	return suite_run("kv-crash", tests, sizeof(tests) / sizeof(*tests));
}
