/* A few threads for what blocks: remote objects, journal entries of the background. First come,
 * first served. */
#include "tier/kv-impl.h"

#define THREADS_MAX 16

struct job {
	void (*fn)(void *ctx);
	void *ctx;
	struct job *next;
};

struct kv_work {
	struct mc_mutex lock;
	struct mc_cond wake;
	struct job *first MC_GUARDED_BY(lock), **last MC_GUARDED_BY(lock);
	bool closing MC_GUARDED_BY(lock);
	pthread_t threads[THREADS_MAX];
	unsigned n_threads;
};

static void *work_main(void *arg)
{
	struct kv_work *w = arg;

	mc_mutex_lock(&w->lock);
	for (;;) {
		struct job *j = w->first;

		if (j == NULL && w->closing)
			break;
		if (j == NULL) {
			mc_cond_wait(&w->wake, &w->lock);
			continue;
		}
		w->first = j->next;
		if (w->first == NULL)
			w->last = &w->first;
		mc_mutex_unlock(&w->lock);
		j->fn(j->ctx);
		free(j);
		mc_mutex_lock(&w->lock);
	}
	mc_mutex_unlock(&w->lock);
	return NULL;
}

int kv_work_open(unsigned n_threads, struct kv_work **ret)
{
	struct kv_work *w = calloc(1, sizeof(*w));

	assert(n_threads > 0 && n_threads <= THREADS_MAX);
	if (w == NULL)
		return -ENOMEM;
	mc_mutex_init(&w->lock);
	mc_cond_init(&w->wake);
	mc_mutex_lock(&w->lock);
	w->last = &w->first;
	mc_mutex_unlock(&w->lock);
	for (; w->n_threads < n_threads; w->n_threads++) {
		int r = pthread_create(&w->threads[w->n_threads], NULL, work_main, w);

		if (r != 0) {
			kv_work_close(w);
			return -r;
		}
	}
	*ret = w;
	return 0;
}

int kv_work_add(struct kv_work *w, void (*fn)(void *ctx), void *ctx)
{
	struct job *j = calloc(1, sizeof(*j));
	int r = 0;

	if (j == NULL)
		return -ENOMEM;
	j->fn = fn;
	j->ctx = ctx;
	mc_mutex_lock(&w->lock);
	if (w->closing)
		r = -ESHUTDOWN;
	if (r == 0) {
		*w->last = j;
		w->last = &j->next;
		mc_cond_signal(&w->wake);
	}
	mc_mutex_unlock(&w->lock);
	if (r < 0)
		free(j);
	return r;
}

void kv_work_close(struct kv_work *w)
{
	if (w == NULL)
		return;
	mc_mutex_lock(&w->lock);
	w->closing = true;
	mc_cond_broadcast(&w->wake);
	mc_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->n_threads; i++)
		pthread_join(w->threads[i], NULL);
	mc_cond_done(&w->wake);
	mc_mutex_done(&w->lock);
	free(w);
}
