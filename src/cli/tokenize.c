/* tokenize.c: "quern tokenize": the tokens of a text. Only the vocabulary is loaded. */
#include <stdlib.h>
#include <string.h>

#include <quern/vocab.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/support.h"

typedef struct tokenize_options {
    cli_common common;
    bool standard_input, ids, bos, parse_special, show_count;
} tokenize_options;

static bool is_utf8(const char *text, size_t size)
{
    while (size > 0) {
        size_t n = cli_utf8_length((const unsigned char *)text, size);
        if (n == 0) {
            return false;
        }
        text += n;
        size -= n;
    }
    return true;
}

static void print_tokens(const qn_vocab *vocab, const qn_tokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++) {
        size_t size = 0;
        const char *piece = qn_vocab_piece(vocab, tokens->ids[i], true, &size);
        printf("%6d -> '", tokens->ids[i]);
        fwrite(piece, 1, piece ? size : 0, stdout);
        printf("'%s\n", piece && is_utf8(piece, size) ? "" : " (utf-8 decode failure)");
    }
}

static void print_ids(const qn_tokens *tokens)
{
    putchar('[');
    for (size_t i = 0; i < tokens->count; i++) {
        printf("%s%d", i > 0 ? ", " : "", tokens->ids[i]);
    }
    printf("]\n");
}

static bool read_text(const tokenize_options *o, cli_text *out)
{
    const cli_common *c = &o->common;
    int given =
        (c->prompt != NULL) + (c->file != NULL) + (c->binary_file != NULL) + o->standard_input;
    if (given != 1) {
        cli_error("give exactly one of -p, -f, -bf and --stdin");
        return false;
    }
    cli_common source = *c;
    source.file = o->standard_input ? "-" : c->file;
    return cli_read_prompt(&source, out);
}

static int tokenize_main(const cli_args *args)
{
    const tokenize_options *o = args->options;
    cli_log log_state;
    qn_log log;
    qn_vocab *vocab = NULL;
    qn_tokens tokens = {0};
    cli_text text = {0};
    qn_error err = {0};
    int code = 1;
    if (!o->common.model) {
        return cli_error("--model is required");
    }
    if (!cli_log_open(&log_state, &o->common, &log)) {
        return 1;
    }
    unsigned flags = (o->bos ? QN_TOKENIZE_ADD_SPECIAL : 0U) |
                     (o->parse_special ? QN_TOKENIZE_PARSE_SPECIAL : 0U);
    if (!read_text(o, &text)) {
        goto done;
    }
    if (qn_vocab_load_file(o->common.model, &log, &vocab, &err) != QN_OK) {
        cli_error("%s", err.message);
        goto done;
    }
    if (qn_vocab_tokenize(vocab, text.data, text.size, flags, &tokens, &err) != QN_OK) {
        cli_error("%s: %s", o->common.model, err.message);
        goto done;
    }
    if (o->ids) {
        print_ids(&tokens);
    } else {
        print_tokens(vocab, &tokens);
    }
    if (o->show_count) {
        printf("Total number of tokens: %zu\n", tokens.count);
    }
    code = 0;
done:
    free(text.data);
    qn_tokens_free(&tokens);
    qn_vocab_free(vocab);
    cli_log_close(&log_state);
    return code;
}

#define AT(field) offsetof(tokenize_options, field)

static const cli_flag flags[] = {
    {.names = "-m, --model",
     .arg = "FILE",
     .kind = CLI_TEXT,
     .env = "MODEL",
     .help = "model file (GGUF); only its vocabulary is read",
     .offset = AT(common.model)},
    {.names = "--stdin",
     .kind = CLI_SWITCH,
     .help = "read the text from standard input",
     .offset = AT(standard_input)},
    {.names = "--ids",
     .kind = CLI_SWITCH,
     .help = "print the ids alone, as a list",
     .offset = AT(ids)},
    {.names = "--bos",
     .off = "--no-bos",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .help = "add the tokens that the vocabulary wants around a text",
     .offset = AT(bos)},
    {.names = "--parse-special",
     .off = "--no-parse-special",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .help = "recognise control tokens in the text",
     .offset = AT(parse_special)},
    {.names = "--show-count",
     .kind = CLI_SWITCH,
     .help = "print the number of tokens too",
     .offset = AT(show_count)},
};

const cli_command cli_command_tokenize = {
    .name = "tokenize",
    .peer = "llama-tokenize",
    .usage = "-m FILE (-p TEXT | -f FILE | --stdin)",
    .summary = "Shows the tokens of a text.",
    .groups = CLI_GROUP_PROMPT,
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(tokenize_options),
    .main = tokenize_main,
};
