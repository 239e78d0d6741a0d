/* test_threads.c: matchers of one grammar in several threads, while states are new, places are
 * begun anew, and others do the same: each thread sees what one alone sees. */
#include "support/support.h"

#include <pthread.h>

#include <quern/grammar.h>

#include "support/small_vocab.h"

enum { N_THREADS = 4, WORDS_MAX = 8 };

static const char gbnf[] =
    "root ::= \"(\" root \")\" | \"[\" root \"]\" | text?\n"
    "text ::= ([a-fx] | \"\\\"\" [^\"\\n]{0,9} \"\\\"\" | [\\u00e0-\\u0400])+";

typedef struct task {
    qn_grammar *grammar;
    const qn_vocab *vocab;
    uint64_t seed;
    int rounds, depth;
    uint64_t hash; /* of all masks */
    bool failed;
} task;

static void add_mask(task *t, qn_matcher *m)
{
    uint32_t bits[WORDS_MAX];
    qn_error err;
    size_t words = ((size_t)qn_vocab_size(t->vocab) + 31) / 32;
    if (words > WORDS_MAX || qn_matcher_mask(m, bits, words, &err) != QN_OK) {
        t->failed = true;
        return;
    }
    for (size_t i = 0; i < words; i++) {
        t->hash = (t->hash ^ bits[i]) * 1099511628211U;
    }
}

/* Deep brackets, which make new states all the time, then some text. */
static void *follow(void *data)
{
    task *t = data;
    qn_test_random r = {t->seed};
    qn_matcher *m = NULL;
    qn_error err;
    t->failed = qn_matcher_make(t->grammar, &m, &err) != QN_OK;
    for (int i = 0; i < t->rounds && !t->failed; i++) {
        qn_matcher_reset(m);
        for (int k = 0; k < t->depth && !t->failed; k++) {
            t->failed = qn_matcher_accept_text(m, qn_test_bits(&r) & 1 ? "(" : "[", 1, &err) != 0;
        }
        add_mask(t, m);
        const char *texts[] = {"a", "\"", "\xC3", "b", "x"};
        for (int k = 0; k < 4 && !t->failed; k++) {
            (void)qn_matcher_accept_text(m, texts[qn_test_bits(&r) % 5], 1, &err);
            add_mask(t, m);
        }
    }
    qn_matcher_free(m);
    return NULL;
}

static qn_grammar *parse(const qn_vocab *vocab)
{
    qn_grammar *g = NULL;
    qn_error err;
    qn_test_ok(qn_grammar_parse(gbnf, strlen(gbnf), vocab, NULL, &g, &err), err);
    return g;
}

static void test_threads(void **state)
{
    (void)state;
    qn_vocab *vocab = NULL;
    qn_error err;
    qn_test_ok(small_vocab_load(small_vocab_writer("bpe"), &vocab, &err), err);
    qn_grammar *shared = parse(vocab);
    task tasks[N_THREADS];
    pthread_t threads[N_THREADS];
    /* together some 300000 brackets: more than are kept */
    for (uint64_t i = 0; i < N_THREADS; i++) {
        tasks[i] = (task){shared, vocab, 77 + i, 360, 220, 0, false};
        assert_int_equal(pthread_create(&threads[i], NULL, follow, &tasks[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    qn_grammar_free(shared);
    for (int i = 0; i < N_THREADS; i++) {
        assert_false(tasks[i].failed);
        qn_grammar *own = parse(vocab);
        task alone = tasks[i];
        alone.grammar = own;
        alone.hash = 0;
        follow(&alone);
        qn_grammar_free(own);
        assert_false(alone.failed);
        assert_true(alone.hash == tasks[i].hash);
    }
    qn_vocab_free(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
