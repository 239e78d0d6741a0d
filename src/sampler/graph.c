/* graph.c: see graph.h. */
#include "sampler/graph.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

static const qn_sample_stage *const stages[QN_STAGE_COUNT] = {
    [QN_STAGE_GREEDY] = &qn__stage_greedy,
    [QN_STAGE_DIST] = &qn__stage_dist,
    [QN_STAGE_TOP_K] = &qn__stage_top_k,
    [QN_STAGE_TOP_P] = &qn__stage_top_p,
    [QN_STAGE_MIN_P] = &qn__stage_min_p,
    [QN_STAGE_TEMP] = &qn__stage_temp,
    [QN_STAGE_TEMP_EXT] = &qn__stage_temp_ext,
    [QN_STAGE_TYPICAL] = &qn__stage_typical,
    [QN_STAGE_TOP_N_SIGMA] = &qn__stage_top_n_sigma,
    [QN_STAGE_LOGIT_BIAS] = &qn__stage_logit_bias,
    [QN_STAGE_XTC] = &qn__stage_xtc,
    [QN_STAGE_PENALTIES] = &qn__stage_penalties,
    [QN_STAGE_DRY] = &qn__stage_dry,
    [QN_STAGE_INFILL] = &qn__stage_infill,
    [QN_STAGE_REASONING] = &qn__stage_reasoning,
    [QN_STAGE_MIROSTAT] = &qn__stage_mirostat,
    [QN_STAGE_MIROSTAT_V2] = &qn__stage_mirostat_v2,
    [QN_STAGE_ADAPTIVE_P] = &qn__stage_adaptive_p,
    [QN_STAGE_GRAMMAR] = &qn__stage_grammar,
};

/* Stages in front that change few logits, of which lists are kept. */
#define FRONT_MAX 8

/* What the first stages make known of their work. */
typedef struct front {
    qn_id_list lists[FRONT_MAX];
    size_t n_lists, k;
    bool bounded; /* after those, the k best are kept */
} front;

/* One more stage; false where the front ends. */
static bool add_stage(front *f, const qn_sample_stage *stage, const void *params)
{
    if (stage->keeps) {
        f->k = stage->keeps(params);
        f->bounded = true;
        return false;
    }
    if (!stage->names || f->n_lists == FRONT_MAX) {
        return false;
    }
    qn_id_list *list = &f->lists[f->n_lists++];
    list->ids = stage->names(params, &list->n);
    return true;
}

static void fill_behind(const front *f, qn_candidates *c, const float *logits, size_t n)
{
    if (!f->bounded || !qn__row_begin(c, logits, n, f->k, f->lists, f->n_lists)) {
        qn_candidates_fill(c, logits, n);
    }
}

static void begin(qn_candidates *c, const float *logits, size_t n, const int32_t *program)
{
    front f = {.n_lists = 0};
    const int32_t *word = program + QN_SAMPLE_PROGRAM_HEAD;
    for (int32_t i = 0; i < program[QN_SAMPLE_N_STAGES]; i++) {
        if (!add_stage(&f, stages[word[0]], word + 2)) {
            break;
        }
        word += 2 + word[1];
    }
    fill_behind(&f, c, logits, n);
}

const qn_sample_table qn__sample_table = {
    .fill = qn_candidates_fill, .begin = begin, .stages = stages, .n_stages = QN_STAGE_COUNT};

static const qn_sampler_graph *form_of(const qn_sampler *s)
{
    return s->fns->graph;
}

/* The chain itself, or the one in a constrained one. */
static const qn_sampler *plain(const qn_sampler *chain)
{
    const qn_sampler *inner = qn__constrained_chain(chain);
    return inner ? inner : chain;
}

static bool carries(const qn_sampler *s)
{
    qn_stage_id stage = form_of(s)->stage;
    return stage != QN_STAGE_NONE && stages[stage]->carried;
}

/* Bytes of a member's parameters for row j, at most. */
static size_t param_bytes(const qn_sampler *s, int32_t j, size_t n_drafts)
{
    if (form_of(s)->room) {
        return form_of(s)->room(s->state, j, n_drafts);
    }
    if (form_of(s)->params || !s->state) {
        return form_of(s)->param_bytes;
    }
    return ((const qn_plain_state *)s->state)->bytes;
}

static size_t param_words(size_t bytes)
{
    return qn__align_up(bytes, 8) / sizeof(int32_t);
}

static void add_member(qn_chain_form *form, qn_sampler *member)
{
    const qn_sampler_graph *graph = form_of(member);
    form->n_prefix++;
    if (graph->stage == QN_STAGE_NONE) {
        return;
    }
    form->picks = form->picks || graph->picks;
    form->draws = graph->draws;
    form->follows = form->follows || graph->draft;
    form->carrier = carries(member) ? member : form->carrier;
    form->n_keep = graph->keep ? graph->keep(member->state, form->n_keep) : form->n_keep;
}

static void mark(qn_sampler *member, char how)
{
    const char *name = member->fns->name ? member->fns->name(member->state) : "(null)";
    if (name[0] != '?') {
        snprintf(member->shown, sizeof member->shown, "%c%s", how, name);
    }
}

/* The members that run in the graph, from the front. */
static qn_chain_form form_of_chain(const qn_sampler *chain, bool supported, size_t n)
{
    qn_chain_form form = {.n_keep = n};
    bool works = false; /* there is something to do in the graph */
    size_t size = qn_sampler_chain_size(chain);
    for (size_t i = 0; i < size; i++) {
        qn_sampler *member = qn_sampler_chain_get(chain, i);
        if (!form_of(member)) {
            break;
        }
        bool off = form_of(member)->stage == QN_STAGE_NONE;
        if (!off && (!supported || (form.carrier && carries(member)))) {
            mark(member, '-');
            break;
        }
        mark(member, '+');
        add_member(&form, member);
        works = works || !off;
    }
    form.n_prefix = works ? form.n_prefix : 0;
    form.whole = form.n_prefix == size;
    return form;
}

static void unmark(const qn_sampler *chain)
{
    for (size_t i = 0; i < qn_sampler_chain_size(chain); i++) {
        qn_sampler_chain_get(chain, i)->shown[0] = '\0';
    }
}

qn_status qn__chain_attach(qn_sampler *chain, bool supported, size_t n, qn_chain_form *out,
                           qn_error *err)
{
    qn_sampler *inner = qn__constrained_chain(chain);
    if (qn_sampler_chain_size(plain(chain)) == 0) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "only a chain with samplers can be attached to a sequence");
    }
    if (chain->attached) {
        return qn__error(err, QN_ERR_ARGUMENT, "the chain is attached to a sequence already");
    }
    qn_chain_form form = form_of_chain(plain(chain), supported, n);
    if (inner && !(form.whole && form.picks)) {
        form = (qn_chain_form){.n_keep = n};
        unmark(inner);
    }
    form.check = inner ? chain : NULL;
    form.follows = form.follows || inner;
    chain->attached = true;
    if (inner) {
        inner->attached = true;
    }
    *out = form;
    return QN_OK;
}

void qn__chain_detach(qn_sampler *chain)
{
    qn_sampler *inner = qn__constrained_chain(chain);
    unmark(plain(chain));
    chain->attached = false;
    if (inner) {
        inner->attached = false;
    }
    *qn__chain_row_queue(plain(chain)) = (qn_row_queue){0};
}

void qn__chain_begin(const qn_sampler *chain)
{
    if (qn__constrained_chain(chain)) {
        qn__grammar_graph.begin(chain->state);
    }
    chain = plain(chain);
    *qn__chain_row_queue(chain) = (qn_row_queue){0};
    for (size_t i = 0; i < qn_sampler_chain_size(chain); i++) {
        const qn_sampler *member = qn_sampler_chain_get(chain, i);
        if (form_of(member) && form_of(member)->begin) {
            form_of(member)->begin(member->state);
        }
    }
}

void qn__chain_draft(const qn_sampler *chain, const qn_chain_form *form, int32_t token)
{
    if (form->check) {
        qn__grammar_graph.draft(form->check->state, token);
    }
    for (size_t i = 0; form->follows && i < form->n_prefix; i++) {
        const qn_sampler *member = qn_sampler_chain_get(plain(chain), i);
        if (form_of(member)->draft) {
            form_of(member)->draft(member->state, token);
        }
    }
}

size_t qn__chain_program_words(const qn_sampler *chain, const qn_chain_form *form, int32_t j,
                               size_t n_drafts)
{
    size_t words = QN_SAMPLE_PROGRAM_HEAD;
    if (form->check) {
        words += 2 + param_words(qn__grammar_graph.room(form->check->state, j, n_drafts));
    }
    for (size_t i = 0; i < form->n_prefix; i++) {
        const qn_sampler *member = qn_sampler_chain_get(plain(chain), i);
        if (form_of(member)->stage != QN_STAGE_NONE) {
            words += 2 + param_words(param_bytes(member, j, n_drafts));
        }
    }
    return words;
}

/* A stage with the parameters of a member; returns its words. */
static size_t write_stage(const qn_sampler *member, const qn_sampler_graph *graph, int32_t j,
                          int32_t *out)
{
    size_t bytes = 0;
    if (graph->params) {
        bytes = graph->params(member->state, j, out + 2);
    } else if (member->state) {
        bytes = ((const qn_plain_state *)member->state)->bytes;
        memcpy(out + 2, member->state, bytes);
    }
    out[0] = (int32_t)graph->stage;
    out[1] = (int32_t)param_words(bytes);
    return 2 + param_words(bytes);
}

void qn__chain_program(const qn_sampler *chain, const qn_chain_form *form, int32_t j,
                       const int32_t *carry, int32_t *program)
{
    int32_t *word = program + QN_SAMPLE_PROGRAM_HEAD, n_stages = 0;
    for (size_t i = 0; i < form->n_prefix; i++) {
        const qn_sampler *member = qn_sampler_chain_get(plain(chain), i);
        if (form_of(member)->stage != QN_STAGE_NONE) {
            size_t words = write_stage(member, form_of(member), j, word);
            if (carry && member == form->carrier) {
                memcpy(word + 2, carry, QN_SAMPLE_CARRY_WORDS * sizeof *carry);
            }
            word += words;
            n_stages++;
        }
    }
    program[QN_SAMPLE_N_STAGES] = n_stages;
    program[QN_SAMPLE_CHECK] = 0;
    if (form->check) {
        program[QN_SAMPLE_CHECK] = (int32_t)(word - program);
        write_stage(form->check, &qn__grammar_graph, j, word);
    }
}

void qn__chain_rows(qn_sampler *chain, const qn_chain_form *form, const int32_t *carries, int32_t n,
                    int32_t j)
{
    const qn_sampler *inner = plain(chain);
    *qn__chain_row_queue(inner) = (qn_row_queue){inner, form, carries, n, j};
}

void qn__row_queue_next(qn_row_queue *queue)
{
    if (queue->next >= queue->n) {
        return;
    }
    const int32_t *carry = queue->carries + (size_t)queue->next++ * QN_SAMPLE_CARRY_WORDS;
    for (size_t i = 0; i < queue->form->n_prefix; i++) {
        const qn_sampler *member = qn_sampler_chain_get(queue->chain, i);
        if (form_of(member)->take) {
            form_of(member)->take(member->state, carry);
        }
    }
}

void qn__chain_apply_rest(const qn_sampler *chain, const qn_chain_form *form, qn_candidates *c)
{
    for (size_t i = form->n_prefix; i < qn_sampler_chain_size(plain(chain)); i++) {
        qn_sampler_apply(qn_sampler_chain_get(plain(chain), i), c);
    }
}

void qn__sampler_start(qn_sampler *s, qn_candidates *c, const float *logits, size_t n)
{
    if (qn__constrained_chain(s)) {
        qn__constrained_start(s, c, logits, n);
        return;
    }
    front f = {.n_lists = 0};
    for (size_t i = 0; i < qn_sampler_chain_size(s); i++) {
        const qn_sampler *member = qn_sampler_chain_get(s, i);
        const qn_sampler_graph *graph = form_of(member);
        if (graph && graph->stage == QN_STAGE_NONE) {
            continue;
        }
        if (!graph || graph->params || !add_stage(&f, stages[graph->stage], member->state)) {
            break; /* parameters that are made for each row are not known yet */
        }
    }
    fill_behind(&f, c, logits, n);
    qn_sampler_apply(s, c);
}
