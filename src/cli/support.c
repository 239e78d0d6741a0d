/* support.c: see support.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/support.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <quern/gguf.h>
#include <quern/vocab.h>

enum { READ_STEP = 1 << 16 };

int cli_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return 1;
}

double cli_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- Log ---- */

static void write_line(const cli_log *log, FILE *out, qn_log_level level, const char *line)
{
    static const char *const names[] = {"", "error", "warning", "info", "trace", "debug"};
    flockfile(out);
    if (log->timestamps) {
        fprintf(out, "%.3f ", (cli_now_ms() - log->start_ms) * 1e-3);
    }
    if (log->prefix || level <= QN_LOG_WARN) {
        fprintf(out, "%s: ", names[level]);
    }
    fprintf(out, "%s\n", line);
    funlockfile(out);
}

static void on_log(void *user, qn_log_level level, const char *line)
{
    const cli_log *log = user;
    write_line(log, stderr, level, line);
    if (log->file) {
        write_line(log, log->file, level, line);
    }
}

bool cli_log_open(cli_log *log, const cli_common *common, qn_log *out)
{
    int level = common->verbose ? QN_LOG_DEBUG : common->verbosity;
    level = common->log_disable && level > QN_LOG_ERROR ? QN_LOG_ERROR : level;
    *log = (cli_log){.prefix = common->log_prefix,
                     .timestamps = common->log_timestamps,
                     .start_ms = cli_now_ms()};
    *out = (qn_log){.fn = level > 0 ? on_log : NULL, .user = log, .max_level = (qn_log_level)level};
    if (common->log_file) {
        log->file = fopen(common->log_file, "w");
        if (!log->file) {
            cli_error("%s: %s", common->log_file, strerror(errno));
            return false;
        }
    }
    return true;
}

void cli_log_close(cli_log *log)
{
    if (log->file) {
        fclose(log->file);
    }
    log->file = NULL;
}

/* ---- Ctrl-C ---- */

/* Atomic, not only sig_atomic_t: the workers of a pool ask too, and any thread may get the signal.
 */
static atomic_int interrupts;

static void on_interrupt(int number)
{
    (void)number;
    if (atomic_fetch_add(&interrupts, 1) > 0) {
        _exit(130);
    }
}

void cli_catch_interrupt(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void)
{
    return atomic_load(&interrupts) > 0;
}

static bool abort_on_interrupt(void *user)
{
    (void)user;
    return cli_interrupted();
}

/* ---- Prompts ---- */

bool cli_read_file(const char *path, cli_text *out)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    char *data = NULL;
    size_t size = 0, room = 0;
    bool ok = file != NULL;
    while (ok) {
        if (room - size < READ_STEP + 1) {
            room = room * 2 + 2 * READ_STEP;
            char *more = realloc(data, room);
            if (!more) {
                errno = ENOMEM;
                ok = false;
                break;
            }
            data = more;
        }
        size_t n = fread(data + size, 1, READ_STEP, file);
        size += n;
        if (n == 0) {
            ok = !ferror(file);
            break;
        }
    }
    if (!ok) {
        cli_error("%s: %s", standard ? "standard input" : path, strerror(errno));
        free(data);
    } else {
        data[size] = '\0';
        *out = (cli_text){data, size};
    }
    if (file && !standard) {
        fclose(file);
    }
    return ok;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void cli_unescape(cli_text *text)
{
    static const char from[] = "nrt'\"\\", to[] = "\n\r\t'\"\\";
    const char *s = text->data;
    size_t n = text->size, w = 0;
    for (size_t r = 0; r < n;) {
        const char *known = s[r] == '\\' && r + 1 < n && s[r + 1] ? strchr(from, s[r + 1]) : NULL;
        if (known) {
            text->data[w++] = to[known - from];
            r += 2;
        } else if (s[r] == '\\' && r + 3 < n && s[r + 1] == 'x' && hex_digit(s[r + 2]) >= 0 &&
                   hex_digit(s[r + 3]) >= 0) {
            text->data[w++] = (char)(hex_digit(s[r + 2]) * 16 + hex_digit(s[r + 3]));
            r += 4;
        } else {
            text->data[w++] = s[r++];
        }
    }
    text->size = w;
    text->data[w] = '\0';
}

bool cli_read_prompt(const cli_common *common, cli_text *out)
{
    int given = (common->prompt != NULL) + (common->file != NULL) + (common->binary_file != NULL);
    if (given > 1) {
        cli_error("only one of -p, -f and -bf can be given");
        return false;
    }
    if (common->binary_file) {
        return cli_read_file(common->binary_file, out);
    }
    if (common->prompt) {
        size_t size = strlen(common->prompt);
        char *copy = malloc(size + 1);
        if (!copy) {
            cli_error("out of memory");
            return false;
        }
        memcpy(copy, common->prompt, size + 1);
        *out = (cli_text){copy, size};
    } else {
        if (!common->file && isatty(STDIN_FILENO)) {
            cli_error("no prompt: give one with -p TEXT, -f FILE or on standard input");
            return false;
        }
        if (!cli_read_file(common->file ? common->file : "-", out)) {
            return false;
        }
        if (out->size > 0 && out->data[out->size - 1] == '\n') {
            out->data[--out->size] = '\0';
        }
    }
    if (common->escape) {
        cli_unescape(out);
    }
    return true;
}

bool cli_tokenize(const qn_model *model, const char *text, size_t size, qn_tokens *out)
{
    qn_error err = {0};
    const unsigned flags = QN_TOKENIZE_ADD_SPECIAL | QN_TOKENIZE_PARSE_SPECIAL;
    if (qn_vocab_tokenize(qn_model_vocab(model), text, size, flags, out, &err) != QN_OK) {
        cli_error("%s: %s", qn_gguf_file_name(qn_model_gguf(model), 0), err.message);
        return false;
    }
    return true;
}

/* ---- Models ---- */

typedef struct progress {
    bool terminal;
    int shown; /* percent */
} progress;

static bool on_progress(void *user, float fraction)
{
    progress *p = user;
    int percent = (int)(fraction * 100);
    if (p->terminal && percent != p->shown) {
        fprintf(stderr, "\rloading %3d %%", percent);
        p->shown = percent;
    }
    return !cli_interrupted();
}

bool cli_load_model(const cli_common *common, const qn_log *log, qn_model **out)
{
    progress state = {.terminal = isatty(STDERR_FILENO) != 0, .shown = -1};
    qn_model_options options = qn_model_defaults();
    qn_error err = {0};
    const char *mode = common->load_mode;
    options.use_mmap = common->mmap && strcmp(mode, "none") != 0 && strcmp(mode, "mlock") != 0;
    options.use_mlock = common->mlock || strstr(mode, "mlock") != NULL;
    options.check_tensors = common->check_tensors;
    options.n_threads = common->n_threads > 0 ? common->n_threads : 0;
    options.log = *log;
    options.progress = on_progress;
    options.progress_user = &state;
    qn_status status = qn_model_load(out, common->model, &options, &err);
    if (state.shown >= 0) {
        fprintf(stderr, "\r             \r");
    }
    if (status != QN_OK) {
        cli_error("%s", status == QN_ERR_ABORTED ? "interrupted while loading" : err.message);
        return false;
    }
    return true;
}

/* The type with this name, which the flag table has checked. */
static qn_type type_named(const char *name)
{
    qn_type type = QN_TYPE_F16;
    (void)qn_type_from_name(name, &type);
    return type;
}

/* Bits of a hexadecimal number of any length. */
static bool parse_mask(const char *text, uint64_t bits[QN_AFFINITY_WORDS])
{
    const char *digits = strncmp(text, "0x", 2) == 0 ? text + 2 : text;
    size_t n = strlen(digits);
    for (size_t i = 0; i < n; i++) {
        int digit = hex_digit(digits[n - 1 - i]);
        if (digit < 0 || (i / 16 >= QN_AFFINITY_WORDS && digit > 0)) {
            return false;
        }
        if (digit > 0) {
            bits[i / 16] |= (uint64_t)digit << (i % 16 * 4);
        }
    }
    return n > 0;
}

static bool parse_cpu_range(const char *text, uint64_t bits[QN_AFFINITY_WORDS])
{
    unsigned low, high;
    char rest;
    if (sscanf(text, "%u-%u%c", &low, &high, &rest) != 2 || low > high ||
        high >= QN_AFFINITY_WORDS * 64) {
        return false;
    }
    for (unsigned i = low; i <= high; i++) {
        bits[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return true;
}

/* The threads that the flags ask for, automatic ones resolved. */
static void count_threads(const cli_common *common, int32_t *single, int32_t *batch)
{
    qn_device_info info;
    int32_t n_cores = qn_device_get_info(0, &info, NULL) == QN_OK ? info.n_cores : 1;
    *single = common->n_threads > 0 ? common->n_threads : n_cores;
    *batch = common->n_threads_batch > 0 ? common->n_threads_batch : *single;
}

bool cli_open_device(const cli_common *common, const qn_log *log, qn_device **out)
{
    qn_device_options options = qn_device_defaults();
    qn_error err = {0};
    int32_t single, batch;
    count_threads(common, &single, &batch);
    options.isa = common->isa;
    options.log = *log;
    options.threads.n_threads = single > batch ? single : batch;
    options.threads.strict = common->cpu_strict != 0;
    options.threads.priority = common->priority;
    options.threads.poll = common->poll;
    if (common->cpu_mask && !parse_mask(common->cpu_mask, options.threads.affinity)) {
        cli_error("--cpu-mask: \"%s\" is no mask of processors", common->cpu_mask);
        return false;
    }
    if (common->cpu_range && !parse_cpu_range(common->cpu_range, options.threads.affinity)) {
        cli_error("--cpu-range: \"%s\" is no range of processors", common->cpu_range);
        return false;
    }
    if (qn_device_open(0, &options, out, &err) != QN_OK) {
        cli_error("%s", err.message);
        return false;
    }
    return true;
}

qn_context_options cli_context_options(const cli_common *common, const qn_log *log)
{
    qn_context_options options = qn_context_defaults();
    options.n_ctx = common->n_ctx;
    options.n_batch = common->n_batch;
    options.n_ubatch = common->n_ubatch;
    options.n_outputs_max = 1;
    count_threads(common, &options.n_threads, &options.n_threads_batch);
    options.type_k = type_named(common->type_k);
    options.type_v = type_named(common->type_v);
    options.full_windows = common->full_windows;
    options.abort = abort_on_interrupt;
    options.log = *log;
    return options;
}
