/*
 * quern/sampler.h: from a row of logits to a token.
 *
 * A sampler looks at a set of candidates (a token id and its logit each) and changes it: cuts it
 * down, scales it, or picks one. A chain is a sampler made of others, applied in order; the last
 * one picks. What is decided is decided in integers (docs/determinism.md), so that a chain gives
 * the same token for the same logits and seed on every machine.
 *
 * A random draw is a transaction: apply looks at the next number of the sampler's generator, and
 * accept of the generated token consumes it. So a token that was picked and then thrown away costs
 * no randomness, and applying twice at one place picks by the same number.
 *
 * A sampler is used by one thread at a time; different samplers are independent.
 */
#ifndef QUERN_SAMPLER_H
#define QUERN_SAMPLER_H

#include <quern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Asks for a random seed; qn_sampler_seed tells which one was taken. */
#define QN_SEED_RANDOM 0xFFFFFFFFU

/* No token: nothing was picked. */
#define QN_TOKEN_NONE (-1)

/*
 * The candidates of one output row, as parallel arrays. Invariants: ids are distinct; a logit is
 * finite or -inf (banned). A sampler may change logits, shrink `size` and reorder (all arrays
 * alike); one that writes logits clears `sorted` and `has_weights` where they no longer hold.
 */
typedef struct qn_candidates {
    int32_t *ids;
    float *logits;
    uint32_t *weights; /* 2^31 e^(logit - largest logit), rounded; valid if has_weights */
    uint64_t total;    /* sum of the weights of the set that they were made of */
    size_t size;       /* how many are left; 0 is allowed */
    size_t n_max;      /* room of the arrays */
    int64_t selected;  /* index of the pick, -1 while there is none */
    bool sorted;       /* by (logit descending, id ascending) */
    bool has_weights;
    uint64_t *work; /* 2 n_max words that any sampler may use inside one apply */
} qn_candidates;

/* Room for up to `n_max` candidates (the vocabulary's size). NULL on failure. */
QN_API qn_candidates *qn_candidates_make(size_t n_max, qn_error *err);
QN_API void qn_candidates_free(qn_candidates *c);

/*
 * Fills the set with ids 0..n-1 and a copy of their logits (n <= n_max, larger n is cut). NaN
 * becomes -inf, +inf the largest finite float. Nothing is selected.
 */
QN_API void qn_candidates_fill(qn_candidates *c, const float *logits, size_t n);

/* Orders the set by (logit descending, id ascending); nothing to do if `sorted`. */
QN_API void qn_candidates_sort(qn_candidates *c);

/* Makes weights and total of the set as it is. Returns the total: 0 if nothing can be picked. */
QN_API uint64_t qn_candidates_weigh(qn_candidates *c);

/* Probability of candidate `i` by the weights that are there: weight / total; 0 without weights. */
QN_API float qn_candidates_prob(const qn_candidates *c, size_t i);

typedef struct qn_sampler qn_sampler;

/*
 * What a sampler does. Any function but `apply` may be NULL: accept, reset then do nothing, a
 * sampler without clone must be stateless (state NULL), without free the state is not freed.
 */
typedef struct qn_sampler_interface {
    /* Display name, as "top-k". */
    const char *(*name)(const void *state);
    /* The token becomes part of the text. `generated`: it was picked from the last apply; false for
     * tokens of the prompt, which consume no randomness. */
    qn_status (*accept)(void *state, int32_t token, bool generated, qn_error *err);
    /* Transforms the set or picks (sets `selected`). Must bear size 0. Allocates nothing. */
    void (*apply)(void *state, qn_candidates *c);
    /* Back to how it was made; a random seed is taken anew. */
    void (*reset)(void *state);
    /* An independent state with the same settings and contents; NULL without memory. */
    void *(*clone)(const void *state);
    /* Contents of `from` into `to` (both of this interface, made with the same settings). NULL:
     * `to` is replaced by a clone. */
    qn_status (*copy_state)(void *to, const void *from, qn_error *err);
    void (*free)(void *state);
    /* The seed in use; false for a sampler without one. */
    bool (*seed)(const void *state, uint32_t *out);
    /* How it runs inside a compute graph: for the samplers of this library. NULL for one's own,
     * which runs behind the graph, on the candidates that are left there. */
    const struct qn_sampler_graph *graph;
} qn_sampler_interface;

/*
 * A sampler of one's own: the interface must outlive it; `state` is handed to every function and
 * then belongs to the sampler (on failure it stays the caller's).
 */
QN_API qn_sampler *qn_sampler_make(const qn_sampler_interface *fns, void *state, qn_error *err);
QN_API void qn_sampler_free(qn_sampler *s);

/* Never NULL. A sampler that its settings turn off is named "?kind" and does nothing. In a chain
 * that is attached to a sequence, "+kind" runs in the graph, "-kind" could but the device lacks it;
 * those behind it and those without a form for graphs have plain names. */
QN_API const char *qn_sampler_name(const qn_sampler *s);
QN_API qn_status qn_sampler_accept(qn_sampler *s, int32_t token, bool generated, qn_error *err);
QN_API void qn_sampler_apply(qn_sampler *s, qn_candidates *c);
QN_API void qn_sampler_reset(qn_sampler *s);
QN_API qn_sampler *qn_sampler_clone(const qn_sampler *s, qn_error *err);

/* State of `from` into `to`, which must be of the same kind (chains: member by member).
 * QN_ERR_ARGUMENT where it is not; `to` is then unchanged. */
QN_API qn_status qn_sampler_copy(qn_sampler *to, const qn_sampler *from, qn_error *err);

/* The seed in use: of a chain, that of its last member that has one. QN_SEED_RANDOM: none. */
QN_API uint32_t qn_sampler_seed(const qn_sampler *s);

/*
 * The samplers. Each returns NULL and fills `err` on failure: without memory, or for a setting that
 * is not a number (QN_ERR_ARGUMENT). `min_keep`: how many candidates always stay.
 */

/* Picks the largest logit, the lowest id of equal ones. */
QN_API qn_sampler *qn_sampler_greedy(qn_error *err);
/* Picks by probability with a seeded generator. */
QN_API qn_sampler *qn_sampler_dist(uint32_t seed, qn_error *err);
/* Keeps the k largest. k <= 0: off. */
QN_API qn_sampler *qn_sampler_top_k(int32_t k, qn_error *err);
/* Keeps the fewest most likely whose probabilities reach p. p >= 1: off. */
QN_API qn_sampler *qn_sampler_top_p(float p, size_t min_keep, qn_error *err);
/* Keeps those at least p times as likely as the best. p <= 0: off. */
QN_API qn_sampler *qn_sampler_min_p(float p, size_t min_keep, qn_error *err);
/* Multiplies logits by 1/t. t <= 0: only the best keeps its logit. t = 1: off. */
QN_API qn_sampler *qn_sampler_temp(float t, qn_error *err);

/* A chain owns its members, which are no chains themselves. */
QN_API qn_sampler *qn_sampler_chain(qn_error *err);
/* Appends; not while the chain is attached. Takes `member` also on failure (it is then freed). A NULL member is a maker's failure:
 * returns QN_ERR_MEMORY and leaves `err` as the maker filled it. */
QN_API qn_status qn_sampler_chain_add(qn_sampler *chain, qn_sampler *member, qn_error *err);
QN_API bool qn_sampler_is_chain(const qn_sampler *s);
QN_API size_t qn_sampler_chain_size(const qn_sampler *chain);
/* The i-th member, still the chain's; NULL out of range. */
QN_API qn_sampler *qn_sampler_chain_get(const qn_sampler *chain, size_t i);
/* Takes the i-th member out and gives it to the caller; NULL out of range or while the chain is
 * attached to a sequence. */
QN_API qn_sampler *qn_sampler_chain_remove(qn_sampler *chain, size_t i);

/* The usual settings, and the chain that they make: top-k, top-p, min-p, temperature, draw. */
typedef struct qn_sampling_options {
    uint32_t seed;     /* QN_SEED_RANDOM */
    int32_t top_k;     /* 40 */
    float top_p;       /* 0.95 */
    float min_p;       /* 0.05 */
    float temperature; /* 0.8; <= 0: the best token always */
    size_t min_keep;   /* 0 */
} qn_sampling_options;

QN_API qn_sampling_options qn_sampling_defaults(void);
/* NULL options: the defaults. */
QN_API qn_sampler *qn_sampler_from_options(const qn_sampling_options *options, qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
