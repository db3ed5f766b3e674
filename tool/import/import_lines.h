/* JSON Lines of rows and of dense parameters: the files that `freshet import` reads, and the public
 * dump that `freshet dump` prints. Private to tool.
 *
 *     {"key":"17","parts":{"v":[0.1,0.2]}}          a row of the table that was named with the file
 *     {"id":"sku-7","slot":"item_id","parts":{..}}  the key by a raw id, as samples carry it
 *     .. "seen_ms":1767225600000,"show":12,"click":3,"state":{"v":[..]}
 *     {"dense":"h/0/kernel","shape":[2,3],"values":[..]}
 *     .. "state":[[..],[..]],"samples":64000         of its optimizer, each as long as values
 *     {"rows":2}                                    the last line, where files must be closed
 *     {"tl":1,"epoch":812,..}                       the last line of a dump (codec/dump.h)
 *
 * The keys of a line come in any order. A row has all parts of its table; `slot` is needed where
 * the table's slots make different keys of one id; `state` is the optimizer's, part by part.
 *
 * Every number is finite and within what training keeps (ops/row.h). Thread: one. */
#ifndef FR_TOOL_IMPORT_LINES_H
#define FR_TOOL_IMPORT_LINES_H

#include "base/buffer.h"
#include "batch/rows.h"
#include "codec/dump.h"
#include "durable/image.h"

struct fr_tool_import_row {
    uint32_t table;
    uint64_t key;
    struct fr_row_head head;
    /* values and optimizer state of all parts; valid until the visitor returns */
    const float *floats;
};
struct fr_tool_import_dense {
    char name[160];
    uint32_t n_dims, shape[2];
    uint64_t n_values;
    const float *values; /* valid until the visitor returns */
    /* [n_states][n_values], valid until the visitor returns; NULL: not given */
    const float *state;
    uint32_t n_states;
    uint64_t samples; /* samples for which the parameter was stepped */
};

struct fr_tool_import_end {
    struct fr_dump_end end;
    uint64_t hash;
};

/* An error that a visitor reports is completed with the file and the line. */
struct fr_tool_import_visitor {
    void *self;
    enum fr_status (*row)(void *self, const struct fr_tool_import_row *row, struct fr_err *err);
    enum fr_status (*dense)(void *self, const struct fr_tool_import_dense *dense, struct fr_err *err);
};

struct fr_tool_import_file {
    const char *path;
    /* Receives the last line and the hash of all lines before it, which is checked; valid after
     * FR_OK. NULL: the file is not a public dump. */
    struct fr_tool_import_end *dump;
    /* The table of the file's rows; FR_NO_INDEX: a file of dense parameters. In a dump each row
     * names its table. */
    int32_t table;
    int64_t seen_ms; /* `seen` of rows that do not give it */
    bool closed;     /* the last line must give the number of lines before it */
};

/* Visits the lines in order. Errors: FR_E_INVALID and the visitors' errors, with file and line
 * (from 1) in err; FR_E_NOT_FOUND, FR_E_IO, FR_E_CORRUPT for the file, also if a dump does not
 * match its hash. */
enum fr_status fr_tool_import_read(const struct fr_tool_import_file *file, const struct fr_conf *conf,
                                   const struct fr_row_layout *layouts, const struct fr_tool_import_visitor *visitor,
                                   struct fr_err *err) FR_MUST_CHECK;

#endif
