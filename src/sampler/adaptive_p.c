/*
 * adaptive_p.c: prefers tokens whose probability is near an aim, and moves the aim so that the
 * probabilities of the tokens accepted are near the target on a fading average.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "sampler/graph.h"

#define WIDTH_INVERSE (1.0F / 0.3F)
#define PEAK          5.0F
#define SHARPNESS     10.0F
#define DECAY_MAX     0.99F

uint64_t qn__adaptive_p_row(qn_candidates *c, float aim)
{
    uint64_t total = qn_candidates_weigh(c);
    if (total == 0) {
        return 0;
    }
    float inverse = (float)(1.0 / (double)total);
    for (size_t i = 0; i < c->size; i++) {
        c->work[i] = c->weights[i];
        if (c->logits[i] > -INFINITY) {
            float d = fabsf(((float)c->weights[i] * inverse - aim) * WIDTH_INVERSE);
            c->logits[i] = PEAK - SHARPNESS * (d * d / (1.0F + d));
        }
    }
    c->sorted = c->has_weights = false;
    return total;
}

/* What is learned and goes from row to row: the carry of tensor/sample.h. */
typedef struct adaptive_p_memory {
    float sum, weight; /* of the probabilities accepted, fading */
    int32_t token;     /* the last pick, or QN_TOKEN_NONE */
    float token_p;     /* its probability before the change */
    uint32_t drew;     /* 1 where it took a random number */
    uint32_t n_drawn;  /* numbers that the rows of the batch took up to here */
} adaptive_p_memory;
_Static_assert(sizeof(adaptive_p_memory) == QN_SAMPLE_CARRY_WORDS * sizeof(int32_t), "a carry");

typedef struct adaptive_p_state {
    qn_plain_state plain;
    float target, decay;
    adaptive_p_memory memory;
    int32_t draft; /* the first token of the batch behind the last row, or QN_TOKEN_NONE */
    qn_draw draw;
} adaptive_p_state;

static const char *adaptive_p_name(const void *state)
{
    (void)state;
    return "adaptive-p";
}

static float clamp01(float x)
{
    return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F;
}

/* The logits of the draw. Returns the sum of the weights of before, which are in c->work. */
static uint64_t prefer(const adaptive_p_memory *memory, float target, qn_candidates *c)
{
    if (target < 0.0F) {
        return 0;
    }
    float aim = clamp01(2.0F * clamp01(target) - memory->sum / memory->weight);
    return qn__adaptive_p_row(c, aim);
}

static void remember(adaptive_p_memory *memory, const qn_candidates *c, uint64_t total)
{
    memory->token = QN_TOKEN_NONE;
    if (total > 0 && c->selected >= 0) {
        memory->token = c->ids[c->selected];
        memory->token_p = (float)((double)c->work[c->selected] / (double)total);
    }
}

static void learn(adaptive_p_memory *memory, float decay, int32_t token)
{
    if (token == memory->token && token != QN_TOKEN_NONE) {
        memory->sum = memory->token_p + decay * memory->sum;
        memory->weight = 1.0F + decay * memory->weight;
    }
    memory->token = QN_TOKEN_NONE;
}

static void adaptive_p_apply(void *state, qn_candidates *c)
{
    adaptive_p_state *s = state;
    uint64_t total = prefer(&s->memory, s->target, c);
    qn__draw_pick(&s->draw, c);
    remember(&s->memory, c, total);
}

static qn_status adaptive_p_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)err;
    adaptive_p_state *s = state;
    if (generated) {
        learn(&s->memory, s->decay, token);
    }
    qn__draw_accept(&s->draw, generated);
    return QN_OK;
}

static void adaptive_p_reset(void *state)
{
    adaptive_p_state *s = state;
    s->memory = (adaptive_p_memory){.sum = s->target / (1.0F - s->decay),
                                    .weight = 1.0F / (1.0F - s->decay),
                                    .token = QN_TOKEN_NONE};
    s->draft = QN_TOKEN_NONE;
    qn__draw_reset(&s->draw);
}

/* In a graph: parameters of output row j. The rows before it may have left numbers to it. */
typedef struct adaptive_p_params {
    adaptive_p_memory memory;
    float target, decay;
    int32_t token; /* accepted for the row before, or QN_TOKEN_NONE */
    int32_t unused;
    uint64_t fractions[]; /* j + 1 */
} adaptive_p_params;

static void adaptive_p_stage(void *params, int32_t *carry, qn_candidates *c)
{
    const adaptive_p_params *p = params;
    adaptive_p_memory memory;
    memcpy(&memory, carry, sizeof memory);
    learn(&memory, p->decay, p->token);
    uint64_t total = prefer(&memory, p->target, c);
    memory.drew = qn__draw_pick_ahead(c, p->fractions, memory.n_drawn);
    memory.n_drawn += memory.drew;
    remember(&memory, c, total);
    memcpy(carry, &memory, sizeof memory);
}

const qn_sample_stage qn__stage_adaptive_p = {.name = "adaptive-p", .carried = adaptive_p_stage};

static size_t adaptive_p_room(const void *state, int32_t j, size_t n_drafts)
{
    (void)state;
    (void)n_drafts;
    return sizeof(adaptive_p_params) + ((size_t)j + 1) * sizeof(uint64_t);
}

static size_t adaptive_p_write(void *state, int32_t j, void *out)
{
    adaptive_p_state *s = state;
    adaptive_p_params *p = out;
    *p = (adaptive_p_params){
        .memory = s->memory, .target = s->target, .decay = s->decay, .token = s->draft};
    p->memory.token = QN_TOKEN_NONE; /* nothing is picked yet in this batch */
    qn__draw_write_ahead(&s->draw, j, p->fractions);
    s->draft = QN_TOKEN_NONE;
    return adaptive_p_room(s, j, 0);
}

static void adaptive_p_begin(void *state)
{
    adaptive_p_state *s = state;
    s->draft = QN_TOKEN_NONE;
    qn__draw_forget(&s->draw);
}

static void adaptive_p_draft(void *state, int32_t token)
{
    adaptive_p_state *s = state;
    s->draft = s->draft == QN_TOKEN_NONE ? token : s->draft;
}

static void adaptive_p_take(void *state, const int32_t *carry)
{
    adaptive_p_state *s = state;
    adaptive_p_memory row;
    memcpy(&row, carry, sizeof row);
    s->memory.token = row.token;
    s->memory.token_p = row.token_p;
    qn__draw_take(&s->draw, row.drew != 0);
}

static const qn_sampler_graph adaptive_p_graph = {.stage = QN_STAGE_ADAPTIVE_P,
                                                  .picks = true,
                                                  .draws = true,
                                                  .room = adaptive_p_room,
                                                  .params = adaptive_p_write,
                                                  .begin = adaptive_p_begin,
                                                  .draft = adaptive_p_draft,
                                                  .take = adaptive_p_take};

static bool adaptive_p_seed(const void *state, uint32_t *out)
{
    *out = ((const adaptive_p_state *)state)->draw.used_seed;
    return true;
}

static const qn_sampler_interface adaptive_p_fns = {.name = adaptive_p_name,
                                                    .accept = adaptive_p_accept,
                                                    .apply = adaptive_p_apply,
                                                    .reset = adaptive_p_reset,
                                                    .clone = qn__plain_clone,
                                                    .copy_state = qn__plain_copy,
                                                    .free = qn__plain_free,
                                                    .seed = adaptive_p_seed,
                                                    .graph = &adaptive_p_graph};

qn_sampler *qn_sampler_adaptive_p(float target, float decay, uint32_t seed, qn_error *err)
{
    if (!isfinite(target) || !isfinite(decay)) {
        qn__error(err, QN_ERR_ARGUMENT, "adaptive-p: target %g and decay %g must be finite numbers",
                  (double)target, (double)decay);
        return NULL;
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&adaptive_p_fns, sizeof(adaptive_p_state), &state, err);
    if (s) {
        adaptive_p_state *own = state;
        own->target = target < 1.0F ? target : 1.0F;
        own->decay = decay > 0.0F ? (decay < DECAY_MAX ? decay : DECAY_MAX) : 0.0F;
        own->draw.seed = seed;
        adaptive_p_reset(own);
    }
    return s;
}
