/*
 * quern/quern.h: the whole public interface. A token passes through it in this order: a file is
 * opened (gguf.h) and becomes a model (model.h); a text becomes tokens (vocab.h); a context
 * computes them (context.h) on a device (device.h); a sampler picks the next token (sampler.h).
 */
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <quern/base.h>
#include <quern/context.h>
#include <quern/device.h>
#include <quern/gguf.h>
#include <quern/grammar.h>
#include <quern/model.h>
#include <quern/quantize.h>
#include <quern/sampler.h>
#include <quern/type.h>
#include <quern/vocab.h>

#endif
