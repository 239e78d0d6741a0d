/*
 * pages.h: what the loader of weights asks of a tensor's pages. All but lock are advice and never
 * fail; on a file that is not mapped they do nothing.
 */
#ifndef QUERN_GGUF_PAGES_H
#define QUERN_GGUF_PAGES_H

#include <quern/gguf.h>

/* The tensor's bytes will be read soon. */
void qn__gguf_will_need(const qn_gguf *g, const qn_gguf_tensor *tensor);

/* Bytes offset .. offset + bytes of the tensor were copied elsewhere: the whole pages among them
 * may leave the process. */
void qn__gguf_drop(const qn_gguf *g, const qn_gguf_tensor *tensor, size_t offset, size_t bytes);

/* Keeps the tensor's pages in memory. Fails with QN_ERR_IO where the system refuses. */
qn_status qn__gguf_lock(const qn_gguf *g, const qn_gguf_tensor *tensor, qn_error *err);

#endif
