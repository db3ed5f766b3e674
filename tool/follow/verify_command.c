/* `freshet verify`: do replicas serve what the daemon holds? The public dump of the state directory
 * is compared byte by byte with that of a replica built from the topic, or with a dump that a
 * replica wrote. Read-only. A running state is compared as of its newest durable epoch, and the
 * topic is then read up to that epoch.
 *
 * The replica's dump is in an unnamed temporary file (TMPDIR), so that neither side is held in
 * memory as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "follow/patience.h"
#include "output.h"
#include "state/state_reader.h"
#include "tool.h"

enum {
    SHOWN_BYTES = 2000,
    CLOSING_LINE_MAX = 4096,
};

static const char usage[] =
    "freshet verify --state-dir D --brokers B --topic T [--snapshot DIR] [--model NAME] [--kafka-file FILE]\n"
    "               [--kafka NAME=VALUE]...\n"
    "freshet verify --state-dir D --replica DUMP\n\n"
    "Compares the state's public dump with that of a replica built from the topic, or with a replica's dump.\n"
    "Last line `verified: timeline 1 epoch 812 rows 90213 dense 12 hash 0x..` and exit 0; else the first difference,\n"
    "`behind: ..` or `nothing to verify`, and exit 1. Drain the daemon first: its last epoch publishes everything.\n";

/* ---- the closing line of a dump ---- */

struct closing {
    uint64_t timeline, epoch;
};

static bool read_field(struct fr_cursor *cursor, struct closing *out, unsigned *found)
{
    struct fr_token name, value;
    if (fr_cursor_next(cursor, &name) != FR_OK || name.kind != FR_TOKEN_STRING)
        return false;
    bool is_tl = name.size == 2 && memcmp(name.bytes, "tl", 2) == 0;
    bool is_epoch = name.size == 5 && memcmp(name.bytes, "epoch", 5) == 0;
    if (fr_cursor_next(cursor, &value) != FR_OK)
        return false;
    if ((is_tl || is_epoch) && value.kind == FR_TOKEN_UINT) {
        *(is_tl ? &out->timeline : &out->epoch) = value.u;
        *found |= is_tl ? 1u : 2u;
    }
    return true;
}

/* Seeks to the last line, reads it and rewinds. */
static enum fr_status read_closing(FILE *file, const char *name, struct closing *out, struct fr_err *err)
{
    char text[CLOSING_LINE_MAX];
    long size = -1;
    if (fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size < 0 || fseek(file, size > CLOSING_LINE_MAX ? size - CLOSING_LINE_MAX : 0, SEEK_SET) != 0)
        return fr_err_set(err, FR_E_IO, "reading %s: %s", name, strerror(errno));
    size_t n = fread(text, 1, sizeof(text), file);
    rewind(file);
    if (n < 2 || text[n - 1] != '\n')
        return fr_err_set(err, FR_E_INVALID, "%s is not a whole dump: its last line does not end", name);
    size_t begin = n - 1;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    struct fr_cursor cursor;
    struct fr_token token;
    struct fr_buffer scratch = {0};
    unsigned found = 0;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, text + begin, n - 1 - begin, &scratch);
    if (fr_cursor_next(&cursor, &token) == FR_OK && token.kind == FR_TOKEN_MAP)
        while (found != 3 && read_field(&cursor, out, &found)) {
        }
    fr_buffer_release(&scratch);
    if (found == 3)
        return FR_OK;
    return fr_err_set(err, FR_E_INVALID, "%s is not a whole dump: its last line names no timeline and epoch", name);
}

/* ---- comparing ---- */

struct comparison {
    FILE *replica;
    struct fr_buffer line; /* the line of the state's dump that is being compared */
    struct fr_buffer other;
    uint64_t lines;
    bool different;
};

static void show(const char *whose, const struct fr_buffer *line)
{
    int size = (int)(line->size > SHOWN_BYTES ? SHOWN_BYTES : line->size);
    if (size > 0 && line->data[size - 1] == '\n')
        size--;
    printf("%s: %.*s%s\n", whose, size, size > 0 ? (const char *)line->data : "",
           line->size > SHOWN_BYTES ? " .." : "");
}

static void read_other(struct comparison *comparison)
{
    int c;
    fr_buffer_clear(&comparison->other);
    while ((c = getc_unlocked(comparison->replica)) != EOF) {
        fr_put_u8(&comparison->other, (uint8_t)c);
        if (c == '\n')
            break;
    }
}

static void compare_line(struct comparison *comparison)
{
    read_other(comparison);
    comparison->lines++;
    const struct fr_buffer *a = &comparison->line, *b = &comparison->other;
    if (a->size == b->size && memcmp(a->data, b->data, a->size) == 0)
        return;
    comparison->different = true;
    printf("line %" PRIu64 " differs\n", comparison->lines);
    show("state", a);
    show("replica", b);
}

/* Compares bytes of the state's dump; returns non-zero at the first difference, which ends the
 * dump. */
static int compare_bytes(void *self, const void *bytes, size_t size)
{
    struct comparison *comparison = self;
    const uint8_t *at = bytes, *end = at + size;
    while (at < end && !comparison->different) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *stop = newline ? newline + 1 : end;
        fr_buffer_append(&comparison->line, at, (size_t)(stop - at));
        at = stop;
        if (newline) {
            compare_line(comparison);
            fr_buffer_clear(&comparison->line);
        }
    }
    return comparison->different;
}

static int compare(const struct fr_tool_state *state, FILE *replica, struct fr_err *err)
{
    struct comparison comparison = {.replica = replica};
    struct fr_tool_state_summary summary = {0};
    enum fr_status status = fr_tool_state_dump_public(state, compare_bytes, &comparison, &summary, err);
    if (status == FR_OK && getc(replica) != EOF) {
        printf("the replica's dump continues after line %" PRIu64 "\n", comparison.lines);
        comparison.different = true;
    }
    int result = FR_TOOL_FAILED;
    if (comparison.different)
        printf("different: timeline %" PRIu64 " epoch %" PRIu64 ", first at line %" PRIu64 "\n", state->status.timeline,
               state->status.epoch, comparison.lines);
    else if (status != FR_OK)
        (void)fr_tool_fail("verify", err);
    else {
        printf("verified: timeline %" PRIu64 " epoch %" PRIu64 " rows %" PRIu64 " dense %" PRIu64 " hash 0x%016" PRIx64
               "\n",
               state->status.timeline, state->status.epoch, state->n_rows, summary.n_dense, summary.hash);
        result = FR_TOOL_OK;
    }
    fr_buffer_release(&comparison.line);
    fr_buffer_release(&comparison.other);
    return result;
}

static int compare_if_same_epoch(const struct fr_tool_state *state, FILE *replica, const char *name, struct fr_err *err)
{
    struct closing closing = {0};
    if (read_closing(replica, name, &closing, err) != FR_OK)
        return fr_tool_fail("verify", err);
    if (closing.epoch == state->status.epoch && closing.timeline == state->status.timeline)
        return compare(state, replica, err);
    bool behind = closing.timeline < state->status.timeline ||
                  (closing.timeline == state->status.timeline && closing.epoch < state->status.epoch);
    printf("%s: replica at epoch %" PRIu64 ", state at %" PRIu64 " (timelines %" PRIu64 " and %" PRIu64 ")\n",
           behind ? "behind" : "ahead", closing.epoch, state->status.epoch, closing.timeline, state->status.timeline);
    return FR_TOOL_FAILED;
}

/* ---- a replica from the topic ---- */

/* Reads up to the state's epoch, or to the end of the topic. */
static enum fr_status catch_up(struct fr_follower *follower, const struct fr_durable_status *state, struct fr_err *err)
{
    struct freshet_replica_info info = {0};
    struct fr_tool_patience patience = {0};
    freshet_replica_get_info(fr_follower_replica(follower), &info);
    while ((info.timeline < state->timeline || info.epoch < state->epoch) && !fr_follower_ended(follower)) {
        struct fr_followed followed = {0};
        enum fr_status status = fr_tool_follow_step(follower, &patience, "verify", &followed, err);
        if (status == FR_AGAIN)
            continue;
        if (followed.refused)
            fprintf(stderr, "freshet verify: refused partition=%" PRId32 " offset=%" PRId64 ": %s\n",
                    followed.partition, followed.offset, followed.problem);
        if (status != FR_OK)
            return status;
        freshet_replica_get_info(fr_follower_replica(follower), &info);
    }
    return FR_OK;
}

/* Prints "behind: ..", and the loss that explains it. */
static void explain_behind(const struct fr_follower *follower, const struct freshet_replica_info *served,
                           const struct fr_durable_status *state)
{
    struct fr_err lost = {0};
    bool behind =
        served->timeline < state->timeline || (served->timeline == state->timeline && served->epoch < state->epoch);
    if (behind && fr_follower_lacks(follower, &lost))
        (void)fr_tool_fail("verify", &lost);
}

static int verify_topic(const struct fr_tool_state *state, const struct fr_follower_options *from, struct fr_err *err)
{
    struct fr_follower *follower = NULL;
    FILE *dump = NULL;
    int result = FR_TOOL_FAILED;
    enum fr_status status = fr_follower_open(from, &follower, err);
    if (status == FR_OK)
        status = catch_up(follower, &state->status, err);
    if (status != FR_OK) {
        (void)fr_tool_fail("verify", err);
        goto out;
    }
    struct freshet_replica_info info;
    freshet_replica_get_info(fr_follower_replica(follower), &info);
    if (info.epoch == 0) {
        if (!fr_follower_lacks(follower, err)) {
            printf("behind: replica at epoch 0, state at %" PRIu64 "\n", state->status.epoch);
            (void)fr_follower_unserved(follower, err);
        }
        (void)fr_tool_fail("verify", err);
        goto out;
    }
    dump = tmpfile();
    if (!dump || freshet_replica_dump(fr_follower_replica(follower), fr_tool_write_file, dump, NULL) != FRESHET_OK ||
        fflush(dump) != 0) {
        fprintf(stderr, "freshet verify: writing the replica's dump to a temporary file: %s\n", strerror(errno));
        goto out;
    }
    result = compare_if_same_epoch(state, dump, "the replica's dump", err);
    explain_behind(follower, &info, &state->status);
out:
    if (dump)
        (void)fclose(dump);
    fr_follower_close(follower);
    return result;
}

static int verify_dump(const struct fr_tool_state *state, const char *path, struct fr_err *err)
{
    FILE *dump = fopen(path, "r");
    if (!dump) {
        fprintf(stderr, "freshet verify: opening %s: %s\n", path, strerror(errno));
        return FR_TOOL_FAILED;
    }
    int result = compare_if_same_epoch(state, dump, path, err);
    (void)fclose(dump);
    return result;
}

static int verify(const char *dir, const char *replica, const struct fr_follower_options *from)
{
    struct fr_err err = {0};
    struct fr_tool_state *state = NULL;
    if (fr_tool_state_open(dir, FR_STATE_PUBLIC, &state, &err) != FR_OK)
        return fr_tool_fail("verify", &err);
    int result = FR_TOOL_FAILED;
    if (state->n_rows == 0)
        printf("nothing to verify: the state at epoch %" PRIu64 " holds 0 rows\n", state->status.epoch);
    else
        result = replica ? verify_dump(state, replica, &err) : verify_topic(state, from, &err);
    fr_tool_state_close(state);
    return fflush(stdout) == 0 ? result : FR_TOOL_FAILED;
}

int fr_tool_verify(int argc, char **argv)
{
    const char *dir = NULL, *replica = NULL;
    const char *properties[FR_FOLLOW_PROPERTIES_MAX];
    struct fr_follower_options from = {.topic.properties = properties};
    const struct fr_tool_option options[] = {
        {.name = "--state-dir", .value = &dir, .required = true},
        FR_TOOL_TOPIC_OPTIONS(from.topic, properties, false),
        {.name = "--replica", .value = &replica},
        {.name = "--snapshot", .value = &from.snapshots},
        {.name = "--model", .value = &from.model},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    bool from_topic = from.topic.brokers && from.topic.topic;
    if ((replica != NULL) == from_topic ||
        (replica && (from.topic.brokers || from.topic.topic || from.snapshots || from.model))) {
        fprintf(stderr, "freshet verify: give either --brokers and --topic, or --replica\n\n%s", usage);
        return FR_TOOL_USAGE;
    }
    return verify(dir, replica, &from);
}
