/*
 * args_config.c: configuration files. Lines "key = value"; the key is a long flag name without
 * dashes or the name of an environment variable; "#" and ";" begin comments. Keys that the command
 * does not have are ignored. Under a heading with a command's name the keys count for that command
 * alone; other headings mean nothing.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"

enum { NAME_ROOM = 128, PATH_ROOM = 4096, LINE_LIMIT = 1 << 20 };

/* Cuts blanks off both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) {
        n--;
    }
    text[n] = '\0';
    return text;
}

/* The flag that a key means, or NULL. *off as in cli_flag_find. */
static const cli_flag *find_key(const cli_args *args, const char *key, bool *off, size_t *index)
{
    char name[NAME_ROOM];
    const size_t prefix = strlen(CLI_ENV_PREFIX);
    if (strncmp(key, CLI_ENV_PREFIX, prefix) != 0) {
        snprintf(name, sizeof name, "--%s", key);
        return cli_flag_find(args->command, name, off, index);
    }
    const cli_flag *flag;
    key += prefix;
    for (*index = 0; (flag = cli_flag_at(args->command, *index)) != NULL; ++*index) {
        *off = flag->env && flag->off && strncmp(key, "NO_", 3) == 0 &&
               strcmp(key + 3, flag->env) == 0;
        if (*off || (flag->env && strcmp(key, flag->env) == 0)) {
            return flag;
        }
    }
    return NULL;
}

/* One "key = value" line. False after a message. */
static bool read_pair(cli_args *args, char *line, const char *path, int number)
{
    char why[NAME_ROOM * 2];
    char *value = strchr(line, '=');
    if (!value) {
        fprintf(stderr, "error: %s:%d: no \"=\" in \"%.40s\"\n", path, number, line);
        return false;
    }
    *value++ = '\0';
    char *key = trim(line);
    bool off;
    size_t index;
    const cli_flag *flag = find_key(args, key, &off, &index);
    if (!flag || flag->kind == CLI_ACTION) {
        return true;
    }
    args->given[index] = CLI_BY_CONFIG;
    char *text = strdup(trim(value));
    if (!cli_keep(args, text)) {
        fprintf(stderr, "error: out of memory\n");
        return false;
    }
    if (flag->kind == CLI_SWITCH) {
        bool on;
        if (!cli_parse_bool(text, &on)) {
            fprintf(stderr, "error: %s:%d: %s: \"%s\" is neither on nor off\n", path, number, key,
                    text);
            return false;
        }
        return cli_set_value(args, flag, NULL, on == off, false, why, sizeof why);
    }
    if (!cli_set_value(args, flag, text, off, false, why, sizeof why)) {
        fprintf(stderr, "error: %s:%d: %s: %s\n", path, number, key, why);
        return false;
    }
    return true;
}

static bool is_command(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_file(cli_args *args, const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        return true; /* most have none */
    }
    char *line = NULL;
    size_t room = 0;
    bool ours = true, ok = true;
    for (int number = 1; ok && getline(&line, &room, file) >= 0 && room < LINE_LIMIT; number++) {
        char *text = trim(line);
        if (*text == '[') {
            char *name = text + 1;
            name[strcspn(name, "]")] = '\0';
            ours = !is_command(name) || strcmp(name, args->command->name) == 0;
        } else if (*text && *text != '#' && *text != ';' && ours) {
            ok = read_pair(args, text, path, number);
        }
    }
    free(line);
    fclose(file);
    return ok;
}

bool cli_read_configs(cli_args *args)
{
    static const char *const programs[] = {"llama.cpp", "quern"};
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char path[PATH_ROOM];
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        snprintf(path, sizeof path, "/etc/%s/config.ini", programs[i]);
        if (!read_file(args, path)) {
            return false;
        }
        if (base && *base) {
            snprintf(path, sizeof path, "%s/%s/config.ini", base, programs[i]);
        } else {
            snprintf(path, sizeof path, "%s/.config/%s/config.ini", home ? home : "", programs[i]);
        }
        if (((base && *base) || home) && !read_file(args, path)) {
            return false;
        }
    }
    return true;
}
