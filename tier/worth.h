/*
 * What keeping an entry is worth, learned from the uses seen so far: for entries used so often
 * (class) and last used so long ago (band), the hits to expect for each unit of time they stay.
 *
 * Time is counted in uses of any entry. Not thread-safe; no allocation.
 */
#pragma once

#include <stdint.h>

/* Classes by number of uses: 1, 2, 3–4, 5–8, … 33–64, more: a doubling each. */
#define MC_WORTH_CLASSES 8
/* Bands of age: below 64, then a factor of √2 each, up to 2^25 and beyond. */
#define MC_WORTH_BANDS 40

/* Steps of the past that are remembered; hits at greater ages are set against the oldest. */
#define MC_WORTH_STEPS 64

struct mc_worth {
	float starts[MC_WORTH_CLASSES];               /* entries that entered the class */
	float hits[MC_WORTH_CLASSES][MC_WORTH_BANDS]; /* those used again at that age */
	float value[MC_WORTH_CLASSES][MC_WORTH_BANDS];
	float past[MC_WORTH_STEPS]
		  [MC_WORTH_CLASSES]; /* starts as they were at earlier steps, a ring */
	uint32_t steps;               /* so far */
};

void mc_worth_init(struct mc_worth *w);

unsigned mc_worth_class(unsigned uses); /* uses > 0 */
unsigned mc_worth_band(uint32_t age);
/* The first age that is past the band; the last band has no end: UINT32_MAX. */
uint32_t mc_worth_band_end(unsigned band);

/* An entry of this class was used: it came, or it became a member by the use. */
static inline void mc_worth_start(struct mc_worth *w, unsigned class)
{
	w->starts[class]++;
}

/* An entry that had this class and age was used again, resident or not. */
static inline void mc_worth_hit(struct mc_worth *w, unsigned class, unsigned band)
{
	w->hits[class][band]++;
}

/*
 * Computes value[][] from the counts and lets them fade: keep (0 … 1) of them stays. Called every
 * step uses; a step may change now and then (what the past says is inexact until it is forgotten).
 */
void mc_worth_learn(struct mc_worth *w, uint32_t step, float keep);
