/*
 * ten_lines.c: writes what a model says after a prompt, with the installed library alone.
 *
 *     cc ten_lines.c $(pkg-config --cflags --libs quern) -o ten_lines
 *     ./ten_lines model.gguf "Once upon a time"
 */
#include <quern/quern.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    qn_model *model = NULL;
    qn_context *ctx = NULL;
    qn_tokens prompt = {0};
    qn_error err = {QN_ERR_ARGUMENT, "usage: ten_lines MODEL.gguf PROMPT"};

    if (argc == 3 && qn_model_load(&model, argv[1], NULL, &err) == QN_OK &&
        qn_context_make(model, NULL, &ctx, &err) == QN_OK &&
        qn_vocab_tokenize(qn_model_vocab(model), argv[2], strlen(argv[2]), QN_TOKENIZE_ADD_SPECIAL,
                          &prompt, &err) == QN_OK) {
        qn_sampler *sampler = qn_sampler_from_options(NULL, NULL);
        qn_batch batch = qn_batch_of(prompt.ids, (int32_t)prompt.count);
        int32_t token;
        while (qn_context_decode(ctx, &batch, &err) == QN_OK &&
               qn_context_sample(ctx, sampler, -1, &token, &err) == QN_OK &&
               !qn_vocab_is_end(qn_model_vocab(model), token)) {
            fputs(qn_vocab_piece(qn_model_vocab(model), token, false, NULL), stdout);
            fflush(stdout);
            batch = qn_batch_of(&token, 1);
        }
        qn_sampler_free(sampler);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    qn_tokens_free(&prompt);
    qn_context_free(ctx);
    qn_model_free(model);
    return ctx ? 0 : 1;
}
