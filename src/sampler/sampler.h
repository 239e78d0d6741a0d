/*
 * sampler.h: inside the sampler room.
 *
 * A row of logits passes through the members of a chain as one qn_candidates. Each sampler is one
 * file with one row function (below): that function is the sampler's meaning, and every other form
 * of it is tested against it. What decides is integer: weights, their sums, a 64-bit fraction.
 */
#ifndef QUERN_SAMPLER_SAMPLER_H
#define QUERN_SAMPLER_SAMPLER_H

#include <quern/sampler.h>

#include "base/rng.h"

struct qn_sampler {
    const qn_sampler_interface *fns;
    void *state;
    bool attached;  /* a chain that is attached to a sequence */
    char shown[32]; /* name with the mark of where it runs; empty: the plain name */
};

/* Order of candidates: descending logit, then ascending id, as one number that sorts ascending.
 * Equal for -0 and +0 but for the id. */
uint64_t qn__candidate_key(float logit, int32_t id);
float qn__key_logit(uint64_t key);

/* Sorts keys ascending. `spare`: as many words. */
void qn__sort_keys(uint64_t *keys, size_t n, uint64_t *spare);

/* The set becomes these candidates, in this order; sorted is set. */
void qn__row_take_keys(qn_candidates *c, const uint64_t *keys, size_t n);

/* The k best, k <= size, sorted, into c->work; the set stays. */
void qn__row_best_keys(qn_candidates *c, size_t k);

/*
 * Candidates of the row as qn_candidates_fill leaves them, but only those that matter where
 * samplers change the logits of the ids in the lists, nothing else, and one then keeps the k best:
 * a few more than these, and the ids. False, and the set is not filled, where that is not quickly
 * told: small rows, many wanted, many banned.
 */
typedef struct qn_id_list {
    const int32_t *ids;
    size_t n;
} qn_id_list;
bool qn__row_begin(qn_candidates *c, const float *logits, size_t n, size_t k,
                   const qn_id_list *lists, size_t n_lists);

/* Drops the candidates whose logit is below `least`; the others keep their order, and their weights
 * and the total if they have some. */
void qn__row_cut(qn_candidates *c, float least);

/* Largest logit; -inf for an empty set. */
float qn__row_max(const float *logits, size_t n);

/* weights[i] = round(2^31 e^(logits[i] - max)), 0 for a banned candidate; returns their sum. */
uint64_t qn__row_weigh(const float *logits, size_t n, float max, uint32_t *weights);

/* The same for one difference d = logit - max <= 0. */
uint32_t qn__exp_weight(float d);

/* High word of the 128-bit product: floor(fraction / 2^64 * total). */
uint64_t qn__mul_high(uint64_t fraction, uint64_t total);

/* p as a fraction of 2^64, p clamped to [0, 1). Exact: a float has 24 bits. */
uint64_t qn__fraction_of(float p);

/* Row functions. */
void qn__greedy_row(qn_candidates *c);
void qn__dist_row(qn_candidates *c, uint64_t fraction);
void qn__top_k_row(qn_candidates *c, size_t k);
void qn__top_p_row(qn_candidates *c, uint64_t p, size_t min_keep);
void qn__min_p_row(qn_candidates *c, float log_p, size_t min_keep);
void qn__scale_row(qn_candidates *c, float factor); /* temperature above 0: factor 1/t */
void qn__only_best_row(qn_candidates *c);           /* temperature 0 */
void qn__typical_row(qn_candidates *c, uint64_t p, size_t min_keep);
void qn__top_n_sigma_row(qn_candidates *c, float n);
/* Temperature between low and high. */
void qn__temp_ext_row(qn_candidates *c, float low, float high, float exponent);
/* What happens where the draw says yes. */
void qn__xtc_row(qn_candidates *c, float threshold, size_t min_keep);
/* steps[i] = ln((i + 2) / (i + 1)), n_steps of them; log_vocab = ln(size of the vocabulary). */
void qn__mirostat_row(qn_candidates *c, const float *steps, size_t n_steps, float log_vocab,
                      float mu);
void qn__mirostat_v2_row(qn_candidates *c, float mu);
/* Logits of probabilities near `aim`. The weights of before stay in c->work[0 .. size); returns
 * their sum, 0 where every candidate is banned. */
uint64_t qn__adaptive_p_row(qn_candidates *c, float aim);
void qn__infill_row(qn_candidates *c, const qn_vocab *vocab);
/* Bans what has no bit: bit id % 32 of bits[id / 32], of `words` words. */
void qn__mask_row(qn_candidates *c, const uint32_t *bits, size_t words);
/* Bans all but one. */
void qn__force_row(qn_candidates *c, int32_t id);
/* Adds values[i] to the logit of ids[i]; ids ascend. */
void qn__bias_row(qn_candidates *c, const int32_t *ids, const float *values, size_t n);

typedef struct qn_penalties {
    float repeat, inverse_repeat, frequency, presence;
} qn_penalties;
/* counts[i]: how often ids[i] occurred; ids ascend. */
void qn__penalties_row(qn_candidates *c, const qn_penalties *p, const int32_t *ids,
                       const int32_t *counts, size_t n);

/*
 * What rows share.
 */

/* Entries of a sparse list (ids ascend) meet the candidates: each logit that the list names becomes
 * change(logit, index in the list, with). Clears `sorted` and has_weights. */
typedef float (*qn_sparse_change)(float logit, size_t i, const void *with);
void qn__row_change(qn_candidates *c, const int32_t *ids, size_t n, qn_sparse_change change,
                    const void *with);

/* Infinities become the largest finite number of their sign, so that only bans are -inf. */
float qn__finite(float x);

/* Candidates that are not banned. */
size_t qn__row_active(const qn_candidates *c);

/* How far a candidate is below the best, in steps of 2^-12, at most 2^22. */
#define QN_DISTANCE_UNIT 4096.0F
#define QN_DISTANCE_MAX  1024.0F
uint32_t qn__row_distance(float max, float logit);

/* Of a weighed set. Mean of max - logit by probability. */
float qn__row_mean_distance(const qn_candidates *c, float max);
/* ln of the sum of e^(logit - max): the surprise -ln p of a candidate is max - logit + this. */
float qn__row_log_sum(const qn_candidates *c);

/*
 * Random numbers as a transaction. The coming numbers can be looked at, in any order and as often
 * as one likes; a generated token that is accepted consumes one, if one was looked at. So the n-th
 * accepted token gets the n-th number, whatever was computed and thrown away.
 */
typedef struct qn_draw {
    uint32_t seed, used_seed;
    bool single;     /* a number is one word of the generator, in the high half; else two */
    bool drawn;      /* `value` holds the next number, the generator is past it */
    uint32_t n_used; /* of the coming numbers, how many were looked at */
    uint64_t value;
    qn_rng rng;
    qn_rng ahead; /* a copy that looks further; n_ahead numbers past rng */
    uint32_t n_ahead;
} qn_draw;
void qn__draw_init(qn_draw *draw, uint32_t seed);
void qn__draw_reset(qn_draw *draw);
/* The next number, a fraction of 2^64; the j-th from there. */
uint64_t qn__draw_fraction(qn_draw *draw);
uint64_t qn__draw_fraction_ahead(qn_draw *draw, uint32_t j);
/* As if none had been looked at. */
void qn__draw_forget(qn_draw *draw);
void qn__draw_accept(qn_draw *draw, bool generated);
/* The high half of a fraction as a float in [0, 1). */
float qn__fraction_float(uint64_t fraction);

/* The draw by weight, and what it needs to know: true if at least two candidates can be picked. */
bool qn__row_needs_draw(const qn_candidates *c);
/* Picks by weight; without a draw where only one candidate can be picked. */
void qn__draw_pick(qn_draw *draw, qn_candidates *c);

/* The same in a graph, where rows of a sequence follow each other: row j is given the next j + 1
 * numbers and takes the one behind those that the rows before it took, if it needs one. Writing
 * them is no look. */
void qn__draw_write_ahead(qn_draw *draw, int32_t j, uint64_t *fractions);
bool qn__draw_pick_ahead(qn_candidates *c, const uint64_t *fractions, uint32_t n_drawn);
/* As if the next number had been looked at last, or none. */
void qn__draw_take(qn_draw *draw, bool looked);

/*
 * The last tokens of the text, in a ring of `capacity` > 0. Tokens that may follow (drafts) are in
 * a second one behind it, so that the text is unchanged by them: `ring` has room for 2 capacity.
 * All zero but the capacity: empty.
 */
typedef struct qn_history {
    uint32_t capacity;
    uint32_t count, next;             /* of the text */
    uint32_t draft_count, draft_next; /* of the drafts */
} qn_history;
void qn__history_push(qn_history *h, int32_t *ring, int32_t token);
void qn__history_draft(qn_history *h, int32_t *ring, int32_t token);
void qn__history_forget_drafts(qn_history *h);
void qn__history_clear(qn_history *h);
/* How many tokens are known, at most the capacity. */
uint32_t qn__history_count(const qn_history *h, bool with_drafts);
/* The i-th token before the newest one, i < that count. */
int32_t qn__history_back(const qn_history *h, const int32_t *ring, bool with_drafts, uint32_t i);
/* Longest window that a sampler looks back at. */
#define QN_HISTORY_MAX (1 << 20)

/* A run of text that breaks repetitions: the token `head` followed by tail tokens at..at + n. */
typedef struct qn_dry_entry {
    int32_t head;
    uint32_t at, n;
} qn_dry_entry;

typedef struct qn_dry_breakers {
    qn_dry_entry *entries; /* by ascending head */
    size_t n_entries, entry_room;
    int32_t *tails;
    size_t n_tails, tail_room;
} qn_dry_breakers;
qn_status qn__dry_breakers_make(const qn_vocab *vocab, const char *const *texts, size_t n,
                                qn_dry_breakers *out, qn_error *err);
qn_status qn__dry_breakers_add(qn_dry_breakers *b, int32_t head, const int32_t *tail, size_t n,
                               qn_error *err);
void qn__dry_breakers_sort(qn_dry_breakers *b);
void qn__dry_breakers_free(qn_dry_breakers *b);
qn_sampler *qn__sampler_dry(const qn_dry_options *options, const qn_dry_breakers *breakers,
                            qn_error *err);

/* Whether text ends at a character boundary, judged by its last four bytes. */
bool qn__text_is_complete(const uint8_t *text, size_t size);

/* Index of the best candidate by the order above; -1 where every one is banned. */
int64_t qn__row_best(const qn_candidates *c);

/* Makes a sampler with a zeroed state of `state_bytes`, which *state gets (NULL for 0 bytes). */
qn_sampler *qn__sampler_make(const qn_sampler_interface *fns, size_t state_bytes, void **state,
                             qn_error *err);

/* clone and free for a state that is one plain block; the size is the first member. */
typedef struct qn_plain_state {
    size_t bytes;
} qn_plain_state;
void *qn__plain_clone(const void *state);
void qn__plain_free(void *state);
qn_status qn__plain_copy(void *to, const void *from, qn_error *err);

/* Rows of an attached chain, which its members get to know when their tokens are accepted; see
 * qn__chain_rows in graph.h. */
typedef struct qn_row_queue {
    const qn_sampler *chain;
    const struct qn_chain_form *form;
    const int32_t *carries;
    int32_t n, next; /* rows; the one that the next generated token is of */
} qn_row_queue;
qn_row_queue *qn__chain_row_queue(const qn_sampler *chain);
/* A generated token is about to be accepted. */
void qn__row_queue_next(qn_row_queue *queue);

/* qn_candidates_fill and qn_sampler_apply in one: of a row from which a chain keeps few anyway, the
 * others are not copied. */
void qn__sampler_start(qn_sampler *s, qn_candidates *c, const float *logits, size_t n);

/* Whether the state of one can be copied to the other. */
bool qn__sampler_same_kind(const qn_sampler *a, const qn_sampler *b);

/* A sampler that does nothing: what a maker returns when its settings turn it off. `name` is a
 * literal, as "?top-k". */
qn_sampler *qn__sampler_empty(const char *name, qn_error *err);

#endif
