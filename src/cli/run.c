/*
 * run.c: "quern run": a prompt goes in, text comes out as it is made.
 *
 * The way of a token: prompt text -> ids (vocabulary) -> batches (context) -> last row -> sampler
 * -> id -> bytes that end on a character (detokenizer) -> standard output. Everything that is not
 * text goes to stderr.
 */
#include <stdlib.h>
#include <string.h>

#include <quern/sampler.h>
#include <quern/vocab.h>

#include "cli/commands.h"
#include "cli/sampling.h"
#include "cli/support.h"

enum { UNLIMITED = -1, UNTIL_FULL = -2 };

typedef struct run_options {
    cli_common common;
    int32_t n_predict;
    bool display_prompt, verbose_prompt, special, show_timings;
    int32_t show_probs;
    const char *prompt_cache;
    bool prompt_cache_all, prompt_cache_ro;
    bool backend_sampling;
} run_options;

/* A run in progress. */
typedef struct session {
    const cli_args *args;
    const run_options *o;
    qn_model *model;
    qn_device *device;
    const qn_vocab *vocab;
    qn_context *ctx;
    cli_sampling sampling;
    qn_sampler *chain; /* of the sampler: all of it, or what a grammar constrains */
    qn_sampler *sampler;
    qn_candidates *candidates; /* for --show-probs */
    qn_detokenizer *detokenizer;
    qn_tokens tokens; /* what the sequence holds, and the one to come */
    size_t n_prompt;
    int32_t n_ctx;
    int32_t n_past;  /* positions that the context holds */
    size_t n_reused; /* tokens of the prompt that came from the prompt cache */
    size_t n_made;
    double start_ms, load_ms, prompt_ms, first_ms, eval_ms, sample_ms;
} session;

/* ---- Preparing ---- */

/* Computes one token for nothing, so that the first real one does not pay for cold memory. */
static bool warm_up(session *s, qn_error *err)
{
    int32_t token = s->tokens.ids[0];
    qn_batch batch = qn_batch_of(&token, 1);
    qn_status status = qn_context_decode(s->ctx, &batch, err);
    qn_context_clear(s->ctx);
    qn_context_reset_counters(s->ctx);
    return status == QN_OK || status == QN_ERR_ABORTED;
}

static bool prepare(session *s, const qn_log *log)
{
    const cli_common *c = &s->o->common;
    qn_error err = {0};
    if (!cli_open_device(c, log, &s->device) || !cli_load_model(c, log, &s->model)) {
        return false;
    }
    s->vocab = qn_model_vocab(s->model);
    if (!qn_model_has_decoder(s->model) || !qn_model_is_causal(s->model)) {
        cli_error("%s: a %s model does not generate text", c->model,
                  qn_model_architecture(s->model));
        return false;
    }
    qn_context_options options = cli_context_options(c, log);
    options.device = s->device;
    s->chain = cli_sampling_chain(s->args, s->model, log, &s->sampling, &err);
    s->sampler = cli_sampling_constrain(&s->sampling, s->vocab, s->chain, &err);
    bool ok = s->sampler && qn_context_make(s->model, &options, &s->ctx, &err) == QN_OK &&
              qn_detokenizer_make(s->vocab, s->o->special, &s->detokenizer, &err) == QN_OK;
    if (ok && s->o->backend_sampling && s->o->show_probs == 0) {
        ok = qn_context_set_sampler(s->ctx, 0, s->sampler, &err) == QN_OK;
    }
    if (ok && s->o->show_probs > 0) {
        s->candidates = qn_candidates_make((size_t)qn_vocab_size(s->vocab), &err);
        ok = s->candidates != NULL;
    }
    if (!ok) {
        cli_error("%s", err.message);
        return false;
    }
    s->n_ctx = qn_context_get_options(s->ctx).n_ctx;
    return true;
}

/* Whether the prompt's tokens can be worked with. */
static bool check_prompt(session *s)
{
    if (s->tokens.count == 0) {
        cli_error("the prompt is empty, and the model has no token to begin with");
        return false;
    }
    if (s->tokens.count >= (size_t)s->n_ctx) {
        cli_error("the prompt is too long: %zu tokens, the context has room for %d and needs one "
                  "to go on (-c sets it)",
                  s->tokens.count, s->n_ctx);
        return false;
    }
    s->n_prompt = s->tokens.count;
    return true;
}

static void list_prompt(const session *s)
{
    fprintf(stderr, "prompt: %zu tokens\n", s->n_prompt);
    for (size_t i = 0; i < s->n_prompt; i++) {
        const char *piece = qn_vocab_piece(s->vocab, s->tokens.ids[i], true, NULL);
        fprintf(stderr, "%6d -> '%s'\n", s->tokens.ids[i], piece ? piece : "");
    }
}

/* ---- Prompt cache ---- */

/* Takes as much of the prompt from the cache file as fits. A missing file is fine. */
static bool restore(session *s)
{
    const char *path = s->o->prompt_cache;
    qn_error err = {0};
    FILE *file = fopen(path, "rb");
    if (!file) {
        return true;
    }
    fclose(file);
    int32_t *ids = malloc((size_t)s->n_ctx * sizeof *ids);
    size_t n = 0, same = 0;
    if (!ids || qn_context_state_load(s->ctx, 0, path, ids, (size_t)s->n_ctx, &n, &err) != QN_OK) {
        free(ids);
        cli_error("%s", ids ? err.message : "out of memory");
        return false;
    }
    size_t held = (size_t)(qn_context_pos_max(s->ctx, 0) + 1);
    while (same < n && same < held && same + 1 < s->n_prompt && ids[same] == s->tokens.ids[same]) {
        same++; /* the last token of the prompt is always computed: its row is needed */
    }
    free(ids);
    if (same == 0 || !qn_context_can_resume(s->ctx, 0, (int32_t)same) ||
        qn_context_seq_rm(s->ctx, 0, (int32_t)same, -1, &err) != QN_OK) {
        qn_context_clear(s->ctx);
        same = 0;
    }
    s->n_reused = same;
    s->n_past = (int32_t)same;
    fprintf(stderr, "prompt cache: %zu of %zu tokens are known\n", same, s->n_prompt);
    return true;
}

static bool save(const session *s)
{
    qn_error err = {0};
    if (qn_context_state_save(s->ctx, 0, s->o->prompt_cache, s->tokens.ids, (size_t)s->n_past,
                              &err) != QN_OK) {
        cli_error("%s", err.message);
        return false;
    }
    return true;
}

/* ---- Computing ---- */

/* Makes room by dropping the older half of what is not kept. False: it cannot, stop. */
static bool shift(session *s)
{
    const cli_common *c = &s->o->common;
    qn_error err = {0};
    if (!c->context_shift || s->o->n_predict == UNTIL_FULL) {
        fprintf(stderr, "\ncontext full (%d tokens)\n", s->n_ctx);
        return false;
    }
    int32_t keep = c->n_keep < 0 ? (int32_t)s->n_prompt : c->n_keep;
    keep += c->n_keep >= 0 && qn_vocab_add_bos(s->vocab);
    keep = keep > (int32_t)s->n_prompt ? (int32_t)s->n_prompt : keep;
    int32_t drop = (s->n_past - keep) / 2;
    if (drop < 1) {
        fprintf(stderr, "\ncontext full (%d tokens), and all of it is to be kept\n", s->n_ctx);
        return false;
    }
    if (qn_context_seq_rm(s->ctx, 0, keep, keep + drop, &err) != QN_OK ||
        qn_context_seq_add(s->ctx, 0, keep + drop, -1, -drop, &err) != QN_OK) {
        fprintf(stderr, "\ncontext full, and it cannot be shifted: %s\n", err.message);
        return false;
    }
    size_t tail = s->tokens.count - (size_t)(keep + drop);
    memmove(s->tokens.ids + keep, s->tokens.ids + keep + drop, tail * sizeof *s->tokens.ids);
    s->tokens.count -= (size_t)drop;
    s->n_past -= drop;
    return true;
}

/* Computes the tokens that the context does not hold yet. */
static qn_status compute(session *s, qn_error *err)
{
    int32_t n_batch = qn_context_get_options(s->ctx).n_batch;
    qn_status status = QN_OK;
    while (status == QN_OK && (size_t)s->n_past < s->tokens.count) {
        size_t left = s->tokens.count - (size_t)s->n_past;
        int32_t n = left < (size_t)n_batch ? (int32_t)left : n_batch;
        qn_batch batch = qn_batch_of(s->tokens.ids + s->n_past, n);
        status = qn_context_decode(s->ctx, &batch, err);
        s->n_past += status == QN_OK ? n : 0;
    }
    return status;
}

static bool put(const char *bytes, size_t n)
{
    return fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0;
}

static qn_status pick(session *s, int32_t *token, qn_error *err)
{
    if (!s->candidates) {
        return qn_context_sample(s->ctx, s->sampler, -1, token, err);
    }
    return cli_sample_shown(s->ctx, s->sampler, s->vocab, s->candidates, s->n_made,
                            (size_t)s->o->show_probs, token, err);
}

/* Makes tokens until the text ends, the count is reached, the context is full or Ctrl-C. */
static qn_status generate(session *s, qn_error *err)
{
    int32_t n_predict = s->o->n_predict;
    qn_status status = QN_OK;
    while (n_predict < 0 || s->n_made < (size_t)n_predict) {
        int32_t token;
        double before = cli_now_ms();
        status = pick(s, &token, err);
        double after = cli_now_ms();
        s->sample_ms += after - before;
        if (status != QN_OK) {
            break;
        }
        s->first_ms = s->n_made == 0 ? after - s->start_ms : s->first_ms;
        s->n_made++;
        if (qn_vocab_is_end(s->vocab, token)) {
            fprintf(stderr, " [end of text]");
            break;
        }
        size_t n;
        const char *bytes = qn_detokenizer_add(s->detokenizer, token, &n);
        if (!put(bytes, n)) {
            break;
        }
        status = qn_tokens_add(&s->tokens, &token, 1, err);
        if (status != QN_OK || (n_predict >= 0 && s->n_made >= (size_t)n_predict)) {
            break;
        }
        if (s->n_past >= s->n_ctx && !shift(s)) {
            break;
        }
        before = cli_now_ms();
        status = compute(s, err);
        s->eval_ms += cli_now_ms() - before;
        if (status != QN_OK || cli_interrupted()) {
            break;
        }
    }
    size_t n;
    const char *rest = qn_detokenizer_finish(s->detokenizer, &n);
    put(rest, n);
    return status;
}

static void print_speed(const char *name, double ms, size_t n, const char *unit)
{
    fprintf(stderr, "%16s = %10.2f ms / %5zu %s", name, ms, n, unit);
    if (n > 0 && ms > 0) {
        fprintf(stderr, " (%8.2f ms per token, %8.2f tokens per second)", ms / (double)n,
                (double)n * 1e3 / ms);
    }
    fputc('\n', stderr);
}

static void print_timings(const session *s)
{
    size_t n_eval = s->n_made > 0 ? s->n_made - 1 : 0;
    fprintf(stderr, "%16s = %10.2f ms\n", "load time", s->load_ms);
    fprintf(stderr, "%16s = %10.2f ms\n", "first token after", s->first_ms);
    print_speed("prompt eval time", s->prompt_ms, s->n_prompt - s->n_reused, "tokens");
    print_speed("eval time", s->eval_ms, n_eval, "runs  ");
    print_speed("sampling time", s->sample_ms, s->n_made, "runs  ");
    fprintf(stderr, "%16s = %10.2f ms / %5zu tokens\n", "total time", cli_now_ms() - s->start_ms,
            s->n_prompt + s->n_made);
}

/* Prompt and text of a session that is prepared. Returns the exit code. */
static int write_text(session *s, const cli_text *prompt)
{
    qn_error err = {0};
    for (size_t i = 0; i < s->n_prompt; i++) {
        if (qn_sampler_accept(s->sampler, s->tokens.ids[i], false, &err) != QN_OK) {
            return cli_error("%s", err.message);
        }
    }
    if (s->o->display_prompt) {
        put(prompt->data, prompt->size);
    }
    double before = cli_now_ms();
    qn_status status = compute(s, &err);
    s->prompt_ms = cli_now_ms() - before;
    if (status == QN_OK && s->o->prompt_cache && !s->o->prompt_cache_ro && !save(s)) {
        return 1;
    }
    if (status == QN_OK) {
        status = generate(s, &err);
    }
    fputc('\n', stderr);
    if (status != QN_OK && status != QN_ERR_ABORTED) {
        return cli_error("%s", err.message);
    }
    if (s->o->prompt_cache && s->o->prompt_cache_all && !s->o->prompt_cache_ro && !save(s)) {
        return 1;
    }
    if (s->o->show_timings) {
        print_timings(s);
    }
    return cli_interrupted() ? 130 : 0;
}

/* The chain, and the seed if there is something to draw: what gives the same text again. */
static void print_sampling(const session *s)
{
    char chain[1024];
    qn_sampler_describe(s->chain, chain, sizeof chain);
    fprintf(stderr, "samplers: %s\n", chain);
    if (s->sampling.grammar) {
        fprintf(stderr, "grammar: refused picks are made again\n");
    }
    if (cli_sampling_draws(&s->sampling)) {
        fprintf(stderr, "seed: %u\n", qn_sampler_seed(s->sampler));
    }
}

static void session_free(session *s)
{
    qn_candidates_free(s->candidates);
    qn_detokenizer_free(s->detokenizer);
    qn_context_free(s->ctx);
    qn_sampler_free(s->sampler); /* it may have been attached to the context */
    cli_sampling_free(&s->sampling);
    qn_model_free(s->model);
    qn_device_free(s->device);
    qn_tokens_free(&s->tokens);
}

static int run_main(const cli_args *args)
{
    const run_options *o = args->options;
    session s = {.args = args, .o = o, .start_ms = cli_now_ms()};
    cli_text prompt = {0};
    cli_log log_state;
    qn_log log;
    qn_error err = {0};
    int code = 1;
    if (!cli_log_open(&log_state, &o->common, &log)) {
        return 1;
    }
    cli_catch_interrupt();
    if (!cli_sampling_read(args, &log, &s.sampling) || !cli_read_prompt(&o->common, &prompt) ||
        !prepare(&s, &log) || !cli_tokenize(s.model, prompt.data, prompt.size, &s.tokens) ||
        !check_prompt(&s)) {
        goto done;
    }
    if (o->common.warmup && !warm_up(&s, &err)) {
        cli_error("%s", err.message);
        goto done;
    }
    s.load_ms = cli_now_ms() - s.start_ms;
    print_sampling(&s);
    if (o->verbose_prompt) {
        list_prompt(&s);
    }
    if (o->prompt_cache && !restore(&s)) {
        goto done;
    }
    code = write_text(&s, &prompt);
done:
    session_free(&s);
    free(prompt.data);
    cli_log_close(&log_state);
    return code;
}

#define AT(field) offsetof(run_options, field)

static const cli_flag flags[] = {
    {.names = "-n, --predict, --n-predict",
     .arg = "N",
     .kind = CLI_INT,
     .min = -2,
     .max = INT32_MAX,
     .fallback = "-1",
     .env = "N_PREDICT",
     .help = "tokens to make; -1: until the text ends, -2: until the context is full",
     .offset = AT(n_predict)},
    {.names = "--display-prompt",
     .off = "--no-display-prompt",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .help = "print the prompt before the text",
     .offset = AT(display_prompt)},
    {.names = "--verbose-prompt",
     .kind = CLI_SWITCH,
     .help = "list the prompt's tokens first",
     .offset = AT(verbose_prompt)},
    {.names = "-sp, --special",
     .kind = CLI_SWITCH,
     .help = "print special tokens",
     .offset = AT(special)},
    {.names = "--show-timings",
     .off = "--no-show-timings",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .env = "SHOW_TIMINGS",
     .help = "print times and speeds at the end",
     .offset = AT(show_timings)},
    {.names = "--show-probs",
     .arg = "N",
     .kind = CLI_INT,
     .min = 0,
     .max = INT32_MAX,
     .fallback = "0",
     .help = "write the N likeliest candidates of each step to stderr, a line of JSON each",
     .offset = AT(show_probs)},
    {.names = "-bs, --backend-sampling",
     .off = "--no-backend-sampling",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .env = "BACKEND_SAMPLING",
     .help = "sample where the logits are computed; the text is the same either way",
     .offset = AT(backend_sampling)},
    {.names = "--prompt-cache",
     .arg = "FILE",
     .kind = CLI_TEXT,
     .help = "keep what was computed of the prompt in this file, and begin with what it knows",
     .offset = AT(prompt_cache)},
    {.names = "--prompt-cache-all",
     .kind = CLI_SWITCH,
     .help = "keep the made text there too",
     .offset = AT(prompt_cache_all)},
    {.names = "--prompt-cache-ro",
     .kind = CLI_SWITCH,
     .help = "only read that file",
     .offset = AT(prompt_cache_ro)},
};

const cli_command cli_command_run = {
    .name = "run",
    .peer = "llama-completion, llama-cli",
    .usage = "-m FILE -p TEXT [flags]",
    .summary = "Continues a text.",
    .groups = CLI_GROUP_MODEL | CLI_GROUP_THREADS | CLI_GROUP_CONTEXT | CLI_GROUP_SAMPLING |
              CLI_GROUP_PROMPT,
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(run_options),
    .main = run_main,
};
