/* SPDX-License-Identifier: Apache-2.0 */
/* Random rules against what a rule means, taken element by element.
 *
 * A case draws letters with sizes and lays them out on both sides: in one
 * tensor with alternatives, and in one tensor for each of them or in another
 * one with alternatives, some letters as holes of names.  The meaning is a loop over all values of all letters, each
 * of which says which element of which tensor is which; it shares nothing with
 * weights/, which makes parts of the rule's text.  Both directions are compared, and one
 * after the other gives back what was there.
 *
 * RSH_PROPERTY_SEED and RSH_PROPERTY_CASES override what is run. */
#include "support.h"
#include "weights_support.h"

#include <inttypes.h>
#include <time.h>

#define DEFAULT_CASES 8000
#define MAX_LETTERS 8
#define MAX_PAIRS 3
#define MAX_DIMS 4
#define MAX_TENSORS 2048
#define MAX_ELEMENTS 600 /* of a pair */
#define TEXT 1024

/* ---- a rule ---- */

/* Letters by number, outer first. */
struct product {
	uint32_t n;
	uint32_t letters[MAX_LETTERS];
};

struct layout {
	struct product holes;
	uint32_t n_dims;
	struct product before[MAX_DIMS], after[MAX_DIMS];
	int alternatives; /* the dimension that has them; -1: none */
};

struct drawn {
	uint32_t sizes[MAX_LETTERS];
	uint32_t n_pairs;
	bool common[MAX_LETTERS];         /* in all pairs, in no alternative */
	/* the alternatives, and the same letters as many[0] has them */
	struct product parts[MAX_PAIRS], others[MAX_PAIRS];
	struct layout one;                /* the tensor that has them */
	struct layout many[MAX_PAIRS];
	bool both; /* many[0] has alternatives too, and is the only one */
	enum rsh_side side_of_one;
	uint32_t n_layers; /* 0: names have no shared hole */
	bool all_known;    /* by `let` */
	bool known[MAX_LETTERS];
};

static void put(struct product *p, uint32_t letter)
{
	uint32_t at = below(p->n + 1);

	memmove(&p->letters[at + 1], &p->letters[at],
		(p->n - at) * sizeof(p->letters[0]));
	p->letters[at] = letter;
	p->n++;
}

static bool has(const struct product *p, uint32_t letter)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->letters[i] == letter)
			return true;
	return false;
}

static void draw_letters(struct drawn *r)
{
	const uint32_t n = 2 + below(MAX_LETTERS - 1);

	r->n_pairs = 1 + below(MAX_PAIRS);
	for (uint32_t i = 0; i < n; i++) {
		r->sizes[i] = 1 + below(3 + (i < 2) * 2);
		r->known[i] = r->all_known || below(2);
		r->common[i] = below(2);
		for (uint32_t p = 0; p < r->n_pairs && !r->common[i]; p++)
			if (below(3)) {
				put(&r->parts[p], i);
				put(&r->others[p], i);
			}
	}
	for (uint32_t i = n; i < MAX_LETTERS; i++)
		r->sizes[i] = 0;
}

static void lay_out(struct layout *l, uint32_t letter, bool hole)
{
	uint32_t d;

	if (hole && l->holes.n < 3) {
		put(&l->holes, letter);
		return;
	}
	d = below(l->n_dims);
	put(below(2) ? &l->before[d] : &l->after[d], letter);
}

static void draw_layouts(struct drawn *r)
{
	bool hole_of_one[MAX_LETTERS] = { false };

	r->one.n_dims = 1 + below(MAX_DIMS);
	r->one.alternatives = (int)below(r->one.n_dims);
	for (uint32_t i = 0; i < MAX_LETTERS; i++)
		if (r->common[i] && r->sizes[i]) {
			hole_of_one[i] = below(6) == 0 && r->one.holes.n < 3;
			lay_out(&r->one, i, hole_of_one[i]);
		}
	for (uint32_t p = 0; p < r->n_pairs; p++) {
		struct layout *l = &r->many[p];

		l->n_dims = 1 + below(MAX_DIMS);
		l->alternatives = -1;
		for (uint32_t i = 0; i < MAX_LETTERS; i++)
			if ((r->common[i] && r->sizes[i]) ||
			    (has(&r->parts[p], i) && !r->both))
				lay_out(l, i, !hole_of_one[i] && below(5) == 0);
		if (r->both)
			l->alternatives = (int)below(l->n_dims);
	}
}

static void draw(struct drawn *r)
{
	uint32_t elements;

	do {
		memset(r, 0, sizeof(*r));
		r->all_known = below(2);
		r->side_of_one = below(2);
		r->n_layers = below(3);
		r->both = below(4) == 0;
		draw_letters(r);
		elements = 1;
		for (uint32_t i = 0; i < MAX_LETTERS; i++)
			elements *= r->sizes[i] ? r->sizes[i] : 1;
	} while (elements > MAX_ELEMENTS);
	draw_layouts(r);
}

/* ---- its text ---- */

__attribute__((format(printf, 2, 3)))
static void say(char *text, const char *fmt, ...)
{
	const size_t at = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + at, TEXT - at, fmt, ap);
	va_end(ap);
}

static void say_product(char *text, const struct product *p)
{
	if (p->n == 0)
		say(text, " 1");
	for (uint32_t i = 0; i < p->n; i++)
		say(text, " %c", 'a' + (int)p->letters[i]);
}

/* Gives the alternatives as the tensor has them. */
static const struct product *parts_of(const struct drawn *r,
				      const struct layout *l)
{
	return l == &r->one ? r->parts : r->others;
}

/* Gives the number of tensors that are not `one`. */
static uint32_t count_many(const struct drawn *r)
{
	return r->both ? 1 : r->n_pairs;
}

static void say_tensor(const struct drawn *r, const struct layout *l,
		       const char *name, char *text)
{
	say(text, "%s", name);
	if (r->n_layers)
		say(text, ".{l}");
	for (uint32_t i = 0; i < l->holes.n; i++)
		say(text, ".{%c}", 'a' + (int)l->holes.letters[i]);
	for (uint32_t d = 0; d < l->n_dims; d++) {
		say(text, d ? "," : "[");
		say_product(text, &l->before[d]);
		for (uint32_t p = 0; (int)d == l->alternatives &&
				     p < r->n_pairs; p++) {
			say(text, p ? "|" : " (");
			say_product(text, &parts_of(r, l)[p]);
		}
		if ((int)d == l->alternatives)
			say(text, ")");
		say_product(text, &l->after[d]);
	}
	say(text, "]");
}

static void say_rule(const struct drawn *r, char *text)
{
	static const char *const names[] = { "p", "q", "r" };

	*text = '\0';
	for (uint32_t i = 0; i < MAX_LETTERS; i++)
		if (r->sizes[i] && r->known[i])
			say(text, "let %c = %u\n", 'a' + (int)i, r->sizes[i]);
	for (int s = 0; s < RSH_N_SIDES; s++) {
		if (s == (int)r->side_of_one)
			say_tensor(r, &r->one, "o", text);
		for (uint32_t p = 0; s != (int)r->side_of_one &&
				     p < count_many(r); p++) {
			say(text, p ? " + " : "");
			say_tensor(r, &r->many[p], names[p], text);
		}
		say(text, s ? "\n" : " = ");
	}
}

/* ---- what it means ---- */

struct array {
	char name[64];
	uint32_t n_dims;
	uint64_t dims[MAX_DIMS];
	uint32_t n;
	uint32_t *v; /* elements, each with a value of its own */
};

struct form {
	struct array a[MAX_TENSORS];
	uint32_t n;
};

static uint64_t size_of(const struct drawn *r, const struct product *p)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < p->n; i++)
		n *= r->sizes[p->letters[i]];
	return n;
}

static uint64_t place_in(const struct drawn *r, const struct product *p,
			 const uint32_t *at)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->n; i++)
		n = n * r->sizes[p->letters[i]] + at[p->letters[i]];
	return n;
}

static uint64_t dim_of(const struct drawn *r, const struct layout *l,
		       uint32_t d)
{
	uint64_t width = (int)d != l->alternatives;

	for (uint32_t p = 0; (int)d == l->alternatives && p < r->n_pairs; p++)
		width += size_of(r, &r->parts[p]);
	return size_of(r, &l->before[d]) * width * size_of(r, &l->after[d]);
}

static uint64_t index_in(const struct drawn *r, const struct layout *l,
			 uint32_t d, uint32_t pair, const uint32_t *at)
{
	uint64_t n = place_in(r, &l->before[d], at);

	if ((int)d == l->alternatives) {
		uint64_t width = 0, begin = 0;

		for (uint32_t p = 0; p < r->n_pairs; p++) {
			if (p < pair)
				begin += size_of(r, &r->parts[p]);
			width += size_of(r, &r->parts[p]);
		}
		n = n * width + begin +
		    place_in(r, &parts_of(r, l)[pair], at);
	}
	return n * size_of(r, &l->after[d]) + place_in(r, &l->after[d], at);
}

static struct array *find_array(struct form *f, const char *name)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (strcmp(f->a[i].name, name) == 0)
			return &f->a[i];
	return NULL;
}

static struct array *new_array(struct form *f, const char *name,
			       uint32_t n_dims, const uint64_t *dims)
{
	struct array *a = &f->a[f->n++];

	assert_true(f->n <= MAX_TENSORS);
	memset(a, 0, sizeof(*a));
	snprintf(a->name, sizeof(a->name), "%s", name);
	a->n_dims = n_dims;
	a->n = 1;
	for (uint32_t d = 0; d < n_dims; d++) {
		a->dims[d] = dims[d];
		a->n *= (uint32_t)dims[d];
	}
	a->v = calloc(a->n + 1, sizeof(*a->v));
	assert_non_null(a->v);
	return a;
}

/* Gives the element of a tensor that stands for these values of letters. */
static uint32_t *element(const struct drawn *r, struct form *f,
			 const struct layout *l, const char *name,
			 uint32_t layer, uint32_t pair, const uint32_t *at)
{
	char text[TEXT] = "";
	uint64_t dims[MAX_DIMS], flat = 0;
	struct array *a;

	say(text, "%s", name);
	if (r->n_layers)
		say(text, ".%u", layer);
	for (uint32_t i = 0; i < l->holes.n; i++)
		say(text, ".%u", at[l->holes.letters[i]]);
	for (uint32_t d = 0; d < l->n_dims; d++) {
		dims[d] = dim_of(r, l, d);
		flat = flat * dims[d] + index_in(r, l, d, pair, at);
	}
	a = find_array(f, text);
	if (!a)
		a = new_array(f, text, l->n_dims, dims);
	assert_true(flat < a->n);
	return &a->v[flat];
}

/* Goes on to the next values of the letters of a pair. */
static bool next_values(const struct drawn *r, uint32_t pair, uint32_t *at)
{
	for (uint32_t i = 0; i < MAX_LETTERS; i++) {
		if (!r->sizes[i] ||
		    (!r->common[i] && !has(&r->parts[pair], i)))
			continue;
		if (++at[i] < r->sizes[i])
			return true;
		at[i] = 0;
	}
	return false;
}

/* Fills both forms with equal values where elements are the same. */
static void mean(const struct drawn *r, struct form *forms)
{
	static const char *const names[] = { "p", "q", "r" };
	const enum rsh_side one = r->side_of_one;
	uint32_t value = 0;

	for (uint32_t layer = 0; layer < (r->n_layers ? r->n_layers : 1);
	     layer++)
		for (uint32_t p = 0; p < r->n_pairs; p++) {
			uint32_t at[MAX_LETTERS] = { 0 };

			do {
				value++;
				*element(r, &forms[one], &r->one, "o", layer, p,
					 at) = value;
				*element(r, &forms[!one],
					 &r->many[r->both ? 0 : p],
					 names[r->both ? 0 : p], layer, p,
					 at) = value;
			} while (next_values(r, p, at));
		}
}

static void form_clear(struct form *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		free(f->a[i].v);
	f->n = 0;
}

/* ---- what weights/ makes of it ---- */

static uint32_t case_number;
static char case_rule[TEXT];

#define REQUIRE(x)                                                \
	do {                                                      \
		if (!(x))                                         \
			fail_msg("case %u: %s\n%s", case_number, \
				 #x, case_rule);                  \
	} while (0)

/* Gives the place in an offer of an element of the catalogue's tensor. */
static uint64_t offer_place(const struct rsh_offer *o, const uint64_t *at)
{
	uint64_t index[MAX_DIMS] = { 0 }, flat = 0;

	for (uint32_t i = 0; i < o->n_dims; i++)
		index[i] = at[o->parts->factors[i].dim];
	for (uint32_t d = 0; d < o->n_dims; d++) {
		REQUIRE(index[d] < o->dims[d]);
		flat = flat * o->dims[d] + index[d];
	}
	return flat;
}

/* Puts the elements of a part to their places; *out is 0 where none is yet. */
static void apply(const struct model *m, const struct form *from,
		  const struct rsh_recipe_part *p, struct array *out)
{
	const struct rsh_offer *o = &m->in[p->tensor];
	uint64_t k[32] = { 0 };
	bool more = true;

	REQUIRE(p->n_factors < 32);
	while (more) {
		uint64_t shown[MAX_DIMS], at[MAX_DIMS], flat = 0;

		memcpy(shown, p->shown_from, out->n_dims * sizeof(*shown));
		memcpy(at, p->from, o->n_dims * sizeof(*at));
		for (uint32_t i = 0; i < p->n_factors; i++) {
			const struct rsh_factor *f = &p->factors[i];

			shown[f->shown_dim] += k[i] * f->shown_step;
			at[f->dim] += k[i] * f->step;
		}
		for (uint32_t d = 0; d < out->n_dims; d++) {
			REQUIRE(shown[d] < out->dims[d]);
			flat = flat * out->dims[d] + shown[d];
		}
		REQUIRE(out->v[flat] == 0);
		out->v[flat] = from->a[p->tensor].v[offer_place(o, at)];
		more = false;
		for (uint32_t i = p->n_factors; i-- > 0 && !more;) {
			more = ++k[i] < p->factors[i].size;
			k[i] = more ? k[i] : 0;
		}
	}
}

/* Converts a form; 0, or -EINVAL where sizes are not known. */
static int convert(const struct form *from, enum rsh_side side,
		   const char *rule, struct form *to)
{
	struct model m;
	int rc;

	model_begin(&m, rule, NULL);
	for (uint32_t i = 0; i < from->n; i++)
		model_add(&m, from->a[i].name, RSH_DTYPE_FLOAT32,
			  from->a[i].n_dims, from->a[i].dims, below(4) == 0);
	rc = model_convert(&m, side);
	for (uint32_t i = 0; rc == 0 && i < m.n_out; i++) {
		struct array *a = new_array(to, rsh_names_text(m.names,
							       m.out[i].name),
					    m.out[i].n_dims, m.out[i].dims);

		for (uint32_t p = 0; p < m.out[i].n_parts; p++)
			apply(&m, from, &m.out[i].parts[p], a);
	}
	if (rc && !strstr(m.err.text, "neither `let` nor a shape"))
		fail_msg("case %u: %s\n%s", case_number, m.err.text, rule);
	model_end(&m);
	return rc;
}

static void compare(const struct form *made, struct form *wanted)
{
	REQUIRE(made->n == wanted->n);
	for (uint32_t i = 0; i < made->n; i++) {
		const struct array *a = &made->a[i];
		const struct array *b = find_array(wanted, a->name);

		REQUIRE(b != NULL);
		if (!b)
			return;
		REQUIRE(a->n_dims == b->n_dims && a->n == b->n);
		REQUIRE(memcmp(a->dims, b->dims,
			       a->n_dims * sizeof(*a->dims)) == 0);
		REQUIRE(memcmp(a->v, b->v, a->n * sizeof(*a->v)) == 0);
	}
}

static struct form meant[RSH_N_SIDES], there, back;

/* Counts the conversions that were compared. */
static uint32_t run_case(void)
{
	struct drawn r;
	uint32_t done = 0;

	draw(&r);
	say_rule(&r, case_rule);
	mean(&r, meant);
	for (int s = 0; s < RSH_N_SIDES; s++) {
		int rc = convert(&meant[s], s, case_rule, &there);

		REQUIRE(rc == 0 || !r.all_known);
		if (rc == 0) {
			done++;
			compare(&there, &meant[!s]);
		}
		if (rc == 0 && convert(&there, !s, case_rule, &back) == 0)
			compare(&back, &meant[s]);
		form_clear(&there);
		form_clear(&back);
	}
	form_clear(&meant[0]);
	form_clear(&meant[1]);
	return done;
}

TEST(test_rules)
{
	const char *seed_text = getenv("RSH_PROPERTY_SEED");
	const char *cases_text = getenv("RSH_PROPERTY_CASES");
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) :
				    (uint64_t)time(NULL) << 20;
	uint32_t n = cases_text ? (uint32_t)strtoul(cases_text, NULL, 10) :
				  DEFAULT_CASES, done = 0;

	printf("# RSH_PROPERTY_SEED=%" PRIu64 " (plus the number of the case, "
	       "with RSH_PROPERTY_CASES=1)\n", seed);
	fflush(stdout);
	for (case_number = 0; case_number < n; case_number++) {
		numbers_begin(seed + case_number);
		done += run_case();
	}
	printf("# %u conversions of %u rules compared\n", done, n);
	assert_true(done >= n);
}
