/* sampling.h: from the sampling flags to the chain that picks tokens; showing what it picked from.
 */
#ifndef QUERN_CLI_SAMPLING_H
#define QUERN_CLI_SAMPLING_H

#include <quern/context.h>
#include <quern/model.h>
#include <quern/sampler.h>

#include "cli/args.h"

typedef struct cli_sampling {
    qn_sampling_options options;
    qn_logit_bias *biases; /* what options points to */
    char **breakers;
    char *grammar; /* GBNF text, or NULL */
    size_t grammar_size;
} cli_sampling;

/* Reads and checks what needs no model. False after a message. cli_sampling_free in any case. */
bool cli_sampling_read(const cli_args *args, const qn_log *log, cli_sampling *out);
void cli_sampling_free(cli_sampling *s);

/* The chain for a model: settings that the user did not give are those that its file recommends, if
 * it does. NULL on failure. */
qn_sampler *cli_sampling_chain(const cli_args *args, const qn_model *model, const qn_log *log,
                               cli_sampling *s, qn_error *err);

/* The chain with the grammar that the flags ask for, which it takes; the chain itself where they
 * ask for none. NULL on failure; the chain is then freed. */
qn_sampler *cli_sampling_constrain(const cli_sampling *s, const qn_vocab *vocab, qn_sampler *chain,
                                   qn_error *err);

/* Whether the settings leave anything to chance. */
bool cli_sampling_draws(const cli_sampling *s);

/* As qn_context_sample on the last row, with one line of JSON on stderr: the token picked and the n
 * likeliest candidates that the chain has left. `c` has room for the vocabulary. */
qn_status cli_sample_shown(qn_context *ctx, qn_sampler *chain, const qn_vocab *vocab,
                           qn_candidates *c, size_t step, size_t n, int32_t *token, qn_error *err);

#endif
