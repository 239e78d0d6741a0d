/* quantize_plan.c: see quantize_plan.h. A tensor's format: what the caller says about it, else the
 * mix (quantize_mix.c), then what its shape allows. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/quantize_plan.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/quantize_mix.h"
#include "quant/quant.h"

/* Longest metadata key that is made of the architecture's name. */
enum { MAX_KEY = 256 };

/* What the choice of one tensor looks at. */
typedef struct planner {
    const qn_quantize_options *options;
    const qn_importance *importance;
    qn_mix_model model;
    qn_mix_state state;
    qn_type default_type; /* of the mix */
    pcre2_code **patterns;
    pcre2_match_data *match;
    char architecture[MAX_KEY / 2];
} planner;

/* ---- The caller's patterns ------------------------------------------------------------------- */

static qn_status compile_patterns(planner *p, qn_error *err)
{
    const qn_quantize_options *options = p->options;
    p->patterns = qn__calloc(options->override_count + 1, sizeof(pcre2_code *));
    p->match = pcre2_match_data_create(1, NULL);
    if (!p->patterns || !p->match) {
        return qn__error_memory(err, "tensor patterns");
    }
    for (size_t i = 0; i < options->override_count; i++) {
        const char *pattern = options->overrides[i].pattern;
        int code;
        size_t at;
        p->patterns[i] =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
        if (!p->patterns[i]) {
            PCRE2_UCHAR text[128];
            pcre2_get_error_message(code, text, sizeof text);
            return qn__error(err, QN_ERR_ARGUMENT, "tensor pattern '%s': %s at byte %zu", pattern,
                             (const char *)text, at);
        }
    }
    return QN_OK;
}

static void free_patterns(planner *p)
{
    for (size_t i = 0; p->patterns && i < p->options->override_count; i++) {
        pcre2_code_free(p->patterns[i]);
    }
    free(p->patterns);
    pcre2_match_data_free(p->match);
}

/* The format of the first pattern found in the name; false where there is none. */
static bool override_type(planner *p, const char *name, qn_type *out)
{
    for (size_t i = 0; i < p->options->override_count; i++) {
        if (pcre2_match(p->patterns[i], (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0, p->match,
                        NULL) >= 0) {
            *out = p->options->overrides[i].type;
            return true;
        }
    }
    return false;
}

/* ---- Facts of the model ---------------------------------------------------------------------- */

/* A number of the architecture, of layer 0 where it is an array; `fallback` where it is absent. */
static int64_t read_fact(const qn_gguf *g, const char *architecture, const char *name,
                         int64_t fallback)
{
    char key[MAX_KEY];
    snprintf(key, sizeof key, "%s.%s", architecture, name);
    const qn_gguf_pair *pair = qn_gguf_find(g, key);
    int32_t first;
    if (pair && pair->type == QN_GGUF_ARR && pair->count > 0 &&
        qn_gguf_get_i32s(g, key, 0, 1, &first, NULL) == QN_OK) {
        return first;
    }
    return pair && pair->type == QN_GGUF_U32 ? (int64_t)pair->value.u64 : fallback;
}

static qn_status read_facts(planner *p, const qn_gguf *g, qn_error *err)
{
    qn_gguf_text architecture;
    qn_status status = qn_gguf_get_str(g, "general.architecture", &architecture, err);
    if (status != QN_OK) {
        return status;
    }
    snprintf(p->architecture, sizeof p->architecture, "%s", architecture.data);
    qn_mix_model *m = &p->model;
    m->architecture = p->architecture;
    m->layers = read_fact(g, p->architecture, "block_count", 0);
    m->heads = read_fact(g, p->architecture, "attention.head_count", 0);
    m->kv_heads = read_fact(g, p->architecture, "attention.head_count_kv", m->heads);
    m->experts = read_fact(g, p->architecture, "expert_count", 0);
    m->tied = true;
    m->importance = p->importance != NULL;
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const char *name = qn_gguf_tensor_at(g, i)->name;
        m->v_like += qn__mix_is_v_like(name);
        m->tied = m->tied && !qn__mix_is_output(name);
    }
    return QN_OK;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* The format that the caller asks for outright; false where the mix has to choose. */
static bool asked_type(planner *p, const char *name, qn_type *out)
{
    const qn_quantize_options *options = p->options;
    if (qn__mix_is_embedding(name) && options->embedding_type >= 0) {
        if (strcmp(name, "token_embd.weight") == 0 || !override_type(p, name, out)) {
            *out = (qn_type)options->embedding_type;
        }
        return true;
    }
    if (qn__mix_is_output(name) && options->output_type >= 0) {
        *out = (qn_type)options->output_type;
        return true;
    }
    return false;
}

static qn_status choose_type(planner *p, qn_quantize_item *item, qn_error *err)
{
    const qn_gguf_tensor *t = item->tensor;
    const qn_quantize_options *options = p->options;
    bool keep = options->mix == QN_MIX_COPY ||
                !qn__mix_may_convert(t->name, (int)t->n_dims, t->ne) ||
                (options->leave_output && qn__mix_is_output(t->name));
    if (keep) {
        item->target = t->type;
        return QN_OK;
    }
    if (asked_type(p, t->name, &item->target)) {
        return QN_OK;
    }
    item->target = p->default_type;
    if (!qn_type_get_info(p->default_type)->quantized) {
        return QN_OK;
    }
    if (!override_type(p, t->name, &item->target) && !options->pure) {
        bool serves_as_output = p->model.tied && qn__mix_is_embedding(t->name);
        qn_status status = qn__mix_choose((int)options->mix, &p->model, &p->state, t->name, t->ne,
                                          &item->target, err);
        if (status != QN_OK) {
            return status;
        }
        if (serves_as_output && options->output_type >= 0) {
            item->target = (qn_type)options->output_type;
        }
    }
    return qn__mix_fit_shape(t->name, t->ne[0], &item->target, &item->shape_fallback, err);
}

/* Finds the item's importance weights and refuses formats that would need them. */
static qn_status attach_importance(planner *p, qn_quantize_item *item, qn_error *err)
{
    const qn_gguf_tensor *t = item->tensor;
    size_t count;
    const float *values =
        p->importance ? qn__importance_find(p->importance, t->name, &count) : NULL;
    int64_t columns = t->ne[0] * t->ne[2]; /* the data are there: no overflow */
    if (values && count == (size_t)columns) {
        item->importance = values;
        item->importance_sets = t->ne[2];
    } else if (values && !qn__mix_is_embedding(t->name)) {
        return qn__error(err, QN_ERR_FORMAT, "tensor %s: %zu importance weights for %lld columns",
                         t->name, count, (long long)columns);
    } else if (values) {
        qn__log_line(&p->options->log, QN_LOG_WARN,
                     "importance weights of %s do not fit and are not used", t->name);
    }
    if (item->importance) {
        return QN_OK;
    }
    const qn_quant *format = qn__quant_get(item->target);
    item->lacks_importance = format->needs_weights ||
                             qn__mix_needs_importance((int)p->options->mix, t->name, item->target);
    if (item->lacks_importance && !p->options->dry_run) {
        return qn__error(err, QN_ERR_NOT_FOUND,
                         "tensor %s: %s cannot be made without importance weights", t->name,
                         qn_type_get_info(item->target)->name);
    }
    return QN_OK;
}

/* Whether the item's conversion is one that quern can do and the caller wants. */
static qn_status check_conversion(const planner *p, const qn_quantize_item *item, qn_error *err)
{
    const qn_gguf_tensor *t = item->tensor;
    const qn_type_info *from = qn_type_get_info(t->type);
    const qn_type_info *to = qn_type_get_info(item->target);
    const qn_quant *source = qn__quant_get(t->type);
    const qn_quant *target = qn__quant_get(item->target);
    if (!source || source->activation_only) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "tensor %s: quern cannot convert from %s",
                         t->name, from->name);
    }
    if (!target || !target->encode || target->activation_only) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "tensor %s: quern has no encoder of %s", t->name,
                         to->name);
    }
    if (from->quantized && !p->options->allow_requantize) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "tensor %s is quantized already (%s): converting it to %s loses more, and "
                         "has to be allowed (--allow-requantize)",
                         t->name, from->name, to->name);
    }
    return QN_OK;
}

static qn_status plan_item(planner *p, qn_quantize_item *item, qn_error *err)
{
    const qn_gguf_tensor *t = item->tensor;
    qn_status status = choose_type(p, item, err);
    if (status != QN_OK) {
        return status;
    }
    item->target_bytes = t->bytes;
    if (item->target == t->type) {
        return QN_OK;
    }
    status = check_conversion(p, item, err);
    if (status == QN_OK) {
        status = attach_importance(p, item, err);
    }
    size_t row_bytes;
    if (status == QN_OK) {
        status = qn_type_row_bytes(item->target, t->ne[0], &row_bytes, err);
        if (status != QN_OK) {
            qn__error_prefix(err, "tensor %s", t->name);
        }
    }
    if (status != QN_OK) {
        return status;
    }
    if (!qn__mul_size(row_bytes, (size_t)(t->ne[1] * t->ne[2] * t->ne[3]), &item->target_bytes)) {
        return qn__error(err, QN_ERR_LIMIT, "tensor %s is too large", t->name);
    }
    return QN_OK;
}

static int compare_items(const void *a, const void *b)
{
    return qn__mix_compare(((const qn_quantize_item *)a)->tensor->name,
                           ((const qn_quantize_item *)b)->tensor->name);
}

/* Formats that the caller names must be formats of weights. */
static qn_status check_asked_types(const qn_quantize_options *options, qn_error *err)
{
    int asked[2] = {options->output_type, options->embedding_type};
    for (size_t i = 0; i < 2 + options->override_count; i++) {
        int type = i < 2 ? asked[i] : (int)options->overrides[i - 2].type;
        if (i < 2 && type < 0) {
            continue;
        }
        const qn_quant *format = qn__quant_get((qn_type)type);
        if (!qn_type_get_info(type) || (format && format->activation_only)) {
            return qn__error(err, QN_ERR_ARGUMENT, "%d is not a format of weights", type);
        }
    }
    return QN_OK;
}

qn_status qn__quantize_plan_make(qn_quantize_plan *plan, const qn_gguf *model,
                                 const qn_quantize_options *options,
                                 const qn_importance *importance, qn_error *err)
{
    planner p = {.options = options, .importance = importance};
    *plan = (qn_quantize_plan){0};
    if (options->mix != QN_MIX_COPY && !qn__mix_default_type((int)options->mix, &p.default_type)) {
        return qn__error(err, QN_ERR_ARGUMENT, "%d is not a quantization mix", (int)options->mix);
    }
    size_t count = qn_gguf_tensor_count(model);
    qn_status status = check_asked_types(options, err);
    if (status == QN_OK) {
        status = read_facts(&p, model, err);
    }
    if (status == QN_OK) {
        status = compile_patterns(&p, err);
    }
    if (status != QN_OK) {
        goto done;
    }
    plan->items = qn__calloc(count + 1, sizeof *plan->items);
    if (!plan->items) {
        status = qn__error_memory(err, "list of tensors");
        goto done;
    }
    plan->count = count;
    for (size_t i = 0; i < count; i++) {
        plan->items[i].tensor = qn_gguf_tensor_at(model, i);
    }
    qsort(plan->items, count, sizeof *plan->items, compare_items);
    for (size_t i = 0; i < count && status == QN_OK; i++) {
        status = plan_item(&p, &plan->items[i], err);
    }
done:
    free_patterns(&p);
    return status;
}

void qn__quantize_plan_free(qn_quantize_plan *plan)
{
    free(plan->items);
    *plan = (qn_quantize_plan){0};
}
