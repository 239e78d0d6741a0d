/*
 * Making a token allocates nothing: the memory allocator is replaced by one that counts, and a
 * hundred tokens are picked, outside of the graph and in it, by the usual chain, by one with
 * penalties, DRY and XTC, and by one that learns.
 *
 * Replacing works with the allocator of glibc, and not under a sanitizer, which does the same.
 */
#include "support/engine.h"

#include <features.h>
#include <stdatomic.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static atomic_size_t n_allocated;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    atomic_fetch_add(&n_allocated, 1);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_allocated, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *block, size_t size)
{
    atomic_fetch_add(&n_allocated, 1);
    return __libc_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&n_allocated, 1);
    return __libc_memalign(alignment, size);
}

static size_t allocated(void)
{
    return atomic_load(&n_allocated);
}
#else
static size_t allocated(void)
{
    return 0;
}
#endif

enum { WARM = 20, TOKENS = 100, N_VOCAB = 5000 };

static qn_error err;

static qn_sampler *make_usual(void)
{
    return qn_sampler_from_options(NULL, &err);
}

static qn_sampler *make_heavy(void)
{
    qn_sampling_options o = qn_sampling_defaults();
    o.penalty_repeat = 1.2F;
    o.penalty_frequency = 0.1F;
    o.dry.multiplier = 0.8F;
    o.dry.n_breakers = 0;
    o.xtc_probability = 0.5F;
    return qn_sampler_from_options(&o, &err);
}

static qn_sampler *make_uncut(void)
{
    qn_sampling_options o = qn_sampling_defaults();
    o.top_k = 0;
    o.typical_p = 0.9F;
    o.top_n_sigma = 3.0F;
    o.dynatemp_range = 0.5F;
    return qn_sampler_from_options(&o, &err);
}

static qn_sampler *make_mirostat(void)
{
    qn_sampling_options o = qn_sampling_defaults();
    o.mirostat = 2;
    return qn_sampler_from_options(&o, &err);
}

static qn_sampler *(*const makers[])(void) = {make_usual, make_heavy, make_uncut, make_mirostat};
enum { N_CHAINS = sizeof makers / sizeof makers[0] };

static void test_counts(void **state)
{
    (void)state;
    size_t before = allocated();
    void *volatile block = malloc(10);
    free(block);
    if (allocated() == before) { /* also where a tool puts its own allocator in place */
        qn_test_skip("allocations cannot be counted here");
    }
}

static void test_outside(void **state)
{
    (void)state;
    qn_test_random r = {4};
    float row[N_VOCAB];
    qn_candidates *c = qn_candidates_make(N_VOCAB, &err);
    for (size_t which = 0; which < N_CHAINS; which++) {
        qn_sampler *chain = makers[which]();
        assert_non_null(chain);
        size_t before = 0;
        for (int i = 0; i < WARM + TOKENS; i++) {
            for (size_t k = 0; k < N_VOCAB; k++) {
                row[k] = qn_test_normal(&r) * 3.0F;
            }
            before = i == WARM ? allocated() : before;
            qn_candidates_fill(c, row, N_VOCAB);
            qn_sampler_apply(chain, c);
            assert_true(c->selected >= 0);
            qn_test_ok(qn_sampler_accept(chain, c->ids[c->selected], true, &err), err);
        }
        assert_int_equal(allocated() - before, 0);
        qn_sampler_free(chain);
    }
    qn_candidates_free(c);
}

/* Returns the allocations of the last TOKENS tokens. */
static size_t generate(qn_context *ctx, qn_sampler *chain, bool in_graph)
{
    size_t before = 0;
    int32_t token = 7;
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, in_graph ? chain : NULL, &err), err);
    for (int32_t i = 0; i < WARM + TOKENS; i++) {
        before = i == WARM ? allocated() : before;
        qn_batch batch = qn_batch_of(&token, 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        qn_test_ok(qn_context_sample(ctx, chain, -1, &token, &err), err);
    }
    size_t n = allocated() - before;
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    return n;
}

static void test_of_a_model(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_Q4_0, 2);
    qn_context *ctx = qn_test_context(model, NULL);
    for (size_t which = 0; which < 2 * N_CHAINS; which++) {
        qn_sampler *chain = makers[which / 2]();
        assert_non_null(chain);
        (void)generate(ctx, chain, which % 2); /* makes a plan where the context has grown */
        assert_int_equal(generate(ctx, chain, which % 2), 0);
        qn_sampler_free(chain);
    }
    qn_context_free(ctx);
    qn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
