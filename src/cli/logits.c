/*
 * logits.c: "quern logits": the output rows of a text, for comparing with another engine.
 *
 * -o writes two int32 (rows, columns) and the rows as float32, row by row. --top lists the best
 * candidates of each row instead.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <quern/vocab.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/support.h"

enum { MAX_TOP = 10000 };

typedef struct logits_options {
    cli_common common;
    cli_ints ids;
    int32_t first_position, top;
    const char *rows, *output;
    bool json, embeddings;
} logits_options;

typedef struct candidate {
    int32_t id;
    float logit;
} candidate;

/* Everything that one call works with. */
typedef struct job {
    const logits_options *o;
    qn_device *device;
    qn_model *model;
    qn_context *ctx;
    qn_tokens tokens;
    int32_t width; /* of a row */
    int32_t n_rows;
    FILE *file;
    char *temporary; /* name of the file while it is not complete */
    bool direct;     /* that is the final name already */
    cli_json json;
    candidate *sorted; /* one row's */
} job;

/* ---- Input ---- */

static bool read_tokens(job *j)
{
    const logits_options *o = j->o;
    const cli_common *c = &o->common;
    qn_error err = {0};
    if (o->ids.count > 0) {
        if (c->prompt || c->file || c->binary_file) {
            cli_error("--ids and a prompt cannot both be given");
            return false;
        }
        for (size_t i = 0; i < o->ids.count; i++) {
            if (o->ids.items[i] >= qn_model_n_vocab(j->model)) {
                cli_error("--ids: %d is no token; the vocabulary has %d", o->ids.items[i],
                          qn_model_n_vocab(j->model));
                return false;
            }
        }
        if (qn_tokens_add(&j->tokens, o->ids.items, o->ids.count, &err) != QN_OK) {
            cli_error("%s", err.message);
            return false;
        }
        return true;
    }
    cli_text text;
    if (!cli_read_prompt(c, &text)) {
        return false;
    }
    bool ok = cli_tokenize(j->model, text.data, text.size, &j->tokens);
    free(text.data);
    if (ok && j->tokens.count == 0) {
        cli_error("the prompt has no tokens");
        ok = false;
    }
    return ok;
}

static bool make_context(job *j, const qn_log *log)
{
    const logits_options *o = j->o;
    qn_error err = {0};
    qn_context_options options = cli_context_options(&o->common, log);
    int32_t n = (int32_t)j->tokens.count;
    bool all = strcmp(o->rows, "all") == 0;
    if (options.n_ctx != 0 && options.n_ctx < n) {
        cli_error("the text has %d tokens, the context room for %d (-c sets it)", n, options.n_ctx);
        return false;
    }
    options.device = j->device;
    options.n_ctx = options.n_ctx ? options.n_ctx : n;
    options.n_batch = options.n_batch < n ? options.n_batch : n;
    options.n_outputs_max = all ? options.n_batch : 1;
    options.embeddings = o->embeddings;
    if (qn_context_make(j->model, &options, &j->ctx, &err) != QN_OK) {
        cli_error("%s", err.message);
        return false;
    }
    j->n_rows = all ? n : 1;
    j->width = o->embeddings ? qn_model_n_embd_out(j->model) : qn_model_n_vocab(j->model);
    return true;
}

/* ---- Output ---- */

static bool output_failed(const job *j)
{
    cli_error("%s: %s", j->o->output, strerror(errno));
    return false;
}

static bool open_output(job *j)
{
    const char *path = j->o->output;
    if (!path) {
        j->sorted = malloc((size_t)j->width * sizeof *j->sorted);
        if (!j->sorted) {
            cli_error("out of memory");
            return false;
        }
        j->json = (cli_json){.out = stdout};
        if (j->o->json) {
            cli_json_open(&j->json, '[');
        }
        return true;
    }
    size_t room = strlen(path) + 32;
    struct stat st;
    j->temporary = malloc(room);
    if (!j->temporary) {
        cli_error("out of memory");
        return false;
    }
    j->direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode); /* a pipe, /dev/null: no renaming */
    snprintf(j->temporary, room, "%s", path);
    if (!j->direct) {
        snprintf(j->temporary, room, "%s.tmp-%ld", path, (long)getpid());
    }
    j->file = fopen(j->temporary, "wb");
    int32_t head[2] = {j->n_rows, j->width};
    if (!j->file || fwrite(head, sizeof head, 1, j->file) != 1) {
        return output_failed(j);
    }
    return true;
}

/* Puts the finished file under its name. */
static bool close_output(job *j)
{
    if (!j->file) {
        if (j->o->json) {
            cli_json_close(&j->json, ']');
        }
        return true;
    }
    FILE *file = j->file;
    j->file = NULL;
    if (fclose(file) != 0 || (!j->direct && rename(j->temporary, j->o->output) != 0)) {
        return output_failed(j);
    }
    free(j->temporary);
    j->temporary = NULL;
    return true;
}

static int better(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The best candidates of a row, with log-probabilities over the whole of it. */
static void print_top(job *j, int32_t token_index, const float *row)
{
    double sum = 0;
    for (int32_t i = 0; i < j->width; i++) {
        j->sorted[i] = (candidate){i, row[i]};
    }
    qsort(j->sorted, (size_t)j->width, sizeof *j->sorted, better);
    for (int32_t i = 0; i < j->width; i++) {
        sum += exp((double)(row[i] - j->sorted[0].logit));
    }
    double norm = (double)j->sorted[0].logit + log(sum);
    const qn_vocab *vocab = qn_model_vocab(j->model);
    int32_t position = j->o->first_position + token_index, top = j->o->top;
    if (j->o->json) {
        cli_json_open(&j->json, '{');
        cli_json_key(&j->json, "position");
        cli_json_i64(&j->json, position);
        cli_json_key(&j->json, "token");
        cli_json_i64(&j->json, j->tokens.ids[token_index]);
        cli_json_key(&j->json, "top");
        cli_json_open(&j->json, '[');
    } else {
        printf("position %d, token %d\n", position, j->tokens.ids[token_index]);
    }
    for (int32_t i = 0; i < top && i < j->width; i++) {
        const candidate *c = &j->sorted[i];
        size_t n = 0;
        const char *piece = qn_vocab_piece(vocab, c->id, true, &n);
        if (!j->o->json) {
            printf("%8d %12.6f %10.6f  '%.*s'\n", c->id, (double)c->logit, (double)c->logit - norm,
                   (int)n, piece ? piece : "");
            continue;
        }
        cli_json_open(&j->json, '{');
        cli_json_key(&j->json, "id");
        cli_json_i64(&j->json, c->id);
        cli_json_key(&j->json, "text");
        cli_json_text_n(&j->json, piece ? piece : "", n);
        cli_json_key(&j->json, "logit");
        cli_json_number(&j->json, (double)c->logit, 9);
        cli_json_key(&j->json, "logprob");
        cli_json_number(&j->json, (double)c->logit - norm, 9);
        cli_json_close(&j->json, '}');
    }
    if (j->o->json) {
        cli_json_close(&j->json, ']');
        cli_json_close(&j->json, '}');
    }
}

/* Row of token `index` of the text, `i` of the batch. */
static bool put_row(job *j, int32_t index, int32_t i)
{
    qn_error err = {0};
    const float *row = j->o->embeddings ? qn_context_embeddings(j->ctx, i, &err)
                                        : qn_context_logits(j->ctx, i, &err);
    if (!row) {
        cli_error("%s", err.message);
        return false;
    }
    if (!j->file) {
        print_top(j, index, row);
        return true;
    }
    if (fwrite(row, sizeof *row, (size_t)j->width, j->file) != (size_t)j->width) {
        return output_failed(j);
    }
    return true;
}

/* ---- Computing ---- */

static bool compute(job *j)
{
    int32_t n_tokens = (int32_t)j->tokens.count;
    int32_t n_batch = qn_context_get_options(j->ctx).n_batch;
    int32_t *pos = malloc((size_t)n_batch * sizeof *pos);
    int8_t *output = malloc((size_t)n_batch);
    qn_error err = {0};
    bool ok = pos && output;
    if (!ok) {
        cli_error("out of memory");
    }
    for (int32_t done = 0; ok && done < n_tokens;) {
        int32_t n = n_tokens - done < n_batch ? n_tokens - done : n_batch;
        for (int32_t i = 0; i < n; i++) {
            pos[i] = j->o->first_position + done + i;
            output[i] = j->n_rows > 1 || n_tokens == 1 || done + i == n_tokens - 1;
        }
        qn_batch batch = {
            .n_tokens = n, .tokens = j->tokens.ids + done, .pos = pos, .output = output};
        if (qn_context_decode(j->ctx, &batch, &err) != QN_OK) {
            cli_error("%s", err.message);
            ok = false;
        }
        for (int32_t i = 0; ok && i < n; i++) {
            ok = !output[i] || put_row(j, done + i, i);
        }
        done += n;
    }
    free(pos);
    free(output);
    return ok;
}

static void job_free(job *j)
{
    if (j->file) {
        fclose(j->file);
    }
    if (j->temporary && !j->direct) {
        remove(j->temporary);
    }
    free(j->temporary);
    free(j->sorted);
    qn_tokens_free(&j->tokens);
    qn_context_free(j->ctx);
    qn_model_free(j->model);
    qn_device_free(j->device);
}

static int logits_main(const cli_args *args)
{
    const logits_options *o = args->options;
    cli_log log_state;
    qn_log log;
    if (!o->output && o->top == 0) {
        return cli_error("give -o FILE or --top N");
    }
    if (o->embeddings && !o->output) {
        return cli_error("--embeddings needs -o FILE");
    }
    if (!cli_log_open(&log_state, &o->common, &log)) {
        return 1;
    }
    cli_catch_interrupt();
    job j = {.o = o};
    bool ok = cli_open_device(&o->common, &log, &j.device) &&
              cli_load_model(&o->common, &log, &j.model) && read_tokens(&j) &&
              make_context(&j, &log) && open_output(&j) && compute(&j) && close_output(&j);
    job_free(&j);
    cli_log_close(&log_state);
    return ok ? 0 : cli_interrupted() ? 130 : 1;
}

#define AT(field) offsetof(logits_options, field)

static const cli_flag flags[] = {
    {.names = "--ids",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 0,
     .max = INT32_MAX,
     .help = "token ids in place of a text: 1,2,3",
     .offset = AT(ids)},
    {.names = "--first-position",
     .arg = "P",
     .kind = CLI_INT,
     .min = 0,
     .max = 1 << 30,
     .help = "position of the first token",
     .fallback = "0",
     .offset = AT(first_position)},
    {.names = "--rows",
     .arg = "WHICH",
     .kind = CLI_CHOICE,
     .fallback = "all",
     .choices = "all last",
     .help = "which tokens' rows",
     .offset = AT(rows)},
    {.names = "-o, --output",
     .arg = "FILE",
     .kind = CLI_TEXT,
     .help = "write the rows to this file: two int32 (rows, columns), then float32",
     .offset = AT(output)},
    {.names = "--top",
     .arg = "N",
     .kind = CLI_INT,
     .min = 1,
     .max = MAX_TOP,
     .help = "print the N best candidates of each row",
     .offset = AT(top)},
    {.names = "--json", .kind = CLI_SWITCH, .help = "with --top: as JSON", .offset = AT(json)},
    {.names = "--embeddings",
     .kind = CLI_SWITCH,
     .help = "the final hidden rows instead of logits",
     .offset = AT(embeddings)},
};

const cli_command cli_command_logits = {
    .name = "logits",
    .usage = "-m FILE (-p TEXT | -f FILE | --ids 1,2,3) (-o OUT | --top N)",
    .summary = "Writes the output rows of a text.",
    .groups = CLI_GROUP_MODEL | CLI_GROUP_THREADS | CLI_GROUP_CONTEXT | CLI_GROUP_PROMPT,
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(logits_options),
    .main = logits_main,
};
