/*
 * Expected hits per unit of time, by uses and age.
 *
 * Of the starts of a class, a share is used again in each band and the rest lives on. An entry of
 * some age that is kept until the end of a later band, or until its next use, earns the hits in
 * between and costs the time; its worth is the best such ratio over those bands. Ranking by it is
 * the index rule of Gittins, optimal for entries that are independent of each other; LHD (Beckmann
 * et al., NSDI 2018) estimates the same from what is resident. Here the counts come from history,
 * too, so that a tier learns of uses farther apart than it can hold, and each band's hits are set
 * against those starts only that are old enough to have come that far.
 *
 * Uses come in bursts (a prompt's blocks return together), so that the counts of one band say
 * little: hits and starts are smoothed over neighbouring bands, and where a class has few starts it
 * is taken to be like the class of fewer uses.
 */
#include "tier/worth.h"

#include <assert.h>

#define FIRST_SHIFT 6 /* the first band: ages below 64 uses */
/*
 * Where nothing was learned (at the start, or what is never used again) the order is least recently
 * used, more uses better. Small enough never to outweigh a learned value: those are above 1e-6 hits
 * a use, one in a million.
 */
#define UNLEARNED 1e-6f
/* Passes of smoothing: each spreads a band's counts by a quarter to either side. */
#define SMOOTH 4
/* Starts of a class that count as much as what the class below says. */
#define PRIOR 100

unsigned mc_worth_class(unsigned uses)
{
	unsigned c;

	assert(uses > 0);
	c = uses == 1 ? 0 : 32 - (unsigned)__builtin_clz(uses - 1);
	return c < MC_WORTH_CLASSES ? c : MC_WORTH_CLASSES - 1;
}

uint32_t mc_worth_band_end(unsigned band)
{
	uint32_t octave = UINT32_C(1) << (FIRST_SHIFT + band / 2);

	if (band >= MC_WORTH_BANDS - 1)
		return UINT32_MAX;
	return band % 2 == 0 ? octave : octave / 128 * 181 + octave % 128 * 181 / 128; /* × √2 */
}

unsigned mc_worth_band(uint32_t age)
{
	unsigned b;

	if (age >> FIRST_SHIFT == 0)
		return 0;
	b = 2 * (31 - FIRST_SHIFT - (unsigned)__builtin_clz(age)) + 1;
	if (b >= MC_WORTH_BANDS)
		return MC_WORTH_BANDS - 1;
	return age < mc_worth_band_end(b) ? b : b + 1;
}

static uint32_t band_begin(unsigned band)
{
	return band > 0 ? mc_worth_band_end(band - 1) : 0;
}

/* The starts as they were counted that many uses ago; at least 1, to divide by. */
static float starts_before(const struct mc_worth *w, unsigned class, uint32_t uses, uint32_t step)
{
	uint32_t back = uses / step;
	float n;

	if (back >= MC_WORTH_STEPS)
		back = MC_WORTH_STEPS - 1;
	n = back < w->steps ? w->past[(w->steps - 1 - back) % MC_WORTH_STEPS][class] : 0;
	return n > 1 ? n : 1;
}

/* hit: share of the starts used again in each band; left: share that reached it. */
static float best_ratio(const float *hit, const float *left, unsigned from)
{
	float earned = 0, time = 0, best = 0;

	for (unsigned b = from; b < MC_WORTH_BANDS - 1; b++) {
		earned += hit[b];
		time += (float)(mc_worth_band_end(b) - band_begin(b)) * (left[b] - hit[b] / 2);
		if (time > 0 && earned > best * time)
			best = earned / time;
	}
	return best;
}

static void smooth(float count[MC_WORTH_BANDS])
{
	for (unsigned pass = 0; pass < SMOOTH; pass++) {
		float before = count[0];

		for (unsigned b = 0; b < MC_WORTH_BANDS; b++) {
			float here = count[b], next = b < MC_WORTH_BANDS - 1 ? count[b + 1] : here;

			count[b] = (before + 2 * here + next) / 4;
			before = here;
		}
	}
}

/* share: of the starts of the class below that are used again in each band; replaced by this
 * class's. */
static void value_class(
	struct mc_worth *w, unsigned class, uint32_t step, float share[MC_WORTH_BANDS])
{
	float hits[MC_WORTH_BANDS], starts[MC_WORTH_BANDS], left[MC_WORTH_BANDS], rest = 1;
	float prior = class > 0 ? PRIOR : 0;

	for (unsigned b = 0; b < MC_WORTH_BANDS; b++) {
		hits[b] = w->hits[class][b];
		starts[b] = starts_before(w, class, band_begin(b), step);
	}
	smooth(hits);
	smooth(starts);
	for (unsigned b = 0; b < MC_WORTH_BANDS; b++) {
		share[b] = (hits[b] + prior * share[b]) / (starts[b] + prior);
		if (share[b] > rest)
			share[b] = rest;
		left[b] = rest;
		rest -= share[b];
	}
	for (unsigned b = 0; b < MC_WORTH_BANDS; b++)
		w->value[class][b] = best_ratio(share, left, b) +
			UNLEARNED * (float)(class + 1) / (float)mc_worth_band_end(b);
}

void mc_worth_init(struct mc_worth *w)
{
	*w = (struct mc_worth){0};
	mc_worth_learn(w, 1, 1);
	w->steps = 0;
}

void mc_worth_learn(struct mc_worth *w, uint32_t step, float keep)
{
	float *now = w->past[w->steps++ % MC_WORTH_STEPS];
	float share[MC_WORTH_BANDS] = {0};

	for (unsigned c = 0; c < MC_WORTH_CLASSES; c++)
		now[c] = w->starts[c];
	for (unsigned c = 0; c < MC_WORTH_CLASSES; c++) {
		value_class(w, c, step, share);
		w->starts[c] *= keep;
		for (unsigned b = 0; b < MC_WORTH_BANDS; b++)
			w->hits[c][b] *= keep;
	}
}
