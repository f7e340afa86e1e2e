/* Runs one Check suite: SUITE_MAIN("name", test_a, test_b) is the whole main of a test program. */
#pragma once

#include <check.h>
#include <stdlib.h>

/* A build under a sanitizer: what is sampled is sampled thinner. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SUITE_SLOW 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SUITE_SLOW 1
#endif
#ifndef SUITE_SLOW
#define SUITE_SLOW 0
#endif

/* Of a test: what a sanitizer build needs on a busy machine, and more. */
#define SUITE_TIMEOUT_S 250

/* setup runs before each test, in the process of the test; NULL allowed. */
static inline int suite_run_after(SFun setup, const char *name, const TTest *const *tests, size_t n)
{
	Suite *s = suite_create(name);
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, SUITE_TIMEOUT_S);
	tcase_add_checked_fixture(t, setup, NULL);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(t, tests[i]);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static inline int suite_run(const char *name, const TTest *const *tests, size_t n)
{
	return suite_run_after(NULL, name, tests, n);
}

#define SUITE_MAIN(name, ...)                                                                      \
	int main(void)                                                                             \
	{                                                                                          \
		const TTest *const tests[] = {__VA_ARGS__};                                        \
                                                                                                   \
		return suite_run(name, tests, sizeof(tests) / sizeof(*tests));                     \
	}
