/* quantize.c: "quern quantize IN.gguf [OUT.gguf] TYPE [THREADS]": a model in other formats. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <quern/quantize.h>

#include "cli/commands.h"

typedef struct quantize_options {
    cli_common common;
    bool allow_requantize, leave_output, pure, dry_run;
    const char *importance, *output_type, *embedding_type, *tensor_type_file;
    cli_texts tensor_types;
    int32_t buffer_mib;
} quantize_options;

/* The formats asked for tensor by tensor; the patterns are copies. */
typedef struct overrides {
    qn_quantize_override *items;
    size_t count, room;
} overrides;

/* What the callbacks need. */
typedef struct run_state {
    bool quiet, show_progress;
    int last_percent;
} run_state;

static atomic_bool interrupted; /* threads ask, and any of them may get the signal */

static void on_signal(int number)
{
    atomic_store(&interrupted, true);
    signal(number, SIG_DFL); /* a second one ends the program at once */
}

/* ---- Arguments ---- */

static int complain(const char *format, const char *value)
{
    fprintf(stderr, "error: ");
    fprintf(stderr, format, value);
    fputc('\n', stderr);
    return 1;
}

/* A format by name, -1 where none is given. */
static bool parse_format(const char *text, int *out)
{
    qn_type type;
    *out = -1;
    if (!text) {
        return true;
    }
    if (!qn_type_from_name(text, &type)) {
        complain("\"%s\" is no tensor format", text);
        return false;
    }
    *out = (int)type;
    return true;
}

/* Adds "PATTERN=FORMAT". */
static bool add_override(overrides *list, const char *text)
{
    const char *equals = strrchr(text, '=');
    qn_type type;
    if (!equals || equals == text || !qn_type_from_name(equals + 1, &type)) {
        complain("tensor type: \"%s\" is not NAME=FORMAT with a known format", text);
        return false;
    }
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        void *items = realloc(list->items, room * sizeof *list->items);
        if (!items) {
            return false;
        }
        list->items = items;
        list->room = room;
    }
    char *pattern = malloc((size_t)(equals - text) + 1);
    if (!pattern) {
        return false;
    }
    memcpy(pattern, text, (size_t)(equals - text));
    pattern[equals - text] = '\0';
    list->items[list->count++] = (qn_quantize_override){pattern, type};
    return true;
}

static void free_overrides(overrides *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->items[i].pattern);
    }
    free(list->items);
}

/* Words of a file, separated by blanks and line ends. */
static bool read_override_file(overrides *list, const char *path)
{
    char word[512];
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "error: %s: %s\n", path, strerror(errno));
        return false;
    }
    bool ok = true;
    while (ok && fscanf(f, "%511s", word) == 1) {
        ok = strlen(word) < sizeof word - 1 && add_override(list, word);
    }
    fclose(f);
    return ok;
}

static bool parse_threads(const char *text, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 512) {
        complain("threads: \"%s\" is not a number from 1 to 512", text);
        return false;
    }
    *out = (int)n;
    return true;
}

static void print_mixes(void)
{
    fprintf(stderr, "types:");
    for (int mix = QN_MIX_COPY; mix <= QN_MIX_Q2_0; mix++) {
        if (qn_mix_name(mix)) {
            fprintf(stderr, " %s", qn_mix_name(mix));
        }
    }
    fputc('\n', stderr);
}

/* IN [OUT] TYPE [THREADS]. Of three words the last is a number of threads where it is a number and
 * the one before it names a type. False after a message. */
static bool parse_positional(const cli_args *args, const char **in, const char **out,
                             qn_quantize_options *options)
{
    size_t n = args->n_positional;
    const char *const *words = args->positional;
    if (n < 2) {
        complain("which file, and to what type? usage: quern quantize %s", args->command->usage);
        print_mixes();
        return false;
    }
    bool threads_last =
        n == 3 && isdigit((unsigned char)words[2][0]) && qn_mix_from_name(words[1], &options->mix);
    size_t type = n == 2 || threads_last ? 1 : 2;
    *in = words[0];
    *out = type == 2 ? words[1] : NULL;
    if (!qn_mix_from_name(words[type], &options->mix)) {
        complain("\"%s\" is no quantization type", words[type]);
        print_mixes();
        return false;
    }
    return type + 1 >= n || parse_threads(words[type + 1], &options->threads);
}

/* "ggml-model-TYPE.gguf" in the folder of the input, to be freed. */
static char *default_output(const char *in, qn_mix mix)
{
    const char *slash = strrchr(in, '/');
    size_t folder = slash ? (size_t)(slash - in) + 1 : 0;
    size_t room = folder + 64;
    char *path = malloc(room);
    if (path) {
        snprintf(path, room, "%.*sggml-model-%s.gguf", (int)folder, in, qn_mix_name((int)mix));
    }
    return path;
}

/* ---- Running ---- */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static void clear_progress(run_state *state)
{
    if (state->show_progress && state->last_percent >= 0) {
        fprintf(stderr, "\r      \r");
        state->last_percent = -1;
    }
}

static void print_tensor(void *user, const qn_quantize_tensor *t)
{
    run_state *state = user;
    if (state->quiet) {
        return;
    }
    char shape[128];
    int length = 0;
    for (int d = 0; d < t->n_dims; d++) {
        length += snprintf(shape + length, sizeof shape - (size_t)length, "%s%6lld", d ? ", " : "",
                           (long long)t->ne[d]);
    }
    shape[length] = '\0';
    clear_progress(state);
    printf("[%4zu/%4zu] %-36s - [%s], type = %6s, ", t->index + 1, t->count, t->name, shape,
           qn_type_get_info(t->source)->name);
    if (t->source == t->target) {
        printf("size = %8.3f MiB\n", mib(t->source_bytes));
    } else {
        printf("converting to %s .. size = %8.2f MiB -> %8.2f MiB%s%s\n",
               qn_type_get_info(t->target)->name, mib(t->source_bytes), mib(t->target_bytes),
               t->shape_fallback ? " (shape does not fit the mix's choice)" : "",
               t->lacks_importance ? " (needs an importance matrix)" : "");
    }
    fflush(stdout);
}

static bool show_progress(void *user, float fraction)
{
    run_state *state = user;
    int percent = (int)(fraction * 100.0F);
    if (state->show_progress && percent != state->last_percent) {
        fprintf(stderr, "\r%3d %%", percent);
        state->last_percent = percent;
    }
    return !atomic_load(&interrupted);
}

static void print_message(void *user, qn_log_level level, const char *line)
{
    clear_progress(user);
    fprintf(stderr, "%s%s\n", level == QN_LOG_WARN ? "warning: " : "", line);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_result(const qn_quantize_result *r, bool dry_run, double spent)
{
    double values = r->values > 0 ? (double)r->values : 1.0;
    printf("model size  = %10.2f MiB (%.2f BPW)\n", mib(r->source_bytes),
           (double)r->source_bytes * 8.0 / values);
    printf("quant size  = %10.2f MiB (%.2f BPW)\n", mib(r->target_bytes),
           (double)r->target_bytes * 8.0 / values);
    if (r->shape_fallbacks > 0) {
        printf("%zu of %zu tensors have a shape that does not fit the mix's choice\n",
               r->shape_fallbacks, r->tensors);
    }
    if (r->lacking_importance > 0) {
        printf("%zu tensors need an importance matrix (--imatrix)\n", r->lacking_importance);
    }
    if (!dry_run) {
        printf("quantize time = %.2f s\n", spent);
    }
}

static int quantize(const quantize_options *o, const char *in, const char *out,
                    qn_quantize_options *options)
{
    run_state state = {.quiet = o->common.log_disable,
                       .show_progress = isatty(STDERR_FILENO) && !o->common.log_disable,
                       .last_percent = -1};
    options->on_tensor = print_tensor;
    options->progress = show_progress;
    options->user = &state;
    options->log = (qn_log){.fn = print_message,
                            .user = &state,
                            .max_level = o->common.log_disable ? QN_LOG_ERROR : QN_LOG_WARN};
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    qn_error err = {0};
    qn_quantize_result result;
    double start = seconds();
    qn_status status = qn_quantize_file(in, out, options, &result, &err);
    clear_progress(&state);
    if (status != QN_OK) {
        fflush(stdout);
        fprintf(stderr, "error: %s\n", err.message);
        return 1;
    }
    print_result(&result, options->dry_run, seconds() - start);
    if (out && !options->dry_run) {
        printf("written: %s\n", out);
    }
    return 0;
}

static int quantize_main(const cli_args *args)
{
    const quantize_options *o = args->options;
    const char *in;
    const char *out;
    char *own_out = NULL;
    overrides list = {0};
    int code = 1;
    qn_quantize_options options = qn_quantize_defaults();
    options.allow_requantize = o->allow_requantize;
    options.leave_output = o->leave_output;
    options.pure = o->pure;
    options.dry_run = o->dry_run;
    options.importance_file = o->importance;
    options.buffer_bytes = (size_t)o->buffer_mib << 20;
    if (!parse_positional(args, &in, &out, &options) ||
        !parse_format(o->output_type, &options.output_type) ||
        !parse_format(o->embedding_type, &options.embedding_type)) {
        goto done;
    }
    for (size_t i = 0; i < o->tensor_types.count; i++) {
        if (!add_override(&list, o->tensor_types.items[i])) {
            goto done;
        }
    }
    if (o->tensor_type_file && !read_override_file(&list, o->tensor_type_file)) {
        goto done;
    }
    options.overrides = list.items;
    options.override_count = list.count;
    if (!out && !options.dry_run) {
        own_out = default_output(in, options.mix);
        out = own_out;
    }
    code = quantize(o, in, out, &options);
done:
    free_overrides(&list);
    free(own_out);
    return code;
}

#define AT(field) offsetof(quantize_options, field)

static const cli_flag flags[] = {
    {.names = "--allow-requantize",
     .kind = CLI_SWITCH,
     .help = "take tensors that are quantized already; each time costs quality",
     .offset = AT(allow_requantize)},
    {.names = "--leave-output-tensor",
     .kind = CLI_SWITCH,
     .help = "leave output.weight as it is",
     .offset = AT(leave_output)},
    {.names = "--pure",
     .kind = CLI_SWITCH,
     .help = "one format for all matrices instead of the type's mix",
     .offset = AT(pure)},
    {.names = "--imatrix",
     .arg = "FILE",
     .kind = CLI_TEXT,
     .help = "importance of the matrices' columns, which the encoders respect",
     .offset = AT(importance)},
    {.names = "--output-tensor-type",
     .arg = "FORMAT",
     .kind = CLI_TEXT,
     .help = "format of output.weight",
     .offset = AT(output_type)},
    {.names = "--token-embedding-type",
     .arg = "FORMAT",
     .kind = CLI_TEXT,
     .help = "format of the token embedding",
     .offset = AT(embedding_type)},
    {.names = "--tensor-type",
     .arg = "NAME=FORMAT",
     .kind = CLI_TEXTS,
     .help = "format of the tensors in whose name this regular expression is found; the first that "
             "matches wins; may be given several times",
     .offset = AT(tensor_types)},
    {.names = "--tensor-type-file",
     .arg = "FILE",
     .kind = CLI_TEXT,
     .help = "more of these, separated by blanks or line ends",
     .offset = AT(tensor_type_file)},
    {.names = "--dry-run",
     .kind = CLI_SWITCH,
     .help = "print formats and sizes, write nothing",
     .offset = AT(dry_run)},
    {.names = "--max-buffer-size",
     .arg = "MiB",
     .kind = CLI_INT,
     .min = 1,
     .max = 1 << 20,
     .fallback = "64",
     .help = "most memory for rows at work",
     .offset = AT(buffer_mib)},
};

const cli_command cli_command_quantize = {
    .name = "quantize",
    .peer = "llama-quantize",
    .usage = "[flags] IN.gguf [OUT.gguf] TYPE [THREADS]",
    .summary = "Writes a model in other number formats (Q4_K_M, Q8_0, F16, COPY, …).",
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(quantize_options),
    .n_positional = 4,
    .main = quantize_main,
};
