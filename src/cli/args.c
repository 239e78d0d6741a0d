/* args.c: walks the flag table over defaults, configuration, environment and command line; see
 * args.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_ROOM = 64,
    WHY_ROOM = 256,
    MAX_LIST = 4096 /* values of one list flag */
};

/* ---- The table ---- */

const cli_flag *cli_flag_at(const cli_command *command, size_t i)
{
    for (size_t k = 0; k < cli_n_shared_flags; k++) {
        const cli_flag *flag = &cli_shared_flags[k];
        if (flag->group & (command->groups | CLI_GROUP_ALWAYS)) {
            if (i == 0) {
                return flag;
            }
            i--;
        }
    }
    return i < command->n_flags ? &command->flags[i] : NULL;
}

static size_t count_flags(const cli_command *command)
{
    size_t n = 0;
    while (cli_flag_at(command, n)) {
        n++;
    }
    return n;
}

bool cli_next_name(const char **names, char *out, size_t room)
{
    const char *at = *names;
    if (!at || !*at) {
        return false;
    }
    at += strspn(at, ", ");
    size_t n = strcspn(at, ", ");
    snprintf(out, room, "%.*s", (int)n, at);
    *names = at + n;
    return n > 0;
}

/* Whether a list of names has this one; in long names "_" is as good as "-". */
static bool has_name(const char *names, const char *name)
{
    char one[NAME_ROOM];
    while (cli_next_name(&names, one, sizeof one)) {
        size_t i = 0;
        bool is_long = strncmp(one, "--", 2) == 0;
        while (one[i] && (one[i] == name[i] || (is_long && one[i] == '-' && name[i] == '_'))) {
            i++;
        }
        if (!one[i] && !name[i]) {
            return true;
        }
    }
    return false;
}

const cli_flag *cli_flag_find(const cli_command *command, const char *name, bool *off,
                              size_t *index)
{
    const cli_flag *flag;
    for (size_t i = 0; (flag = cli_flag_at(command, i)) != NULL; i++) {
        bool negative = flag->off && has_name(flag->off, name);
        if (negative || has_name(flag->names, name)) {
            *off = negative;
            *index = i;
            return flag;
        }
    }
    return NULL;
}

/* ---- Values ---- */

void *cli_keep(cli_args *args, void *block)
{
    void **more = realloc(args->owned, (args->n_owned + 1) * sizeof *more);
    if (!more || !block) {
        args->owned = more ? more : args->owned;
        free(block);
        return NULL;
    }
    args->owned = more;
    args->owned[args->n_owned++] = block;
    return block;
}

bool cli_parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "1", "on", "enabled"};
    static const char *const no[] = {"false", "0", "off", "disabled"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* A whole number that uses up the text. */
static bool parse_whole(const char *text, long long *out, const char **end)
{
    char *stop;
    errno = 0;
    *out = strtoll(text, &stop, 10);
    *end = stop;
    return stop != text && errno == 0;
}

static bool set_int(const cli_flag *flag, const char *text, int32_t *out, char *why, size_t n)
{
    double low = flag->min, high = flag->max;
    if (low == 0 && high == 0) {
        low = INT32_MIN;
        high = INT32_MAX;
    }
    const char *end;
    long long v;
    if (!parse_whole(text, &v, &end) || *end) {
        snprintf(why, n, "\"%s\" is not a whole number", text);
        return false;
    }
    if ((double)v < low || (double)v > high) {
        snprintf(why, n, "%lld is not between %.0f and %.0f", v, low, high);
        return false;
    }
    *out = (int32_t)v;
    return true;
}

static bool set_seed(const char *text, uint32_t *out, char *why, size_t n)
{
    const char *end;
    long long v;
    if (!parse_whole(text, &v, &end) || *end || v < -1 || v > UINT32_MAX) {
        snprintf(why, n, "\"%s\" is not a whole number between -1 and %u", text, UINT32_MAX);
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

static bool set_float(const cli_flag *flag, const char *text, float *out, char *why, size_t n)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || fabs(v) > 3e38) {
        snprintf(why, n, "\"%s\" is not a number", text);
        return false;
    }
    if ((flag->min != 0 || flag->max != 0) && (v < flag->min || v > flag->max)) {
        snprintf(why, n, "%s is not between %g and %g", text, flag->min, flag->max);
        return false;
    }
    *out = (float)v;
    return true;
}

/* The word of a list of choices, or NULL. Words are few, so the table's own text is searched. */
static bool is_choice(const char *choices, const char *text, size_t size)
{
    while (*choices) {
        size_t n = strcspn(choices, " ");
        if (n == size && memcmp(choices, text, n) == 0) {
            return true;
        }
        choices += n + (choices[n] == ' ');
    }
    return false;
}

static bool set_choice(const cli_flag *flag, const char *text, const char **out, char *why,
                       size_t n)
{
    if (!is_choice(flag->choices, text, strlen(text))) {
        snprintf(why, n, "\"%s\" is none of: %s", text, flag->choices);
        return false;
    }
    *out = text;
    return true;
}

static bool add_text(cli_args *args, cli_texts *list, const char *text)
{
    const char **more = malloc((list->count + 1) * sizeof *more);
    if (!more || !cli_keep(args, (void *)more)) {
        return false;
    }
    if (list->count > 0) {
        memcpy((void *)more, (const void *)list->items, list->count * sizeof *more);
    }
    more[list->count] = text;
    list->items = more;
    list->count++;
    return true;
}

static bool add_choices(cli_args *args, const cli_flag *flag, const char *text, cli_texts *list,
                        char *why, size_t n)
{
    for (;;) {
        size_t length = strcspn(text, ",");
        if (!is_choice(flag->choices, text, length)) {
            snprintf(why, n, "\"%.*s\" is none of: %s", (int)length, text, flag->choices);
            return false;
        }
        char *word = strndup(text, length);
        if (!cli_keep(args, word) || !add_text(args, list, word)) {
            snprintf(why, n, "out of memory");
            return false;
        }
        if (!text[length]) {
            return true;
        }
        text += length + 1;
    }
}

static bool add_int(cli_args *args, cli_ints *list, long long v)
{
    if (list->count >= MAX_LIST) {
        return false;
    }
    if ((list->count & (list->count - 1)) == 0) { /* a power of two: full */
        int32_t *more = malloc((list->count ? list->count * 2 : 1) * sizeof *more);
        if (!cli_keep(args, more)) {
            return false;
        }
        if (list->count > 0) {
            memcpy(more, list->items, list->count * sizeof *more);
        }
        list->items = more;
    }
    list->items[list->count++] = (int32_t)v;
    return true;
}

/* One item of a list: "8", "1-4", "1-9+2", "1-8*2". *text moves behind it. */
static bool parse_range(const char **text, long long *first, long long *last, long long *step,
                        bool *factor)
{
    const char *at = *text;
    *step = 1;
    *factor = false;
    if (!parse_whole(at, first, &at)) {
        return false;
    }
    *last = *first;
    if (*at == '-') {
        if (!parse_whole(at + 1, last, &at)) {
            return false;
        }
        if (*at == '+' || *at == '*') {
            *factor = *at == '*';
            if (!parse_whole(at + 1, step, &at) || *step < (*factor ? 2 : 1) || *step > INT32_MAX) {
                return false;
            }
        }
    }
    *text = at;
    return (!*factor || *first > 0) && *last >= *first;
}

static bool add_ints(cli_args *args, const cli_flag *flag, const char *text, cli_ints *list,
                     char *why, size_t n)
{
    const char *at = text;
    for (;;) {
        long long first, last, step;
        bool factor;
        if (!parse_range(&at, &first, &last, &step, &factor) || (*at && *at != ',')) {
            snprintf(why, n, "\"%s\" is no list of numbers (1,2 or 1-8, 1-9+2, 1-8*2)", text);
            return false;
        }
        if ((double)first < flag->min || (double)last > flag->max) {
            snprintf(why, n, "\"%s\" is not between %.0f and %.0f", text, flag->min, flag->max);
            return false;
        }
        for (long long v = first; v <= last; v = factor ? v * step : v + step) {
            if (!add_int(args, list, v)) {
                snprintf(why, n, "\"%s\" has too many values", text);
                return false;
            }
        }
        if (!*at) {
            return true;
        }
        at++;
    }
}

bool cli_set_value(cli_args *args, const cli_flag *flag, const char *text, bool off, bool again,
                   char *why, size_t why_size)
{
    void *field = (char *)args->options + flag->offset;
    switch (flag->kind) {
    case CLI_SWITCH:
        *(bool *)field = !off;
        return true;
    case CLI_INT:
        return set_int(flag, text, field, why, why_size);
    case CLI_SEED:
        return set_seed(text, field, why, why_size);
    case CLI_FLOAT:
        return set_float(flag, text, field, why, why_size);
    case CLI_TEXT:
        *(const char **)field = text;
        return true;
    case CLI_CHOICE:
        return set_choice(flag, text, field, why, why_size);
    case CLI_TEXTS:
    case CLI_CHOICES:
        if (!again) {
            *(cli_texts *)field = (cli_texts){0};
        }
        if (flag->kind == CLI_CHOICES) {
            return add_choices(args, flag, text, field, why, why_size);
        }
        snprintf(why, why_size, "out of memory");
        return add_text(args, field, text);
    case CLI_INTS:
        if (!again) {
            *(cli_ints *)field = (cli_ints){0};
        }
        return add_ints(args, flag, text, field, why, why_size);
    default:
        return true;
    }
}

/* ---- The sources, weakest first ---- */

static bool set_defaults(cli_args *args)
{
    const cli_flag *flag;
    char why[WHY_ROOM];
    for (size_t i = 0; (flag = cli_flag_at(args->command, i)) != NULL; i++) {
        bool off =
            flag->kind == CLI_SWITCH && flag->fallback && strcmp(flag->fallback, "true") != 0;
        if (flag->fallback &&
            !cli_set_value(args, flag, flag->fallback, off, false, why, sizeof why)) {
            fprintf(stderr, "error: default of %s: %s\n", flag->names, why);
            return false;
        }
    }
    return true;
}

/* A switch's variables: NAME with a yes or no, NO_NAME with anything. False after a message. */
static bool read_switch_variable(cli_args *args, const cli_flag *flag, size_t index)
{
    char name[NAME_ROOM];
    bool on;
    snprintf(name, sizeof name, CLI_ENV_PREFIX "%s", flag->env);
    const char *text = getenv(name);
    if (text) {
        if (!cli_parse_bool(text, &on)) {
            fprintf(stderr, "error: environment variable %s: \"%s\" is neither on nor off\n", name,
                    text);
            return false;
        }
        cli_set_value(args, flag, NULL, !on, false, NULL, 0);
        args->given[index] = CLI_BY_ENVIRONMENT;
    }
    snprintf(name, sizeof name, CLI_ENV_PREFIX "NO_%s", flag->env);
    if (flag->off && getenv(name)) {
        cli_set_value(args, flag, NULL, true, false, NULL, 0);
        args->given[index] = CLI_BY_ENVIRONMENT;
    }
    return true;
}

static bool read_environment(cli_args *args)
{
    const cli_flag *flag;
    char name[NAME_ROOM], why[WHY_ROOM];
    for (size_t i = 0; (flag = cli_flag_at(args->command, i)) != NULL; i++) {
        if (!flag->env) {
            continue;
        }
        if (flag->kind == CLI_SWITCH) {
            if (!read_switch_variable(args, flag, i)) {
                return false;
            }
            continue;
        }
        snprintf(name, sizeof name, CLI_ENV_PREFIX "%s", flag->env);
        const char *text = getenv(name);
        if (!text) {
            continue;
        }
        if (!cli_set_value(args, flag, text, false, false, why, sizeof why)) {
            fprintf(stderr, "error: environment variable %s: %s\n", name, why);
            cli_print_flag(flag, true);
            return false;
        }
        args->given[i] = CLI_BY_ENVIRONMENT;
    }
    return true;
}

static cli_result unknown(const cli_command *command, const char *text)
{
    char near[NAME_ROOM];
    fprintf(stderr, "error: invalid argument: %s\n", text);
    if (cli_nearest_flag(command, text, near, sizeof near)) {
        fprintf(stderr, "did you mean %s?\n", near);
    }
    fprintf(stderr, "\"quern %s -h\" lists the flags\n", command->name);
    return CLI_FAIL;
}

static cli_result act(const cli_args *args, const cli_flag *flag)
{
    if (strcmp(flag->names, "--version") == 0) {
        cli_print_version();
    } else if (strcmp(flag->names, "--completion-bash") == 0) {
        cli_print_completion();
    } else {
        cli_print_help(args->command);
    }
    return CLI_DONE;
}

static bool accumulates(const cli_flag *flag)
{
    return flag->kind == CLI_TEXTS || flag->kind == CLI_INTS || flag->kind == CLI_CHOICES;
}

/* One flag of the command line; *i stands on it and moves to its last argument. */
static cli_result read_flag(cli_args *args, int argc, char **argv, int *i)
{
    const char *name = argv[*i], *text = NULL;
    char why[WHY_ROOM];
    bool off;
    size_t index;
    const cli_flag *flag = cli_flag_find(args->command, name, &off, &index);
    if (!flag) {
        return unknown(args->command, name);
    }
    if (flag->kind == CLI_ACTION) {
        return act(args, flag);
    }
    if (flag->kind != CLI_SWITCH) {
        if (*i + 1 >= argc) {
            fprintf(stderr, "error: %s: expected value for argument\n", name);
            cli_print_flag(flag, true);
            return CLI_FAIL;
        }
        text = argv[++*i];
    }
    bool again = args->given[index] == CLI_BY_COMMAND_LINE;
    if (again && !accumulates(flag)) {
        fprintf(stderr, "warning: %s is given more than once; the last one counts\n", name);
    } else if (args->given[index] == CLI_BY_ENVIRONMENT) {
        fprintf(stderr, "warning: %s overrides the environment variable " CLI_ENV_PREFIX "%s\n",
                name, flag->env);
    }
    if (!cli_set_value(args, flag, text, off, again, why, sizeof why)) {
        fprintf(stderr, "error: %s: %s\n", name, why);
        cli_print_flag(flag, true);
        fprintf(stderr, "\"quern %s -h\" lists the flags\n", args->command->name);
        return CLI_FAIL;
    }
    args->given[index] = CLI_BY_COMMAND_LINE;
    return CLI_RUN;
}

static cli_result read_command_line(cli_args *args, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (text[0] == '-' && text[1] != '\0') {
            cli_result result = read_flag(args, argc, argv, &i);
            if (result != CLI_RUN) {
                return result;
            }
        } else if (args->n_positional < args->command->n_positional) {
            args->positional[args->n_positional++] = text;
        } else {
            return unknown(args->command, text);
        }
    }
    return CLI_RUN;
}

cli_result cli_args_parse(cli_args *args, const cli_command *command, int argc, char **argv)
{
    *args = (cli_args){.command = command};
    args->options = calloc(1, command->options_size);
    args->given = calloc(count_flags(command) + 1, 1);
    args->positional = calloc(command->n_positional + 1, sizeof *args->positional);
    if (!args->options || !args->given || !args->positional) {
        fprintf(stderr, "error: out of memory\n");
        return CLI_FAIL;
    }
    if (!set_defaults(args) || !cli_read_configs(args) || !read_environment(args)) {
        return CLI_FAIL;
    }
    cli_result result = read_command_line(args, argc, argv);
    const cli_common *common = args->options;
    if (result == CLI_RUN && (command->groups & CLI_GROUP_MODEL) && !common->model) {
        fprintf(stderr, "error: --model is required\n");
        return CLI_FAIL;
    }
    return result;
}

bool cli_is_given(const cli_args *args, const char *name)
{
    bool off;
    size_t index;
    return cli_flag_find(args->command, name, &off, &index) && args->given[index] != CLI_BY_NOBODY;
}

void cli_args_free(cli_args *args)
{
    for (size_t i = 0; i < args->n_owned; i++) {
        free(args->owned[i]);
    }
    free(args->owned);
    free(args->options);
    free(args->given);
    free((void *)args->positional);
    *args = (cli_args){0};
}
