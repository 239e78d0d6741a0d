/* ban.h: a sampler that makes tokens impossible, through the public interface for samplers of one's
 * own. */
#ifndef QUERN_CLI_BAN_H
#define QUERN_CLI_BAN_H

#include <quern/sampler.h>
#include <quern/vocab.h>

/* Bans the tokens that the vocabulary says must not be chosen and, if asked, those that end a text.
 * NULL after a failure, with `err` filled. */
qn_sampler *cli_ban_sampler(const qn_vocab *vocab, bool ends, qn_error *err);

#endif
