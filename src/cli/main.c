/*
 * main.c: the program. Finds the subcommand, has its arguments parsed and runs it. Started under
 * the name of one of llama.cpp's programs it is the command that stands in for it.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

const cli_command *const cli_commands[] = {
    &cli_command_run,  &cli_command_logits,   &cli_command_bench,   &cli_command_tokenize,
    &cli_command_gguf, &cli_command_quantize, &cli_command_devices, NULL, /* the end */
};

static void print_usage(FILE *out)
{
    fprintf(out, "quern %s: runs language models from GGUF files\n\n", qn_version());
    fprintf(out, "usage: quern COMMAND [arguments]\n\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(out, "  %-12s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
    fprintf(out, "\n\"quern COMMAND -h\" tells more; also --version, --completion-bash\n");
}

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return cli_commands[i];
        }
    }
    return NULL;
}

/* The command that stands in for the program of this name, or NULL. */
static const cli_command *find_peer(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *program = slash ? slash + 1 : path;
    char name[64];
    for (size_t i = 0; cli_commands[i]; i++) {
        const char *names = cli_commands[i]->peer;
        while (cli_next_name(&names, name, sizeof name)) {
            if (strcmp(name, program) == 0) {
                return cli_commands[i];
            }
        }
    }
    return NULL;
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_args args;
    cli_result result = cli_args_parse(&args, command, argc, argv);
    int code = result == CLI_RUN ? command->main(&args) : result == CLI_FAIL;
    cli_args_free(&args);
    if (code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        perror("error: standard output");
        code = 1;
    }
    return code;
}

int main(int argc, char **argv)
{
    const cli_command *command = argc > 0 ? find_peer(argv[0]) : NULL;
    if (command) {
        return run(command, argc, argv);
    }
    if (argc < 2) {
        print_usage(stderr);
        return 1;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        cli_print_version();
        return 0;
    }
    if (strcmp(name, "--completion-bash") == 0) {
        cli_print_completion();
        return 0;
    }
    bool help = strcmp(name, "help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0;
    if (help && argc == 2) {
        print_usage(stdout);
        return 0;
    }
    command = find_command(help ? argv[2] : name);
    if (!command) {
        fprintf(stderr, "error: \"%s\" is no command; \"quern help\" lists them\n",
                help ? argv[2] : name);
        return 1;
    }
    if (help) {
        cli_print_help(command);
        return 0;
    }
    return run(command, argc - 1, argv + 1);
}
