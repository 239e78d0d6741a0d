/*
 * args.h: the one argument parser of the program. A flag is a row of a table; parsing, help,
 * environment variables, configuration files and shell completion all walk the same rows.
 *
 * The rows that several commands share are in flags.c, sorted into groups; a command names the
 * groups that it takes and adds rows of its own. Where a value is stored is an offset into the
 * command's options struct, which begins with a cli_common, so that shared rows fit all of them.
 *
 * Precedence, weakest first: the row's default, configuration files, environment, command line.
 */
#ifndef QUERN_CLI_ARGS_H
#define QUERN_CLI_ARGS_H

#include <quern/base.h>

/* What a flag takes and what is stored. */
typedef enum cli_kind {
    CLI_SWITCH,  /* no value; bool. `off` names the flags that set it to false */
    CLI_INT,     /* int32_t within [min, max] */
    CLI_SEED,    /* uint32_t; -1 is 0xFFFFFFFF, "random" */
    CLI_FLOAT,   /* float within [min, max] */
    CLI_TEXT,    /* const char *; NULL where there is no default */
    CLI_CHOICE,  /* const char *: one of the words of `choices` */
    CLI_TEXTS,   /* cli_texts: may be given several times, all are kept */
    CLI_INTS,    /* cli_ints: lists "1,2", ranges "a-b", "a-b+step", "a-b*factor"; accumulates */
    CLI_CHOICES, /* cli_texts: comma list of words of `choices`; accumulates */
    CLI_ACTION   /* no value; the parser itself acts (help, version, …) */
} cli_kind;

typedef struct cli_texts {
    const char **items;
    size_t count;
} cli_texts;

typedef struct cli_ints {
    int32_t *items;
    size_t count;
} cli_ints;

/* Groups of shared flags; a command takes a set of them. */
enum {
    CLI_GROUP_ALWAYS = 1 << 0,   /* help, version, logging */
    CLI_GROUP_MODEL = 1 << 1,    /* -m and how it is loaded */
    CLI_GROUP_THREADS = 1 << 2,  /* threads and instruction set */
    CLI_GROUP_CONTEXT = 1 << 3,  /* context, batches, cache types */
    CLI_GROUP_SAMPLING = 1 << 4, /* how a token is picked */
    CLI_GROUP_PROMPT = 1 << 5    /* where a prompt comes from */
};

typedef struct cli_flag {
    const char *names; /* "-t, --threads": short ones first, the last is the long name */
    const char *off;   /* switches: "--no-warmup"; NULL where there is no such pair */
    const char *arg;   /* how the value is called in the help: "N"; NULL for switches */
    cli_kind kind;
    double min, max;      /* numbers; both 0: no limits but the type's */
    const char *fallback; /* the default, written as a user would; NULL: 0, false or NULL */
    const char *env;      /* "THREADS" stands for LLAMA_ARG_THREADS; NULL: none */
    const char *choices;  /* "f32 f16 bf16" */
    unsigned group;       /* shared rows: CLI_GROUP_… */
    const char *help;
    size_t offset; /* of the field in the options struct */
} cli_flag;

/* Options that shared flags set; every command's options struct begins with one. */
typedef struct cli_common {
    /* model */
    const char *model;
    const char *load_mode;
    bool mmap, mlock;
    bool check_tensors;
    bool warmup;
    /* threads */
    int32_t n_threads, n_threads_batch;
    const char *isa;
    const char *cpu_mask, *cpu_range;
    int32_t cpu_strict, priority, poll;
    /* context */
    int32_t n_ctx, n_batch, n_ubatch, n_keep;
    bool context_shift, full_windows;
    const char *type_k, *type_v;
    /* sampling */
    uint32_t seed;
    const char *samplers, *sampler_letters;
    float temperature, top_p, min_p, typical_p, top_n_sigma;
    int32_t top_k;
    float dynatemp_range, dynatemp_exponent;
    float xtc_probability, xtc_threshold;
    int32_t repeat_last_n;
    float repeat_penalty, frequency_penalty, presence_penalty;
    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_last_n;
    cli_texts dry_breakers;
    int32_t mirostat;
    float mirostat_tau, mirostat_eta;
    float adaptive_target, adaptive_decay;
    cli_texts logit_bias;
    bool ignore_eos;
    const char *grammar, *grammar_file, *json_schema, *json_schema_file;
    /* prompt */
    const char *prompt, *file, *binary_file;
    bool escape;
    /* log */
    bool log_disable, verbose, log_prefix, log_timestamps;
    const char *log_file;
    int32_t verbosity;
} cli_common;

typedef struct cli_command cli_command;

/* What parsing came to. */
typedef struct cli_args {
    const cli_command *command;
    void *options;           /* the command's struct, filled */
    const char **positional; /* arguments that are no flags */
    size_t n_positional;
    unsigned char *given; /* per flag of the command: who set it last (internal) */
    void **owned;         /* blocks that live as long as this */
    size_t n_owned;
} cli_args;

struct cli_command {
    const char *name;
    const char *peer;    /* names of llama.cpp's programs that it stands in for; may be NULL */
    const char *usage;   /* behind "quern NAME", as "[flags] FILE" */
    const char *summary; /* one line */
    unsigned groups;     /* shared flags */
    const cli_flag *flags;
    size_t n_flags;
    size_t options_size;
    size_t n_positional; /* most arguments that are no flags */
    int (*main)(const cli_args *args);
};

typedef enum cli_result {
    CLI_RUN,  /* go on and run the command */
    CLI_DONE, /* help or the like was printed: exit 0 */
    CLI_FAIL  /* a message was printed: exit 1 */
} cli_result;

/* Parses argv[1..argc) for a command. Messages go to stderr. cli_args_free in any case. */
cli_result cli_args_parse(cli_args *args, const cli_command *command, int argc, char **argv);
void cli_args_free(cli_args *args);

/* Whether anyone (file, environment, command line) set the flag with this name. */
bool cli_is_given(const cli_args *args, const char *name);

/* ---- Between the files of the parser ---- */

#define CLI_ENV_PREFIX "LLAMA_ARG_"

/* The rows that flags.c shares out. */
extern const cli_flag cli_shared_flags[];
extern const size_t cli_n_shared_flags;

/* Row `i` of all that a command takes, shared ones first; NULL past the end. */
const cli_flag *cli_flag_at(const cli_command *command, size_t i);

/* The row with that flag name ("--top_k" finds "--top-k"); NULL: none. *off: it is a switch's
 * negative name. *index: its number. */
const cli_flag *cli_flag_find(const cli_command *command, const char *name, bool *off,
                              size_t *index);

/* Cuts the next name off a list of names into `out`; false at the end. */
bool cli_next_name(const char **names, char *out, size_t room);

/* Stores a value that was written as `text` (NULL for a switch). False with a message in `why`. */
bool cli_set_value(cli_args *args, const cli_flag *flag, const char *text, bool off, bool again,
                   char *why, size_t why_size);

/* true/1/on/enabled, false/0/off/disabled. */
bool cli_parse_bool(const char *text, bool *out);

/* Keeps a block until cli_args_free; NULL (and the block freed) without memory. */
void *cli_keep(cli_args *args, void *block);

/* Reads the configuration files. False after a message. */
bool cli_read_configs(cli_args *args);

void cli_print_help(const cli_command *command);
void cli_print_flag(const cli_flag *flag, bool to_stderr);
void cli_print_version(void);
void cli_print_completion(void);

/* Who set a flag. */
enum { CLI_BY_NOBODY, CLI_BY_CONFIG, CLI_BY_ENVIRONMENT, CLI_BY_COMMAND_LINE };

/* The known flag nearest to what was typed, or NULL where none is near; stored in
 * `out`. */
const char *cli_nearest_flag(const cli_command *command, const char *typed, char *out, size_t room);

/* All commands; NULL name at the end (main.c). */
extern const cli_command *const cli_commands[];

#endif
