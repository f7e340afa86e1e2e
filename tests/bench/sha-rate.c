/*
 * The bound of an import: SHA-256 by OpenSSL's EVP, which the program uses, over buffers of 8 MiB
 * that are read from memory, on so many threads for so long.
 *
 *   sha-rate [THREADS [SECONDS]]     prints {"bytes": …, "seconds": …}
 */
#include <err.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (8u << 20)

static double seconds = 1;
static _Atomic uint64_t bytes;

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void *hash_main(void *arg)
{
	double end = now_s() + seconds;
	EVP_MD *md = EVP_MD_fetch(NULL, "SHA256", NULL);
	unsigned char digest[EVP_MAX_MD_SIZE];
	char *buf = malloc(BUFFER);

	if (md == NULL || buf == NULL)
		errx(1, "no memory");
	memset(buf, 0x5a, BUFFER);
	while (now_s() < end) {
		if (EVP_Digest(buf, BUFFER, digest, NULL, md, NULL) != 1)
			errx(1, "SHA-256 failed");
		atomic_fetch_add(&bytes, BUFFER);
	}
	free(buf);
	EVP_MD_free(md);
	return arg;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t *threads;
	double begin;

	if (argc > 2)
		seconds = strtod(argv[2], NULL);
	threads = n > 0 && seconds > 0 ? calloc((size_t)n, sizeof(*threads)) : NULL;
	if (threads == NULL)
		errx(2, "usage: sha-rate [THREADS [SECONDS]]");
	begin = now_s();
	for (long i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, hash_main, NULL) != 0)
			errx(1, "no thread");
	for (long i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	printf("{\"bytes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)bytes,
		now_s() - begin);
	free(threads);
	return 0;
}
