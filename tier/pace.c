/* The pace of background reading: see pace.h. */
#include "tier/pace.h"

#define MIB (UINT64_C(1) << 20)
#define LEAST (MIB / 4) /* bytes: shorter reads say little about the tier */
#define SLOW 4          /* times the best: somebody else is reading or writing */
#define DRIFT 64        /* a best read of long ago loses a 64th with each slower one */

/* Whether the tier took long over it. */
static bool is_slow(struct mc_pace *p, uint64_t bytes, uint64_t took_ns)
{
	uint64_t a_mib = bytes < LEAST ? 0 : took_ns / (bytes / LEAST) * (MIB / LEAST);
	bool slow;

	if (a_mib == 0)
		return false;
	slow = p->best_ns != 0 && a_mib / SLOW > p->best_ns;
	if (p->best_ns == 0 || a_mib < p->best_ns)
		p->best_ns = a_mib;
	else
		p->best_ns += p->best_ns / DRIFT;
	return slow;
}

uint64_t mc_pace_read(struct mc_pace *p, uint64_t now_ns, uint64_t rate, uint64_t bytes,
	uint64_t took_ns, bool busy)
{
	bool slow = is_slow(p, bytes, took_ns);
	uint64_t cost;

	if (rate == 0) {
		p->next_ns = now_ns;
		return now_ns;
	}
	cost = (uint64_t)((double)bytes * 1e9 / (double)rate);
	if (busy || slow)
		cost *= MC_PACE_YIELD;
	/* What was not used is lost: there is no burst after a pause. */
	if (p->next_ns < now_ns - took_ns)
		p->next_ns = now_ns - took_ns;
	p->next_ns += cost;
	return p->next_ns;
}
