/* sampling.c: see sampling.h. */
#include "cli/sampling.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/gguf.h>
#include <quern/vocab.h>

#include "cli/json.h"
#include "cli/support.h"

/* Significant digits of a float. */
enum { DIGITS = 9 };

/* ---- Flags ---- */

static void take_numbers(const cli_common *c, qn_sampling_options *o)
{
    o->seed = c->seed;
    o->top_k = c->top_k;
    o->top_p = c->top_p;
    o->min_p = c->min_p;
    o->typical_p = c->typical_p;
    o->top_n_sigma = c->top_n_sigma;
    o->xtc_probability = c->xtc_probability;
    o->xtc_threshold = c->xtc_threshold;
    o->temperature = c->temperature;
    o->dynatemp_range = c->dynatemp_range;
    o->dynatemp_exponent = c->dynatemp_exponent;
    o->penalty_last_n = c->repeat_last_n;
    o->penalty_repeat = c->repeat_penalty;
    o->penalty_frequency = c->frequency_penalty;
    o->penalty_presence = c->presence_penalty;
    o->dry.multiplier = c->dry_multiplier;
    if (c->dry_base >= 1.0F) { /* below, the default stays */
        o->dry.base = c->dry_base;
    }
    o->dry.allowed_length = c->dry_allowed_length;
    o->dry.last_n = c->dry_last_n;
    o->mirostat = c->mirostat;
    o->mirostat_tau = c->mirostat_tau;
    o->mirostat_eta = c->mirostat_eta;
    o->adaptive_target = c->adaptive_target;
    o->adaptive_decay = c->adaptive_decay;
    o->ignore_eos = c->ignore_eos;
}

/* "15043+1.5", "15043-inf". */
static bool parse_bias(const char *text, qn_logit_bias *out)
{
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    if (end == text || errno != 0 || id < 0 || id > INT32_MAX || (*end != '+' && *end != '-')) {
        return false;
    }
    const char *number = end + 1;
    double bias = strtod(number, &end);
    if (end == number || *end || *number == '+' || *number == '-' || isnan(bias)) {
        return false;
    }
    *out = (qn_logit_bias){(int32_t)id, (float)(number[-1] == '-' ? -bias : bias)};
    return true;
}

static bool read_biases(const cli_texts *list, cli_sampling *s)
{
    if (list->count == 0) {
        return true;
    }
    s->biases = calloc(list->count, sizeof *s->biases);
    if (!s->biases) {
        cli_error("out of memory");
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (!parse_bias(list->items[i], &s->biases[i])) {
            cli_error("--logit-bias: \"%s\" is not a token id, + or -, and a number",
                      list->items[i]);
            return false;
        }
    }
    s->options.biases = s->biases;
    s->options.n_biases = list->count;
    return true;
}

/* The first one replaces the usual ones; "none" stands for nothing. */
static bool read_breakers(const cli_common *c, cli_sampling *s)
{
    const cli_texts *list = &c->dry_breakers;
    if (list->count == 0) {
        return true;
    }
    s->options.dry.n_breakers = 0;
    s->breakers = calloc(list->count + 1, sizeof *s->breakers); /* NULL at the end */
    for (size_t i = 0, n = 0; s->breakers && i < list->count; i++) {
        if (strcmp(list->items[i], "none") == 0) {
            continue;
        }
        size_t size = strlen(list->items[i]);
        cli_text text = {malloc(size + 1), size};
        if (!text.data) {
            break;
        }
        memcpy(text.data, list->items[i], size + 1);
        if (c->escape) {
            cli_unescape(&text);
        }
        s->breakers[n++] = text.data;
        s->options.dry.n_breakers = n;
    }
    s->options.dry.breakers = (const char *const *)s->breakers;
    return s->breakers || cli_error("out of memory") == 0;
}

static bool read_order(const cli_args *args, const qn_log *log, cli_sampling *s)
{
    const cli_common *c = args->options;
    qn_error err = {0};
    qn_status status = QN_OK;
    if (c->samplers && c->sampler_letters) {
        cli_error("only one of --samplers and --sampler-seq can be given");
        return false;
    }
    if (c->samplers) {
        status = qn_sampler_order_from_names(c->samplers, log, &s->options.order, &err);
    } else if (c->sampler_letters) {
        status = qn_sampler_order_from_letters(c->sampler_letters, log, &s->options.order, &err);
    }
    return status == QN_OK || cli_error("%s", err.message) == 0;
}

/* The one grammar or schema that is given, as GBNF. */
static bool read_grammar(const cli_common *c, const qn_log *log, cli_sampling *s)
{
    const char *const given[] = {c->grammar, c->grammar_file, c->json_schema, c->json_schema_file};
    size_t which = 0, n = 0;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        which = given[i] ? i : which;
        n += given[i] != NULL;
    }
    if (n == 0) {
        return true;
    }
    if (n > 1) {
        cli_error("only one of --grammar, --grammar-file, --json-schema and --json-schema-file can "
                  "be given");
        return false;
    }
    cli_text text = {0};
    if (which % 2 == 1) {
        if (!cli_read_file(given[which], &text)) {
            return false;
        }
    } else {
        text.size = strlen(given[which]);
        text.data = malloc(text.size + 1);
        if (!text.data) {
            cli_error("out of memory");
            return false;
        }
        memcpy(text.data, given[which], text.size + 1);
    }
    s->grammar = text.data;
    s->grammar_size = text.size;
    if (which < 2) {
        return true;
    }
    qn_error err = {0};
    char *warnings = NULL;
    qn_status status = qn_grammar_from_schema(text.data, text.size, &s->grammar, &warnings, &err);
    free(text.data);
    if (status != QN_OK) {
        cli_error("%s", err.message);
        return false;
    }
    if (warnings && log && log->fn && log->max_level >= QN_LOG_WARN) {
        log->fn(log->user, QN_LOG_WARN, warnings);
    }
    qn_grammar_text_free(warnings);
    s->grammar_size = strlen(s->grammar);
    return true;
}

qn_sampler *cli_sampling_constrain(const cli_sampling *s, const qn_vocab *vocab, qn_sampler *chain,
                                   qn_error *err)
{
    if (!s->grammar || !chain) {
        return chain;
    }
    qn_grammar *grammar = NULL;
    if (qn_grammar_parse(s->grammar, s->grammar_size, vocab, NULL, &grammar, err) != QN_OK) {
        qn_sampler_free(chain);
        return NULL;
    }
    qn_sampler *both = qn_sampler_constrained(chain, grammar, err);
    qn_grammar_free(grammar);
    return both;
}

/* Settings that a sampler would refuse, before a model is loaded for nothing. */
static bool check(const qn_sampling_options *o)
{
    qn_error err = {0};
    qn_sampler *penalties = qn_sampler_penalties(o->penalty_last_n, o->penalty_repeat,
                                                 o->penalty_frequency, o->penalty_presence, &err);
    if (!penalties) {
        cli_error("%s", err.message);
        return false;
    }
    qn_sampler_free(penalties);
    return true;
}

bool cli_sampling_read(const cli_args *args, const qn_log *log, cli_sampling *out)
{
    const cli_common *c = args->options;
    out->options = qn_sampling_defaults();
    take_numbers(c, &out->options);
    return read_biases(&c->logit_bias, out) && read_breakers(c, out) &&
           read_order(args, log, out) && check(&out->options) && read_grammar(c, log, out);
}

void cli_sampling_free(cli_sampling *s)
{
    for (size_t i = 0; s->breakers && s->breakers[i]; i++) {
        free(s->breakers[i]);
    }
    free((void *)s->breakers);
    free(s->biases);
    free(s->grammar);
    *s = (cli_sampling){0};
}

bool cli_sampling_draws(const cli_sampling *s)
{
    return s->options.temperature > 0 || s->options.dynatemp_range > 0;
}

/* ---- What the model recommends ---- */

/* A number of any type, or one written as text. False: there is none. */
static bool find_number(const qn_gguf *g, const char *key, double *out)
{
    const qn_gguf_pair *pair = qn_gguf_find(g, key);
    if (!pair) {
        return false;
    }
    char *end;
    switch (pair->type) {
    case QN_GGUF_F32:
    case QN_GGUF_F64:
        *out = pair->value.f64;
        break;
    case QN_GGUF_STR:
        *out = strtod(pair->text.data, &end);
        if (end == pair->text.data || *end) {
            return false;
        }
        break;
    case QN_GGUF_BOOL:
    case QN_GGUF_ARR:
        return false;
    case QN_GGUF_U8:
    case QN_GGUF_U16:
    case QN_GGUF_U32:
    case QN_GGUF_U64:
        *out = (double)pair->value.u64;
        break;
    default:
        *out = (double)pair->value.i64;
    }
    return isfinite(*out) && fabs(*out) < 1e9;
}

static void recommend(const cli_args *args, const qn_gguf *g, const qn_log *log,
                      qn_sampling_options *o)
{
    const struct {
        const char *flag, *key;
        float *real;
        int32_t *whole;
    } rows[] = {
        {"--temp", "general.sampling.temp", &o->temperature, NULL},
        {"--top-k", "general.sampling.top_k", NULL, &o->top_k},
        {"--top-p", "general.sampling.top_p", &o->top_p, NULL},
        {"--min-p", "general.sampling.min_p", &o->min_p, NULL},
        {"--xtc-probability", "general.sampling.xtc_probability", &o->xtc_probability, NULL},
        {"--xtc-threshold", "general.sampling.xtc_threshold", &o->xtc_threshold, NULL},
        {"--repeat-last-n", "general.sampling.penalty_last_n", NULL, &o->penalty_last_n},
        {"--repeat-penalty", "general.sampling.penalty_repeat", &o->penalty_repeat, NULL},
        {"--mirostat", "general.sampling.mirostat", NULL, &o->mirostat},
        {"--mirostat-ent", "general.sampling.mirostat_tau", &o->mirostat_tau, NULL},
        {"--mirostat-lr", "general.sampling.mirostat_eta", &o->mirostat_eta, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double x;
        if (cli_is_given(args, rows[i].flag) || !find_number(g, rows[i].key, &x)) {
            continue;
        }
        if (rows[i].real) {
            *rows[i].real = (float)x;
        } else {
            *rows[i].whole = (int32_t)x;
        }
    }
    const qn_gguf_pair *order = qn_gguf_find(g, "general.sampling.sequence");
    if (order && order->type == QN_GGUF_STR && !cli_is_given(args, "--samplers") &&
        !cli_is_given(args, "--sampler-seq")) {
        (void)qn_sampler_order_from_names(order->text.data, log, &o->order, NULL);
    }
}

qn_sampler *cli_sampling_chain(const cli_args *args, const qn_model *model, const qn_log *log,
                               cli_sampling *s, qn_error *err)
{
    recommend(args, qn_model_gguf(model), log, &s->options);
    s->options.vocab = qn_model_vocab(model);
    return qn_sampler_from_options(&s->options, err);
}

/* ---- Showing probabilities ---- */

static void put_candidate(cli_json *j, const qn_vocab *vocab, int32_t id, float prob)
{
    size_t size = 0;
    const char *piece = qn_vocab_piece(vocab, id, true, &size);
    cli_json_key(j, "id");
    cli_json_i64(j, id);
    cli_json_key(j, "text");
    cli_json_text_n(j, piece ? piece : "", size);
    cli_json_key(j, "prob");
    cli_json_number(j, (double)prob, DIGITS);
}

qn_status cli_sample_shown(qn_context *ctx, qn_sampler *chain, const qn_vocab *vocab,
                           qn_candidates *c, size_t step, size_t n, int32_t *token, qn_error *err)
{
    *token = QN_TOKEN_NONE;
    const float *logits = qn_context_logits(ctx, -1, err);
    if (!logits) {
        return QN_ERR_NOT_FOUND;
    }
    qn_candidates_fill(c, logits, c->n_max);
    qn_sampler_apply(chain, c);
    if (c->selected < 0 || (size_t)c->selected >= c->size) {
        if (err) {
            err->code = QN_ERR_NOT_FOUND;
            snprintf(err->message, sizeof err->message, "no candidate is left");
        }
        return QN_ERR_NOT_FOUND;
    }
    *token = c->ids[c->selected];
    qn_candidates_weigh(c);
    cli_json j = {.out = stderr, .compact = true};
    cli_json_open(&j, '{');
    cli_json_key(&j, "step");
    cli_json_u64(&j, step);
    put_candidate(&j, vocab, *token, qn_candidates_prob(c, (size_t)c->selected));
    cli_json_key(&j, "top");
    cli_json_open(&j, '[');
    c->sorted = false;
    qn_candidates_sort(c); /* nobody needs the set in its order any more */
    qn_candidates_weigh(c);
    for (size_t i = 0; i < n && i < c->size && c->logits[i] > -INFINITY; i++) {
        cli_json_open(&j, '{');
        put_candidate(&j, vocab, c->ids[i], qn_candidates_prob(c, i));
        cli_json_key(&j, "logit");
        cli_json_number(&j, (double)c->logits[i], DIGITS);
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    cli_json_close(&j, '}');
    return qn_sampler_accept(chain, *token, true, err);
}
