/* gguf.c: "quern gguf FILE": header, metadata and tensors of a model file, as text or JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/gguf.h>

#include "cli/commands.h"
#include "cli/json.h"

enum {
    SHOWN_BYTES = 40,   /* of a value in the text listing */
    SHOWN_ELEMENTS = 64 /* of an array in JSON, unless --all */
};

typedef struct gguf_options {
    cli_common common;
    bool json, all, no_tensors, single;
} gguf_options;

/* ---- Text ---- */

/* A short text that grows to at most SHOWN_BYTES and says if it was cut. */
typedef struct shown {
    char text[SHOWN_BYTES * 4 + 16];
    size_t size, used; /* bytes; bytes of the value */
    bool cut;
} shown;

static void show_byte(shown *s, char c)
{
    if (s->used >= SHOWN_BYTES) {
        s->cut = true;
        return;
    }
    unsigned char u = (unsigned char)c;
    s->used++;
    if (c == '\n') {
        s->text[s->size++] = '\\';
        s->text[s->size++] = 'n';
    } else {
        s->text[s->size++] = u < 0x20 || u == 0x7F ? '?' : c;
    }
}

static void show_text(shown *s, const char *text, size_t size, bool quoted)
{
    for (size_t i = 0; i < size && !s->cut; i++) {
        if (quoted && (text[i] == '"' || text[i] == '\\')) {
            show_byte(s, '\\');
        }
        show_byte(s, text[i]);
    }
}

static void show_value(shown *s, const qn_gguf_pair *v, bool quoted)
{
    char number[64];
    switch (v->type) {
    case QN_GGUF_STR:
        show_text(s, "\"", quoted, false);
        show_text(s, v->text.data, v->text.size, quoted);
        show_text(s, "\"", quoted, false);
        return;
    case QN_GGUF_BOOL:
        snprintf(number, sizeof number, "%s", v->value.boolean ? "true" : "false");
        break;
    case QN_GGUF_F32:
    case QN_GGUF_F64:
        snprintf(number, sizeof number, "%.6f", v->value.f64);
        break;
    case QN_GGUF_I8:
    case QN_GGUF_I16:
    case QN_GGUF_I32:
    case QN_GGUF_I64:
        snprintf(number, sizeof number, "%lld", (long long)v->value.i64);
        break;
    default:
        snprintf(number, sizeof number, "%llu", (unsigned long long)v->value.u64);
        break;
    }
    show_text(s, number, strlen(number), false);
}

/* Takes back a character that was cut in the middle. */
static void end_on_character(shown *s)
{
    size_t n = s->size;
    while (s->cut && n > 0 && ((unsigned char)s->text[n - 1] & 0xC0) == 0x80) {
        n--;
    }
    if (s->cut && n > 0 && (unsigned char)s->text[n - 1] >= 0xC0) {
        s->size = n - 1;
    }
}

static void print_pair(const qn_gguf *g, const qn_gguf_pair *pair)
{
    shown key = {0}, value = {0};
    char type[64];
    for (size_t i = 0; i < pair->key.size; i++) {
        key.used = 0; /* keys are shown as long as they fit the text at all */
        if (key.size + 4 < sizeof key.text) {
            show_byte(&key, pair->key.data[i]);
        }
    }
    if (pair->type == QN_GGUF_ARR) {
        qn_gguf_pair element;
        snprintf(type, sizeof type, "arr[%s,%zu]", qn_gguf_type_name(pair->element_type),
                 pair->count);
        show_byte(&value, '[');
        for (size_t i = 0; !value.cut && qn_gguf_array_value(g, pair, i, &element); i++) {
            show_text(&value, ", ", i > 0 ? 2 : 0, false);
            show_value(&value, &element, true);
        }
        show_byte(&value, ']');
    } else {
        snprintf(type, sizeof type, "%s", qn_gguf_type_name(pair->type));
        show_value(&value, pair, false);
    }
    end_on_character(&value);
    printf("  %-44s %-18s %.*s%s\n", key.text, type, (int)value.size, value.text,
           value.cut ? "..." : "");
}

static void print_bytes(uint64_t bytes)
{
    const double mib = 1024.0 * 1024.0;
    if (bytes < 1024 * 1024) {
        printf("%llu bytes", (unsigned long long)bytes);
    } else {
        printf("%.2f MiB", (double)bytes / mib);
    }
}

/* What the tensors come to. */
typedef struct totals {
    uint64_t elements, bytes;
    uint64_t type_bytes[QN_TYPE_COUNT];
    size_t type_count[QN_TYPE_COUNT];
} totals;

static totals sum_up(const qn_gguf *g)
{
    totals sum = {0};
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        sum.elements +=
            (uint64_t)t->ne[0] * (uint64_t)t->ne[1] * (uint64_t)t->ne[2] * (uint64_t)t->ne[3];
        sum.bytes += t->bytes;
        sum.type_bytes[t->type] += t->bytes;
        sum.type_count[t->type]++;
    }
    return sum;
}

static const char *type_name(qn_type type)
{
    const qn_type_info *info = qn_type_get_info(type);
    return info ? info->name : "?";
}

static void print_tensors(const qn_gguf *g)
{
    bool set = qn_gguf_file_count(g) > 1;
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        char shape[96], name[QN_GGUF_MAX_TENSOR_NAME + 1];
        int n = snprintf(shape, sizeof shape, "[%lld", (long long)t->ne[0]);
        for (uint32_t d = 1; d < t->n_dims; d++) {
            n += snprintf(shape + n, sizeof shape - (size_t)n, ", %lld", (long long)t->ne[d]);
        }
        snprintf(shape + n, sizeof shape - (size_t)n, "]");
        snprintf(name, sizeof name, "%s", t->name);
        for (char *c = name; *c; c++) {
            *c = (unsigned char)*c < 0x20 || *c == 0x7F ? '?' : *c;
        }
        printf("  %5zu %-40s %-8s %-24s %12zu bytes at %llu", i, name, type_name(t->type), shape,
               t->bytes, (unsigned long long)t->offset);
        if (set) {
            printf(" of file %zu", t->file);
        }
        putchar('\n');
    }
}

static void print_text(const qn_gguf *g, const gguf_options *o)
{
    totals sum = sum_up(g);
    for (size_t f = 0; f < qn_gguf_file_count(g); f++) {
        printf("%s: ", qn_gguf_file_name(g, f));
        print_bytes(qn_gguf_file_size(g, f));
        printf(", data from %llu\n", (unsigned long long)qn_gguf_data_offset(g, f));
    }
    printf("GGUF version %u, alignment %u\n\n%zu keys\n", qn_gguf_version(g), qn_gguf_alignment(g),
           qn_gguf_pair_count(g));
    for (size_t i = 0; i < qn_gguf_pair_count(g); i++) {
        print_pair(g, qn_gguf_pair_at(g, i));
    }
    printf("\n%zu tensors, %llu values, ", qn_gguf_tensor_count(g),
           (unsigned long long)sum.elements);
    print_bytes(sum.bytes);
    putchar('\n');
    if (!o->no_tensors) {
        print_tensors(g);
        putchar('\n');
    }
    for (int type = 0; type < QN_TYPE_COUNT; type++) {
        if (sum.type_count[type] > 0) {
            printf("  %-8s %5zu tensors, ", type_name((qn_type)type), sum.type_count[type]);
            print_bytes(sum.type_bytes[type]);
            putchar('\n');
        }
    }
}

/* ---- JSON ---- */

static void json_value(cli_json *j, const qn_gguf_pair *v)
{
    switch (v->type) {
    case QN_GGUF_STR:
        cli_json_text_n(j, v->text.data, v->text.size);
        break;
    case QN_GGUF_BOOL:
        cli_json_bool(j, v->value.boolean);
        break;
    case QN_GGUF_F32:
        cli_json_number(j, v->value.f64, 9);
        break;
    case QN_GGUF_F64:
        cli_json_number(j, v->value.f64, 17);
        break;
    case QN_GGUF_I8:
    case QN_GGUF_I16:
    case QN_GGUF_I32:
    case QN_GGUF_I64:
        cli_json_i64(j, v->value.i64);
        break;
    default:
        cli_json_u64(j, v->value.u64);
        break;
    }
}

static void json_pair(cli_json *j, const qn_gguf *g, const qn_gguf_pair *pair, bool all)
{
    cli_json_key_n(j, pair->key.data, pair->key.size);
    cli_json_open(j, '{');
    cli_json_key(j, "type");
    cli_json_text(j, qn_gguf_type_name(pair->type));
    if (pair->type != QN_GGUF_ARR) {
        cli_json_key(j, "value");
        json_value(j, pair);
    } else {
        cli_json_key(j, "element_type");
        cli_json_text(j, qn_gguf_type_name(pair->element_type));
        cli_json_key(j, "count");
        cli_json_u64(j, pair->count);
    }
    if (pair->type == QN_GGUF_ARR && (all || pair->count <= SHOWN_ELEMENTS)) {
        qn_gguf_pair element;
        cli_json_key(j, "value");
        cli_json_open(j, '[');
        for (size_t i = 0; qn_gguf_array_value(g, pair, i, &element); i++) {
            json_value(j, &element);
        }
        cli_json_close(j, ']');
    }
    cli_json_close(j, '}');
}

static void json_tensor(cli_json *j, const qn_gguf_tensor *t)
{
    cli_json_open(j, '{');
    cli_json_key(j, "name");
    cli_json_text(j, t->name);
    cli_json_key(j, "type");
    cli_json_text(j, type_name(t->type));
    cli_json_key(j, "shape");
    cli_json_open(j, '[');
    for (uint32_t d = 0; d < t->n_dims; d++) {
        cli_json_i64(j, t->ne[d]);
    }
    cli_json_close(j, ']');
    cli_json_key(j, "bytes");
    cli_json_u64(j, t->bytes);
    cli_json_key(j, "file");
    cli_json_u64(j, t->file);
    cli_json_key(j, "offset");
    cli_json_u64(j, t->offset);
    cli_json_close(j, '}');
}

static void print_json(const qn_gguf *g, const gguf_options *o)
{
    cli_json json = {.out = stdout}, *j = &json;
    totals sum = sum_up(g);
    cli_json_open(j, '{');
    cli_json_key(j, "version");
    cli_json_u64(j, qn_gguf_version(g));
    cli_json_key(j, "alignment");
    cli_json_u64(j, qn_gguf_alignment(g));
    cli_json_key(j, "files");
    cli_json_open(j, '[');
    for (size_t f = 0; f < qn_gguf_file_count(g); f++) {
        cli_json_open(j, '{');
        cli_json_key(j, "name");
        cli_json_text(j, qn_gguf_file_name(g, f));
        cli_json_key(j, "bytes");
        cli_json_u64(j, qn_gguf_file_size(g, f));
        cli_json_key(j, "data_offset");
        cli_json_u64(j, qn_gguf_data_offset(g, f));
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
    cli_json_key(j, "metadata");
    cli_json_open(j, '{');
    for (size_t i = 0; i < qn_gguf_pair_count(g); i++) {
        json_pair(j, g, qn_gguf_pair_at(g, i), o->all);
    }
    cli_json_close(j, '}');
    cli_json_key(j, "n_tensors");
    cli_json_u64(j, qn_gguf_tensor_count(g));
    cli_json_key(j, "n_values");
    cli_json_u64(j, sum.elements);
    cli_json_key(j, "tensor_bytes");
    cli_json_u64(j, sum.bytes);
    if (!o->no_tensors) {
        cli_json_key(j, "tensors");
        cli_json_open(j, '[');
        for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
            json_tensor(j, qn_gguf_tensor_at(g, i));
        }
        cli_json_close(j, ']');
    }
    cli_json_close(j, '}');
}

static int gguf_main(const cli_args *args)
{
    const gguf_options *o = args->options;
    const char *path = args->n_positional > 0 ? args->positional[0] : o->common.model;
    if (!path) {
        fprintf(stderr, "error: which file? usage: quern gguf FILE\n");
        return 1;
    }
    qn_gguf *g;
    qn_error err = {0};
    qn_gguf_options options = qn_gguf_defaults();
    options.single_file = o->single;
    options.metadata_only = true; /* a file that is cut short can still be looked at */
    if (qn_gguf_open(&g, path, &options, &err) != QN_OK) {
        fprintf(stderr, "error: %s\n", err.message);
        return 1;
    }
    if (o->json) {
        print_json(g, o);
    } else {
        print_text(g, o);
    }
    int code = 0;
    for (size_t i = 0; i < qn_gguf_tensor_count(g) && code == 0; i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        uint8_t last;
        if (t->bytes > 0 && qn_gguf_read_tensor(g, t, t->bytes - 1, 1, &last, &err) != QN_OK) {
            fprintf(stderr, "error: %s\n", err.message);
            code = 1;
        }
    }
    qn_gguf_free(g);
    return code;
}

static const cli_flag flags[] = {
    {.names = "-m, --model",
     .arg = "FILE",
     .kind = CLI_TEXT,
     .help = "the file, as an alternative to the argument",
     .offset = offsetof(gguf_options, common.model)},
    {.names = "--json",
     .kind = CLI_SWITCH,
     .help = "print JSON",
     .offset = offsetof(gguf_options, json)},
    {.names = "--all",
     .kind = CLI_SWITCH,
     .help = "JSON: print the elements of long arrays too",
     .offset = offsetof(gguf_options, all)},
    {.names = "--no-tensors",
     .kind = CLI_SWITCH,
     .help = "leave out the list of tensors",
     .offset = offsetof(gguf_options, no_tensors)},
    {.names = "--single-file",
     .kind = CLI_SWITCH,
     .help = "look at this one file of a split model",
     .offset = offsetof(gguf_options, single)},
};

const cli_command cli_command_gguf = {
    .name = "gguf",
    .peer = "llama-gguf",
    .usage = "[flags] FILE",
    .summary = "Lists header, metadata and tensors of a model file.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(gguf_options),
    .n_positional = 1,
    .main = gguf_main,
};
