/* Gathers single samples into one block (docs/formats/samples.md, "Block"), which `produce --form
 * block` sends. Private to tool.
 *
 * Columns are arrays with one value per sample, as in the line, and nil where a sample does not
 * name the slot. The producer has no model, so it cannot distinguish ids from numbers and packs
 * nothing. A block names its labels, so a `y` that is a number or an array needs their names.
 * Groups, blocks and samples with `p` cannot go into a block. Owns its columns; memory is reused
 * from block to block.
 *
 * Thread: the caller's. */
#ifndef FR_TOOL_BLOCK_WRITER_H
#define FR_TOOL_BLOCK_WRITER_H

#include "samples/transcode.h"

struct fr_tool_block;

/* labels: "click,buy", or NULL; copied. */
struct fr_tool_block *fr_tool_block_new(const char *labels);
void fr_tool_block_free(struct fr_tool_block *block);
/* Adds the sample whose tokens fr_tool_transcode just left in the transcoder. FR_E_INVALID: the
 * sample cannot go into a block, and the block is unchanged. */
enum fr_status fr_tool_block_add(struct fr_tool_block *block, const struct fr_tool_transcoder *sample,
                                 struct fr_err *err) FR_MUST_CHECK;
/* Appends the block and empties it. */
void fr_tool_block_write(struct fr_tool_block *block, bool json, struct fr_buffer *out);

#endif
