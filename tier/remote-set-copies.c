/* The copies of an object one by one, for those who look at each of them. */
#include "tier/remote-set-impl.h"

int mc_remote_set_copies(struct mc_remote *r, const char *path, struct mc_set_copies *ret)
{
	struct mc_set *s = set_of(r);
	struct set_order order;
	int res;

	if (s == NULL) {
		*ret = (struct mc_set_copies){.n = 1, .homes = 1};
		ret->at[0] = (struct mc_set_copy){
			.remote = r, .url = mc_remote_url(r), .name = mc_remote_url(r)};
		return 0;
	}
	res = set_order(s, path, &order);
	if (res < 0)
		return res;
	*ret = (struct mc_set_copies){.n = s->n, .homes = order.copies};
	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[order.at[i]];

		ret->at[i] = (struct mc_set_copy){
			.remote = atomic_load(&m->remote), .url = m->url.url, .name = m->url.name};
	}
	return 0;
}
