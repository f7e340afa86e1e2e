/* Random reshards against the truth: bytes moved, execution, and the order of the input. */
#include "manifest/planner.h"
#include "tests/random.h"
#include "tests/shard-list.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORLD 8 /* participants of the random problems */
#define TENSORS 6
#define CUBE 512 /* bytes of a random tensor at most */

/* A random problem with the truth kept as maps of bytes. */
struct problem {
	char text[TENSORS][8];
	const char *names[TENSORS];
	struct mc_box shape[TENSORS];
	struct list held[TENSORS], wanted[TENSORS];
	uint32_t order[TENSORS]; /* input place of tensor i */
	uint32_t node[WORLD];
};

static struct mc_box random_part(const struct mc_box *shape)
{
	struct mc_box b = *shape;

	for (unsigned d = 0; d < b.rank; d++) {
		b.off[d] = rnd((uint32_t)shape->len[d]);
		b.len[d] = 1 + rnd((uint32_t)(shape->len[d] - b.off[d]));
	}
	return b;
}

static void random_problem(struct problem *q)
{
	for (uint32_t t = 0; t < TENSORS; t++) {
		struct mc_box *s = &q->shape[t];

		snprintf(q->text[t], sizeof(q->text[t]), "t%u", t);
		q->names[t] = q->text[t];
		q->order[t] = t;
		*s = (struct mc_box){.rank = (uint8_t)(1 + rnd(3))};
		for (unsigned d = 0; d < s->rank; d++)
			s->len[d] = 1 + rnd(8);
		q->held[t].n = 0;
		q->wanted[t].n = 0;
		add(&q->held[t], rnd(WORLD), s);
		for (uint32_t i = rnd(5); i > 0; i--) {
			struct mc_box b = rnd(3) == 0 ? *s : random_part(s);

			add(&q->held[t], rnd(WORLD), &b);
		}
		for (uint32_t i = rnd(6); i > 0; i--) {
			struct mc_box b = rnd(3) == 0 ? *s : random_part(s);

			add(&q->wanted[t], rnd(WORLD), &b);
			q->wanted[t].v[q->wanted[t].n - 1].output = i;
		}
	}
	for (uint32_t i = 0; i < WORLD; i++)
		q->node[i] = i / 2;
}

/* Calls fn for every byte of a shard: global byte number in shape, local byte number in place. */
static void each_byte(const struct mc_box *shape, const struct mc_shard *s,
	void (*fn)(void *arg, uint64_t global, uint64_t local), void *arg)
{
	const struct mc_box *box = &s->box;

	for (uint64_t i = 0; i < mc_box_volume(box); i++) {
		uint64_t rest = i, global = 0, local = s->place.base, scale = 1;

		for (unsigned d = box->rank; d-- > 0;) {
			uint64_t x = box->off[d] + rest % box->len[d];

			rest /= box->len[d];
			global += x * scale;
			scale *= shape->len[d];
			local += (x - s->box.off[d]) * s->place.stride[d];
		}
		fn(arg, global, local);
	}
}

static void set_bit(void *arg, uint64_t global, uint64_t local)
{
	(void)local;
	((uint8_t *)arg)[global] = 1;
}

/* Σ over receivers (participants, or nodes) of bytes wanted and not held. */
static uint64_t least_bytes(const struct problem *q, bool nodes)
{
	uint64_t sum = 0;

	for (uint32_t t = 0; t < TENSORS; t++)
		for (uint32_t who = 0; who < WORLD; who++) {
			uint8_t want[CUBE] = {0}, have[CUBE] = {0};

			for (uint32_t i = 0; i < q->wanted[t].n; i++) {
				const struct mc_shard *s = &q->wanted[t].v[i];

				if ((nodes ? q->node[s->participant] : s->participant) == who)
					each_byte(&q->shape[t], s, set_bit, want);
			}
			for (uint32_t i = 0; i < q->held[t].n; i++) {
				const struct mc_shard *s = &q->held[t].v[i];

				if ((nodes ? q->node[s->participant] : s->participant) == who)
					each_byte(&q->shape[t], s, set_bit, have);
			}
			for (size_t i = 0; i < CUBE; i++)
				sum += want[i] > have[i];
		}
	return sum;
}

struct built {
	struct mc_side held, wanted;
	struct mc_reshard *plan;
};

static void build(struct problem *q, bool node_local, struct built *b)
{
	const char *names[TENSORS];
	struct mc_reshard_in in = {.names = names,
		.n_tensors = TENSORS,
		.held = &b->held,
		.wanted = &b->wanted,
		.node = q->node,
		.n_participants = WORLD,
		.node_local = node_local};
	struct mc_err err = {{0}};
	int r;

	ck_assert_int_eq(mc_side_init(&b->held, TENSORS), 0);
	ck_assert_int_eq(mc_side_init(&b->wanted, TENSORS), 0);
	for (uint32_t i = 0; i < TENSORS; i++) {
		uint32_t at = q->order[i];

		names[at] = q->names[i];
		ck_assert_int_eq(mc_side_set(&b->held, at, q->held[i].v, q->held[i].n, NULL), 0);
		ck_assert_int_eq(
			mc_side_set(&b->wanted, at, q->wanted[i].v, q->wanted[i].n, NULL), 0);
	}
	b->plan = NULL;
	r = mc_reshard_plan(&in, &b->plan, &err);
	ck_assert_msg(r == 0, "%d: %s", r, err.text);
}

static void unbuild(struct built *b)
{
	mc_reshard_free(b->plan);
	mc_side_done(&b->held);
	mc_side_done(&b->wanted);
}

/* Memory of every shard of one tensor, byte i of the tensor encoded as i + 1 (16 bits). */
struct memory {
	uint16_t v[64][CUBE];
};

struct fill {
	uint16_t *to;
};

static void encode(void *arg, uint64_t global, uint64_t local)
{
	((struct fill *)arg)->to[local] = (uint16_t)(global + 1);
}

static void run_link(const struct built *b, const struct mc_link *l, struct memory *held,
	struct memory *wanted, uint32_t held_first, uint32_t wanted_first)
{
	struct mc_region g;
	const uint16_t *from = l->kind == MC_LINK_COPY ? wanted->v[l->src - wanted_first]
						       : held->v[l->src - held_first];
	uint16_t *to = wanted->v[l->dst - wanted_first];

	mc_reshard_link_region(b->plan, l, &g);
	for (uint64_t i = 0; i < mc_region_runs(&g); i++) {
		uint64_t s, t;

		mc_region_run(&g, i, &s, &t);
		for (uint64_t k = 0; k < g.inner; k++) {
			ck_assert_uint_eq(to[t + k], 0); /* written once */
			ck_assert_uint_ne(from[s + k], 0);
			to[t + k] = from[s + k];
		}
	}
}

static void check_execution(const struct problem *q, const struct built *b)
{
	static struct memory held, wanted;
	const struct mc_reshard *p = b->plan;

	for (uint32_t t = 0; t < TENSORS; t++) {
		uint32_t at = q->order[t];
		const struct mc_pattern *h = &b->held.pattern[b->held.of_tensor[at]];
		const struct mc_pattern *w = &b->wanted.pattern[b->wanted.of_tensor[at]];

		memset(&held, 0, sizeof(held));
		memset(&wanted, 0, sizeof(wanted));
		for (uint32_t i = 0; i < h->n; i++) {
			const struct mc_shard *s = &b->held.shard[h->first + i];

			each_byte(&q->shape[t], s, encode, &(struct fill){held.v[i]});
		}
		for (unsigned pass = 0; pass < 2; pass++)
			for (uint32_t i = 0; i < p->n_links; i++) {
				const struct mc_link *l = &p->link[i];
				const struct mc_class *c = &p->cls[l->cls];

				if ((l->kind == MC_LINK_COPY) != (pass == 1))
					continue;
				for (uint32_t k = l->from; k < l->to; k++)
					if (p->instance[c->first + k] == at)
						run_link(b, l, &held, &wanted, h->first, w->first);
			}
		for (uint32_t i = 0; i < w->n; i++) {
			const struct mc_shard *s = &b->wanted.shard[w->first + i];
			uint16_t want[CUBE] = {0};

			each_byte(&q->shape[t], s, encode, &(struct fill){want});
			ck_assert_mem_eq(wanted.v[i], want, sizeof(want));
		}
	}
}

START_TEST(bytes_moved_are_wanted_minus_held_and_arrive_exactly_once)
{
	static struct problem q;

	seed_state = 31;
	for (int round = 0; round < 300; round++) {
		random_problem(&q);
		for (int nodes = 0; nodes < 2; nodes++) {
			struct built b;

			build(&q, nodes, &b);
			ck_assert_uint_eq(b.plan->moved_bytes, least_bytes(&q, nodes));
			ck_assert_uint_eq(
				b.plan->wanted_bytes, b.plan->moved_bytes + b.plan->local_bytes);
			check_execution(&q, &b);
			unbuild(&b);
		}
	}
}
END_TEST

/* A plan as text in terms of names and participants only. */
static void dump(const struct built *b, struct problem *q, char *out, size_t size)
{
	const struct mc_reshard *p = b->plan;
	size_t at = 0;

	for (uint32_t i = 0; i < p->n_links && at < size - 200; i++) {
		const struct mc_link *l = &p->link[i];
		struct mc_region g;

		mc_reshard_link_region(p, l, &g);
		for (uint32_t k = l->from; k < l->to; k++) {
			uint32_t input = p->instance[p->cls[l->cls].first + k], t = 0;

			while (q->order[t] != input)
				t++;
			at += (size_t)snprintf(out + at, size - at,
				"%s k%u p%u p%u %lu %lu %lu %u;", q->names[t], l->kind,
				l->kind == MC_LINK_COPY ? b->wanted.shard[l->src].participant
							: b->held.shard[l->src].participant,
				b->wanted.shard[l->dst].participant, (unsigned long)g.src,
				(unsigned long)g.dst, (unsigned long)g.inner, g.rank);
		}
	}
}

static void shuffle(struct list *l)
{
	for (uint32_t i = l->n; i > 1; i--) {
		uint32_t j = rnd(i);
		struct mc_shard s = l->v[j];

		l->v[j] = l->v[i - 1];
		l->v[i - 1] = s;
	}
}

START_TEST(output_does_not_depend_on_the_order_of_the_input)
{
	static struct problem q;
	static char a[1 << 18], c[1 << 18];

	seed_state = 41;
	for (int round = 0; round < 100; round++) {
		struct built b;

		random_problem(&q);
		build(&q, round & 1, &b);
		memset(a, 0, sizeof(a));
		dump(&b, &q, a, sizeof(a));
		unbuild(&b);
		for (uint32_t t = 0; t < TENSORS; t++) {
			uint32_t j = rnd(t + 1), s = q.order[j];

			q.order[j] = q.order[t];
			q.order[t] = s;
			shuffle(&q.held[t]);
			shuffle(&q.wanted[t]);
		}
		build(&q, round & 1, &b);
		memset(c, 0, sizeof(c));
		dump(&b, &q, c, sizeof(c));
		unbuild(&b);
		ck_assert_str_eq(a, c);
	}
}
END_TEST

SUITE_MAIN("planner-random", bytes_moved_are_wanted_minus_held_and_arrive_exactly_once,
	output_does_not_depend_on_the_order_of_the_input)
