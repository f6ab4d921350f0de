/* SPDX-License-Identifier: Apache-2.0 */

#include <pthread.h>

#include "tests.h"

#define MANY 50000
#define N_THREADS 4
#define N_SHARED 5000

static uint32_t add(struct rsh_names *t, const char *s)
{
	return rsh_names_add(t, s, strlen(s));
}

TEST(test_ids)
{
	struct rsh_names *t = rsh_names_new();

	assert_int_equal(rsh_names_count(t), 0);
	assert_int_equal(rsh_names_find(t, "w", 1), RSH_NAME_NONE);
	assert_int_equal(add(t, "w"), 0);
	assert_int_equal(add(t, "w.bias"), 1);
	assert_int_equal(add(t, "w"), 0);
	assert_int_equal(add(t, ""), 2);
	assert_int_equal(rsh_names_find(t, "w.bias", 6), 1);
	assert_int_equal(rsh_names_find(t, "w.bia", 5), RSH_NAME_NONE);
	/* The length counts, not a NUL behind it. */
	assert_int_equal(rsh_names_add(t, "w.bias.long", 6), 1);
	assert_string_equal(rsh_names_text(t, 1), "w.bias");
	assert_string_equal(rsh_names_text(t, 2), "");
	assert_int_equal(rsh_names_count(t), 3);
	rsh_names_free(t);
	rsh_names_free(NULL);
}

static void name_of(uint32_t i, char *buf, size_t size)
{
	snprintf(buf, size, "network.layers.%u.attention.%u", i % 97, i);
}

TEST(test_many)
{
	cleanup_names struct rsh_names *t = rsh_names_new();
	const char **texts = malloc(MANY * sizeof(*texts));
	char name[64];

	for (uint32_t i = 0; i < MANY; i++) {
		name_of(i, name, sizeof(name));
		assert_int_equal(add(t, name), i);
		texts[i] = rsh_names_text(t, i);
	}
	assert_int_equal(rsh_names_count(t), MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		name_of(i, name, sizeof(name));
		assert_int_equal(rsh_names_find(t, name, strlen(name)), i);
		assert_ptr_equal(rsh_names_text(t, i), texts[i]);
		assert_string_equal(texts[i], name);
	}
	free(texts);
}

struct adder {
	pthread_t thread;
	struct rsh_names *names;
	uint32_t first;
	uint32_t id[N_SHARED];
};

/* Adds the shared names, from a different one on in each thread, and reads
 * texts while the others add. */
static void *add_shared(void *arg)
{
	struct adder *a = arg;
	char name[64];

	for (uint32_t i = 0; i < N_SHARED; i++) {
		uint32_t n = (a->first + i) % N_SHARED;

		name_of(n, name, sizeof(name));
		a->id[n] = add(a->names, name);
		if (strcmp(rsh_names_text(a->names, a->id[n]), name))
			a->id[n] = RSH_NAME_NONE;
	}
	return NULL;
}

TEST(test_threads)
{
	static struct adder adders[N_THREADS];
	cleanup_names struct rsh_names *t = rsh_names_new();

	for (uint32_t i = 0; i < N_THREADS; i++) {
		adders[i].names = t;
		adders[i].first = i * N_SHARED / N_THREADS;
		assert_int_equal(pthread_create(&adders[i].thread, NULL,
						add_shared, &adders[i]),
				 0);
	}
	for (uint32_t i = 0; i < N_THREADS; i++)
		pthread_join(adders[i].thread, NULL);
	assert_int_equal(rsh_names_count(t), N_SHARED);
	for (uint32_t n = 0; n < N_SHARED; n++) {
		assert_true(adders[0].id[n] < N_SHARED);
		for (uint32_t i = 1; i < N_THREADS; i++)
			assert_int_equal(adders[i].id[n], adders[0].id[n]);
	}
}
