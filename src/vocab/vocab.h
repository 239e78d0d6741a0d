/* vocab.h: how the model room makes the vocabulary of a file that is open. */
#ifndef QUERN_VOCAB_VOCAB_H
#define QUERN_VOCAB_VOCAB_H

#include <quern/gguf.h>
#include <quern/vocab.h>

/*
 * Reads tokenizer.* of `gguf`, which is not needed afterwards. `log` may be NULL. Errors name the
 * file and the key; see qn_vocab_load_file. Freed with qn_vocab_free.
 */
qn_status qn__vocab_load(const qn_gguf *gguf, const qn_log *log, qn_vocab **out, qn_error *err);

#endif
