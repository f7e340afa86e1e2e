/*
 * A mutex and a condition variable with clang thread-safety annotations.
 *
 * Rules: explicit lock and unlock, short sections, no lock held across a call out of the module.
 * Lock ranks (at most three, an inner lock is taken after an outer one, never before) are listed in
 * docs/ARCHITECTURE.md. Failures of the pthread calls are broken contracts, hence asserts.
 */
#pragma once

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#if defined(__clang__)
#define MC_TSA(x) __attribute__((x))
#else
#define MC_TSA(x)
#endif

#define MC_CAPABILITY MC_TSA(capability("mutex"))
#define MC_ACQUIRE(...) MC_TSA(acquire_capability(__VA_ARGS__))
#define MC_RELEASE(...) MC_TSA(release_capability(__VA_ARGS__))
#define MC_REQUIRES(...) MC_TSA(requires_capability(__VA_ARGS__))
#define MC_EXCLUDES(...) MC_TSA(locks_excluded(__VA_ARGS__))
#define MC_NO_TSA MC_TSA(no_thread_safety_analysis)

/*
 * Says which lock of the same struct a member is read and written under. For readers only: in C,
 * clang 14 refuses the attribute there, and clang 19 takes every access for an unlocked one.
 */
#define MC_GUARDED_BY(x)

struct MC_CAPABILITY mc_mutex {
	pthread_mutex_t m;
};

struct mc_cond {
	pthread_cond_t c;
};

#define MC_MUTEX_INIT                                                                              \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER                                                          \
	}

/* Sections are short: a moment's spinning is cheaper than two visits to the scheduler. */
static inline void mc_mutex_init(struct mc_mutex *m)
{
	pthread_mutexattr_t a;
	int r = pthread_mutexattr_init(&a);

	assert(r == 0);
#ifdef __GLIBC__
	r = pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
	assert(r == 0);
#endif
	r = pthread_mutex_init(&m->m, &a);
	assert(r == 0);
	(void)r;
	pthread_mutexattr_destroy(&a);
}

static inline void mc_mutex_done(struct mc_mutex *m)
{
	int r = pthread_mutex_destroy(&m->m);

	assert(r == 0);
	(void)r;
}

static inline void mc_mutex_lock(struct mc_mutex *m) MC_ACQUIRE(*m) MC_NO_TSA
{
	int r = pthread_mutex_lock(&m->m);

	assert(r == 0);
	(void)r;
}

static inline void mc_mutex_unlock(struct mc_mutex *m) MC_RELEASE(*m) MC_NO_TSA
{
	int r = pthread_mutex_unlock(&m->m);

	assert(r == 0);
	(void)r;
}

/* Waits use CLOCK_MONOTONIC: deadlines survive a change of the wall clock. */
static inline void mc_cond_init(struct mc_cond *c)
{
	pthread_condattr_t a;
	int r = pthread_condattr_init(&a);

	assert(r == 0);
	r = pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	assert(r == 0);
	r = pthread_cond_init(&c->c, &a);
	assert(r == 0);
	(void)r;
	pthread_condattr_destroy(&a);
}

static inline void mc_cond_done(struct mc_cond *c)
{
	pthread_cond_destroy(&c->c);
}

static inline void mc_cond_wait(struct mc_cond *c, struct mc_mutex *m) MC_REQUIRES(*m)
{
	pthread_cond_wait(&c->c, &m->m);
}

/* Returns 0, or ETIMEDOUT (positive, as pthread gives it) once deadline_ns (CLOCK_MONOTONIC)
 * passed. */
static inline int mc_cond_wait_until(struct mc_cond *c, struct mc_mutex *m, uint64_t deadline_ns)
	MC_REQUIRES(*m)
{
	struct timespec ts = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
		.tv_nsec = (long)(deadline_ns % 1000000000u)};

	return pthread_cond_timedwait(&c->c, &m->m, &ts);
}

static inline void mc_cond_signal(struct mc_cond *c)
{
	pthread_cond_signal(&c->c);
}

static inline void mc_cond_broadcast(struct mc_cond *c)
{
	pthread_cond_broadcast(&c->c);
}

/* CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t mc_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
