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
#include <quern/grammar.h>
#include <quern/vocab.h>

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
    uint64_t *work;   /* 2 n_max words that any sampler may use inside one apply */
    const float *row; /* the logits that it was filled from, n_row of them; NULL: not known */
    size_t n_row;
} qn_candidates;

/* Room for up to `n_max` candidates (the vocabulary's size). NULL on failure. */
QN_API qn_candidates *qn_candidates_make(size_t n_max, qn_error *err);
QN_API void qn_candidates_free(qn_candidates *c);

/*
 * Fills the set with ids 0..n-1 and a copy of their logits (n <= n_max, larger n is cut). NaN
 * becomes -inf, +inf the largest finite float. Nothing is selected. `row` keeps the pointer, for
 * samplers that begin again: the logits must stay while samplers are applied.
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
 * that is attached to a sequence, "+kind" runs in the graph, "-kind" could, but the device lacks it
 * or one that learns from its picks stands before it and it does so too; those behind it and those
 * without a form for graphs have plain names. */
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
/* Keeps the fewest whose probabilities exceed p, taken by how near their surprise -ln p_i is to the
 * expected one (the entropy); they stay in that order. p >= 1: off. */
QN_API qn_sampler *qn_sampler_typical(float p, size_t min_keep, qn_error *err);
/* Bans those that are more than n standard deviations of the logits below the best. n <= 0: off. */
QN_API qn_sampler *qn_sampler_top_n_sigma(float n, qn_error *err);
/* Multiplies logits by 1/t. t <= 0: only the best keeps its logit. t = 1: off. */
QN_API qn_sampler *qn_sampler_temp(float t, qn_error *err);
/* Temperature by entropy: from max(0, t - range) where one candidate has all probability to
 * t + range where all are equally likely, bent by `exponent`. range <= 0: as qn_sampler_temp. */
QN_API qn_sampler *qn_sampler_temp_ext(float t, float range, float exponent, qn_error *err);
/* Excludes top choices: with this probability (a draw a token) drops all candidates that are at
 * least `threshold` likely but the least likely of them, unless fewer than min_keep would be left.
 * probability <= 0 or threshold > 0.5: off. */
QN_API qn_sampler *qn_sampler_xtc(float probability, float threshold, size_t min_keep,
                                  uint32_t seed, qn_error *err);
/* Mirostat 1 and 2: cut the set so that the text's surprise stays near tau bits a token, learning
 * at rate eta from the tokens accepted; then pick by probability. The first one estimates how
 * probability falls with rank from the m best of n_vocab. n_vocab > 0; m is at most 65536. */
QN_API qn_sampler *qn_sampler_mirostat(int32_t n_vocab, uint32_t seed, float tau, float eta,
                                       int32_t m, qn_error *err);
QN_API qn_sampler *qn_sampler_mirostat_v2(uint32_t seed, float tau, float eta, qn_error *err);
/* Prefers tokens about as likely as `target` (0 .. 1) in the long run and picks; so it comes last,
 * after one that cuts the unlikely. `decay` (0 .. 0.99) is how slowly the past is forgotten.
 * target < 0: a plain draw; above 1 it counts as 1, and decay is cut to its range. */
QN_API qn_sampler *qn_sampler_adaptive_p(float target, float decay, uint32_t seed, qn_error *err);

/*
 * Penalties for the tokens among the last `last_n` accepted (prompt and text): logits above 0 are
 * divided by `repeat`, others multiplied; then count * frequency + presence is taken off. repeat 1,
 * frequency 0, presence 0 change nothing; all of these or last_n <= 0: off. QN_ERR_ARGUMENT where
 * repeat is not a positive number with a finite reciprocal, or one of the others is not finite;
 * QN_ERR_LIMIT for a last_n above 2^20.
 */
QN_API qn_sampler *qn_sampler_penalties(int32_t last_n, float repeat, float frequency,
                                        float presence, qn_error *err);

/* Don't repeat yourself: a token that would make the end of the text repeat what stood before, for
 * more than `allowed_length` tokens, loses multiplier * base^(length - allowed_length). */
typedef struct qn_dry_options {
    float multiplier;            /* 0: off */
    float base;                  /* below 1: off */
    int32_t allowed_length;      /* of repetitions without penalty */
    int32_t last_n;              /* tokens looked back at; <= 0: off; at most 2^20 */
    const char *const *breakers; /* texts that no repetition is counted across */
    size_t n_breakers;
} qn_dry_options;

/* `vocab` may be NULL if there are no breakers. It is used only while making, and so are the
 * breakers; each counts by its first 40 bytes. */
QN_API qn_sampler *qn_sampler_dry(const qn_vocab *vocab, const qn_dry_options *options,
                                  qn_error *err);

typedef struct qn_logit_bias {
    int32_t token;
    float bias; /* -INFINITY bans */
} qn_logit_bias;

/* Adds biases to logits; those of one token add up, a ban outweighs everything, a token that is
 * banned already stays so. Tokens that do not occur are passed over. n = 0: off. */
QN_API qn_sampler *qn_sampler_logit_bias(const qn_logit_bias *biases, size_t n, qn_error *err);

/*
 * For filling in the middle, after top-k and top-p: ends the middle where ending is likely enough,
 * joins tokens whose texts begin with one another, drops the unlikely. Looks at the 1024 best at
 * most. The vocabulary must outlive it.
 */
QN_API qn_sampler *qn_sampler_infill(const qn_vocab *vocab, qn_error *err);

/* ---- Grammar ---- */

/*
 * Bans the tokens that the grammar does not allow next; follows the tokens that are generated, not
 * those of the prompt. A grammar that cannot be followed any more bans everything, and accept tells
 * why. Shares the grammar, which may be freed. NULL grammar: one that allows everything.
 */
QN_API qn_sampler *qn_sampler_grammar(qn_grammar *grammar, qn_error *err);

/*
 * A chain and a grammar as one sampler, for whole rows as qn_candidates_fill leaves them. The chain
 * picks freely; only where the grammar refuses the pick, the row is masked and the chain picks once
 * more, with the same random numbers. Takes `chain`, also on failure; shares the grammar.
 */
QN_API qn_sampler *qn_sampler_constrained(qn_sampler *chain, qn_grammar *grammar, qn_error *err);

/* ---- Reasoning budget ---- */

typedef enum qn_reasoning_state {
    QN_REASONING_IDLE = 0,     /* waits for the reasoning to begin */
    QN_REASONING_COUNTING = 1, /* counts its tokens */
    QN_REASONING_WAITING = 2,  /* none are left, but a UTF-8 character is unfinished */
    QN_REASONING_FORCING = 3,  /* only the next token of `forced` is possible */
    QN_REASONING_DONE = 4      /* ended; another begin counts anew */
} qn_reasoning_state;

typedef struct qn_token_span {
    const int32_t *ids;
    size_t count; /* at most 256 */
} qn_token_span;

typedef struct qn_reasoning_options {
    const qn_vocab *vocab; /* tells where characters end; NULL: everywhere. Must outlive it */
    const qn_token_span *starts, *ends; /* token sequences that begin and end it; empty ones count
                                           for nothing */
    size_t n_starts, n_ends;
    qn_token_span forced;     /* written where the budget is spent */
    int32_t budget;           /* tokens */
    qn_reasoning_state first; /* IDLE or COUNTING (with a budget of 0: FORCING) */
} qn_reasoning_options;

/* Bounds the tokens between start and end, then forces an end. Comes first, on the whole
 * vocabulary. qn_sampler_reset makes it IDLE. */
QN_API qn_sampler *qn_sampler_reasoning_budget(const qn_reasoning_options *options, qn_error *err);
QN_API qn_reasoning_state qn_sampler_reasoning_state(const qn_sampler *s);
/* Ends the reasoning now. Only while COUNTING; false, and nothing changes, in other states. */
QN_API bool qn_sampler_reasoning_force(qn_sampler *s);
/* Index in `ends` of the sequence that ended the last reasoning; -1: none did. */
QN_API int32_t qn_sampler_reasoning_end(const qn_sampler *s);

/* ---- Chains ---- */

/* A chain owns its members, which are no chains themselves. */
QN_API qn_sampler *qn_sampler_chain(qn_error *err);
/* Appends; not while the chain is attached. Takes `member` also on failure (it is then freed). A
 * NULL member is a maker's failure: returns QN_ERR_MEMORY and leaves `err` as the maker filled it.
 */
QN_API qn_status qn_sampler_chain_add(qn_sampler *chain, qn_sampler *member, qn_error *err);
QN_API bool qn_sampler_is_chain(const qn_sampler *s);
QN_API size_t qn_sampler_chain_size(const qn_sampler *chain);
/* The i-th member, still the chain's; NULL out of range. */
QN_API qn_sampler *qn_sampler_chain_get(const qn_sampler *chain, size_t i);
/* Takes the i-th member out and gives it to the caller; NULL out of range or while the chain is
 * attached to a sequence. */
QN_API qn_sampler *qn_sampler_chain_remove(qn_sampler *chain, size_t i);

/* Writes "logits -> name -> name ..." like snprintf: returns the length it would take. */
QN_API size_t qn_sampler_describe(const qn_sampler *chain, char *text, size_t capacity);

/* ---- The usual chain ---- */

/* Samplers that a user puts in order. */
typedef enum qn_sampler_kind {
    QN_SAMPLER_DRY = 0,
    QN_SAMPLER_TOP_K = 1,
    QN_SAMPLER_TYPICAL = 2,
    QN_SAMPLER_TOP_P = 3,
    QN_SAMPLER_TOP_N_SIGMA = 4,
    QN_SAMPLER_MIN_P = 5,
    QN_SAMPLER_TEMPERATURE = 6,
    QN_SAMPLER_XTC = 7,
    QN_SAMPLER_INFILL = 8,
    QN_SAMPLER_PENALTIES = 9,
    QN_SAMPLER_ADAPTIVE_P = 10,
    QN_SAMPLER_KINDS = 11
} qn_sampler_kind;

#define QN_SAMPLER_ORDER_MAX 64

typedef struct qn_sampler_order {
    qn_sampler_kind kinds[QN_SAMPLER_ORDER_MAX];
    size_t count;
} qn_sampler_order;

/*
 * An order from names joined by ';' ("top_k;temperature"), or from letters ("kt"). Letter case of
 * names does not matter; "top-k" and "topk" mean top_k. What is unknown is passed over with a
 * warning to `log` (may be NULL). QN_ERR_LIMIT: more than QN_SAMPLER_ORDER_MAX; `out` is then
 * unchanged. Names and letters: dry d, top_k k, typ_p y, top_p p, top_n_sigma s, min_p m,
 * temperature t, xtc x, infill i, penalties e, adaptive_p a.
 */
QN_API qn_status qn_sampler_order_from_names(const char *names, const qn_log *log,
                                             qn_sampler_order *out, qn_error *err);
QN_API qn_status qn_sampler_order_from_letters(const char *letters, const qn_log *log,
                                               qn_sampler_order *out, qn_error *err);
/* "top_k"; NULL for no kind. */
QN_API const char *qn_sampler_kind_name(qn_sampler_kind kind);

/*
 * The usual settings and the chain that they make. Begin with qn_sampling_defaults() (in the
 * comments): a struct of zeroes is refused. The chain: logit bias, if there is any; then the
 * samplers in `order`, and a draw (adaptive_p picks in its stead where the order names it); or,
 * with mirostat, temperature and that.
 */
typedef struct qn_sampling_options {
    uint32_t seed;           /* QN_SEED_RANDOM */
    qn_sampler_order order;  /* penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature */
    size_t min_keep;         /* 0 */
    int32_t top_k;           /* 40 */
    float top_p;             /* 0.95 */
    float min_p;             /* 0.05 */
    float typical_p;         /* 1 */
    float top_n_sigma;       /* -1 */
    float xtc_probability;   /* 0 */
    float xtc_threshold;     /* 0.1 */
    float temperature;       /* 0.8; <= 0: the best token always */
    float dynatemp_range;    /* 0 */
    float dynatemp_exponent; /* 1 */
    int32_t penalty_last_n;  /* 64 */
    float penalty_repeat;    /* 1 */
    float penalty_frequency; /* 0 */
    float penalty_presence;  /* 0 */
    qn_dry_options dry;      /* 0, 1.75, 2, 64; breakers newline, colon, quotation mark, asterisk */
    int32_t mirostat;        /* 0; 1 or 2 */
    float mirostat_tau;      /* 5 */
    float mirostat_eta;      /* 0.1 */
    float adaptive_target;   /* -1 */
    float adaptive_decay;    /* 0.9 */
    bool ignore_eos;         /* false; true: ban every token that ends the text */
    /* None; read while the chain is made. Refused: a token below 0, or, with a vocabulary, one that
     * it does not have. */
    const qn_logit_bias *biases;
    size_t n_biases;
    /* NULL. Needed for DRY with breakers, infill, ignore_eos and mirostat 1; tokens that it wants
     * suppressed are banned. Must outlive a chain with infill. */
    const qn_vocab *vocab;
} qn_sampling_options;

QN_API qn_sampling_options qn_sampling_defaults(void);
/* NULL options: the defaults. QN_ERR_ARGUMENT names the setting that is wrong. */
QN_API qn_sampler *qn_sampler_from_options(const qn_sampling_options *options, qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
