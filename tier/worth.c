/*
 * Expected hits per unit of time, by uses and age.
 *
 * Of the starts of a class, hits[b] were used again in band b and the rest lived on. An entry of
 * age a that is kept until the end of some later band k, or its next use, earns the hits in between
 * and costs the time; its worth is the best such ratio over k. Ranking by it is the index rule of
 * Gittins, which is optimal when entries are independent, as in LHD (Beckmann et al., NSDI 2018);
 * unlike LHD the counts come from history too, so that a tier learns of uses farther apart than it
 * can hold.
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

static float width(unsigned band)
{
	return (float)(mc_worth_band_end(band) - (band > 0 ? mc_worth_band_end(band - 1) : 0));
}

static float best_ratio(const float *hits, const float *alive, unsigned from)
{
	float hit = 0, time = 0, best = 0;

	for (unsigned k = from; k < MC_WORTH_BANDS - 1; k++) {
		hit += hits[k];
		time += width(k) * (alive[k] - hits[k] / 2);
		if (hit > best * time && time > 0)
			best = hit / time;
	}
	return best;
}

static void value_class(struct mc_worth *w, unsigned class)
{
	float alive[MC_WORTH_BANDS], left = w->starts[class];

	for (unsigned b = 0; b < MC_WORTH_BANDS; b++) {
		alive[b] = left;
		left -= w->hits[class][b] < left ? w->hits[class][b] : left;
	}
	for (unsigned b = 0; b < MC_WORTH_BANDS; b++)
		w->value[class][b] = best_ratio(w->hits[class], alive, b) +
			UNLEARNED * (float)(class + 1) / (float)mc_worth_band_end(b);
}

void mc_worth_init(struct mc_worth *w)
{
	*w = (struct mc_worth){0};
	mc_worth_learn(w, 1);
}

void mc_worth_learn(struct mc_worth *w, float keep)
{
	for (unsigned c = 0; c < MC_WORTH_CLASSES; c++) {
		value_class(w, c);
		w->starts[c] *= keep;
		for (unsigned b = 0; b < MC_WORTH_BANDS; b++)
			w->hits[c][b] *= keep;
	}
}
