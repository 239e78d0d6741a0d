/*
 * commands.h: the subcommands, one file each; main.c lists them in its table.
 *
 * To add one: src/cli/NAME.c with an options struct that begins with a cli_common, a table of
 * cli_flag rows for what the command alone takes, a cli_command that names the shared groups it
 * takes, and a main function; declare it here, list it in main.c, test it in tests/cli/NAME.sh.
 * Messages go to stderr as "error: …" and make the exit code 1; results go to stdout.
 */
#ifndef QUERN_CLI_COMMANDS_H
#define QUERN_CLI_COMMANDS_H

#include "cli/args.h"

extern const cli_command cli_command_run;
extern const cli_command cli_command_logits;
extern const cli_command cli_command_bench;
extern const cli_command cli_command_tokenize;
extern const cli_command cli_command_gguf;
extern const cli_command cli_command_quantize;
extern const cli_command cli_command_devices;

#endif
