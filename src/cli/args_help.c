/* args_help.c: what the flag table looks like to people: help, version, completion, the nearest
 * flag to a mistyped one. */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

enum {
    FLAG_COLUMNS = 40,
    TEXT_COLUMNS = 70, /* of the help text behind them */
    LINE_ROOM = 256,
    NAME_ROOM = 64
};

/* ---- Help ---- */

/* Puts text into lines of at most TEXT_COLUMNS, each FLAG_COLUMNS from the left. `at` is where the
 * cursor stands already. */
static void print_wrapped(FILE *out, const char *text, size_t at)
{
    while (*text) {
        size_t n = strlen(text);
        if (n > TEXT_COLUMNS) {
            n = TEXT_COLUMNS;
            while (n > 0 && text[n] != ' ') {
                n--;
            }
            n = n == 0 ? TEXT_COLUMNS : n;
        }
        fprintf(out, "%*s%.*s\n", (int)(at < FLAG_COLUMNS ? FLAG_COLUMNS - at : 0), "", (int)n,
                text);
        text += n + (text[n] == ' ');
        at = 0;
    }
}

void cli_print_flag(const cli_flag *flag, bool to_stderr)
{
    FILE *out = to_stderr ? stderr : stdout;
    char line[LINE_ROOM], text[2 * LINE_ROOM];
    snprintf(line, sizeof line, "%s%s%s%s%s", flag->names, flag->off ? ", " : "",
             flag->off ? flag->off : "", flag->arg ? " " : "", flag->arg ? flag->arg : "");
    size_t n = strlen(line);
    fputs(line, out);
    if (n >= FLAG_COLUMNS) {
        fputc('\n', out);
        n = 0;
    }
    const char *fallback = flag->fallback;
    if (fallback && flag->kind == CLI_SWITCH) {
        fallback = strcmp(fallback, "true") == 0 ? "on" : "off";
    }
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", flag->help, flag->choices ? ": " : "",
             flag->choices ? flag->choices : "", fallback ? " (default: " : "",
             fallback ? fallback : "", fallback ? ")" : "", "");
    print_wrapped(out, text, n);
    if (flag->env) {
        fprintf(out, "%*s(env: " CLI_ENV_PREFIX "%s)\n", FLAG_COLUMNS, "", flag->env);
    }
}

/* The sections of the help: which shared groups each takes. */
static const struct {
    const char *title;
    unsigned groups;
} sections[] = {
    {"common", CLI_GROUP_ALWAYS | CLI_GROUP_MODEL | CLI_GROUP_THREADS | CLI_GROUP_CONTEXT},
    {"sampling", CLI_GROUP_SAMPLING},
};

void cli_print_help(const cli_command *command)
{
    const cli_flag *flag;
    printf("usage: quern %s %s\n%s\n", command->name, command->usage, command->summary);
    for (size_t s = 0; s < sizeof sections / sizeof sections[0]; s++) {
        bool titled = false;
        for (size_t i = 0; (flag = cli_flag_at(command, i)) != NULL; i++) {
            if (flag->group & sections[s].groups) {
                printf("%s%s%s", titled ? "" : "\n", titled ? "" : sections[s].title,
                       titled ? "" : " flags\n\n");
                titled = true;
                cli_print_flag(flag, false);
            }
        }
    }
    bool titled = false;
    for (size_t i = 0; (flag = cli_flag_at(command, i)) != NULL; i++) {
        if (flag->group == 0 || flag->group == CLI_GROUP_PROMPT) {
            if (!titled) {
                printf("\nflags of quern %s\n\n", command->name);
            }
            titled = true;
            cli_print_flag(flag, false);
        }
    }
}

void cli_print_version(void)
{
#if defined(__clang__)
    static const char compiler[] = "clang " __clang_version__;
#else
    static const char compiler[] = "gcc " __VERSION__;
#endif
#if defined(__x86_64__)
    static const char machine[] = "x86_64";
#elif defined(__aarch64__)
    static const char machine[] = "aarch64";
#else
    static const char machine[] = "unknown processor";
#endif
#if defined(__OPTIMIZE__)
    static const char build[] = "optimized";
#else
    static const char build[] = "debug";
#endif
    printf("quern %s\nbuild: %s, %s\ncompiler: %s\n", qn_version(), build, machine, compiler);
}

/* ---- Completion ---- */

static void print_names(const cli_command *command)
{
    const cli_flag *flag;
    char name[NAME_ROOM];
    for (size_t i = 0; (flag = cli_flag_at(command, i)) != NULL; i++) {
        const char *lists[] = {flag->names, flag->off};
        for (size_t k = 0; k < 2; k++) {
            while (cli_next_name(&lists[k], name, sizeof name)) {
                printf(" %s", name);
            }
        }
    }
}

void cli_print_completion(void)
{
    printf("_quern()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} words=\n");
    printf("    if [ \"$COMP_CWORD\" = 1 ]; then\n        words=\"help");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf(" %s", cli_commands[i]->name);
    }
    printf("\"\n    else\n        case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("        %s) words=\"", cli_commands[i]->name);
        print_names(cli_commands[i]);
        printf("\" ;;\n");
    }
    printf("        esac\n    fi\n    case $cur in\n"
           "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
           "    *) [ \"$COMP_CWORD\" = 1 ] && COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ||\n"
           "        COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
           "    esac\n}\ncomplete -o filenames -F _quern quern\n");
}

/* ---- The nearest flag ---- */

/* Edits (insert, remove, replace, swap two neighbours) that turn one word into the other; long ones
 * count as far. Rows of the table of prefixes: of a's prefixes of i - 2, i - 1 and i letters. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), rows[3][NAME_ROOM + 1];
    if (n > NAME_ROOM || m > NAME_ROOM) {
        return NAME_ROOM;
    }
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < best) {
                best = above2[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest_flag(const cli_command *command, const char *typed, char *out, size_t room)
{
    const cli_flag *flag;
    char name[NAME_ROOM];
    size_t n = strcspn(typed, "=");
    size_t best = n / 2 < 4 ? n / 2 : 4; /* farther is no help */
    bool found = false;
    char word[NAME_ROOM];
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), typed);
    for (size_t i = 0; (flag = cli_flag_at(command, i)) != NULL; i++) {
        const char *lists[] = {flag->names, flag->off};
        for (size_t k = 0; k < 2; k++) {
            while (cli_next_name(&lists[k], name, sizeof name)) {
                size_t d = distance(word, name);
                if (d < best || (d == best && !found)) {
                    best = d;
                    found = true;
                    snprintf(out, room, "%s", name);
                }
            }
        }
    }
    return found ? out : NULL;
}
