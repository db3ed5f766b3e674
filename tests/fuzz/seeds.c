/* Seeds by our own writers: `fuzz_seeds DIR` writes replica, state, journal and ranks below DIR, a
 * file each (the head of each target says what it reads). What Python can make as well is in
 * seeds.py. */
#include "../unit/replica/history.h"
#include "rank_scene.h"

#include <math.h>
#include <sys/stat.h>

#include "durable/durable.h"
#include "durable/epoch.h"
#include "fuzz.h"
#include "ingest/positions.h"
#include "journal.h"
#include "metrics/task.h"
#include "seal.h"
#include "store/section.h"
#include "trainer/section.h"
#include "epoch_bytes.h"

enum { SALT = 5, SEAL = 9, JOURNAL_EPOCHS = 4 };

static const char *below;

static void write_seed(const char *name, const struct fr_buffer *bytes)
{
    char path[512];
    FILE *file;
    snprintf(path, sizeof(path), "%s/%s", below, name);
    file = fopen(path, "wb");
    FR_CHECK(file != NULL);
    FR_CHECK(fwrite(bytes->data, 1, bytes->size, file) == bytes->size);
    FR_CHECK(fclose(file) == 0);
}

/* ---- replica ---- */

static void put_records(struct fr_buffer *out, const struct history *h, size_t from)
{
    for (size_t i = from; i < h->n_topic; i++) {
        uint16_t size = (uint16_t)(h->topic[i].size - SEAL);
        FR_CHECK(size + (size_t)SEAL == h->topic[i].size);
        fr_buffer_append(out, &size, sizeof(size));
        fr_put_u8(out, (uint8_t)h->topic[i].partition);
        fr_buffer_append(out, h->topic[i].bytes, size);
    }
}

/* Histories of 1 to 4 epochs: within the memory limit or not, with a merged epoch, a rewind to
 * nothing, another model. */
static void replica_seeds(void)
{
    char name[32], other[sizeof(model_cfg)];
    strcpy(other, model_cfg);
    strstr(other, "\"max_len\":5")[strlen("\"max_len\":")] = '6';
    for (int way = 0; way < 8; way++) {
        struct fr_buffer out = {0};
        struct history *h = history_new(0);
        fr_put_u8(&out, way & 1);
        for (int e = 1; e <= 1 + way / 2; e++) {
            history_change(h, 6);
            if (e == 3)
                history_cfg(h, other);
            history_write(h, &(struct write_options){.model = e == 1 || e == 3,
                                                     .from = way == 7 && e == 2 ? 1 : 0,
                                                     .set_previous = way == 7 && e == 2});
        }
        if (way == 2 || way == 4) {
            h->timeline = 2;
            h->epoch = h->digest = 0;
            history_write(h, &(struct write_options){.model = true, .rewind = &(struct fr_delta_rewind){.snap = ""}});
        }
        put_records(&out, h, 0);
        snprintf(name, sizeof(name), "replica/history-%d", way);
        write_seed(name, &out);
        fr_buffer_release(&out);
        history_free(h);
    }
}

/* ---- sections ---- */

static void put_announcement(struct fr_buffer *out)
{
    static struct fr_announced_offset offsets[2] = {{"samples", 0, 100}, {"samples", 1, 90}};
    struct fr_announcement announcement = {.watermark_ms = 1700000000000,
                                           .samples = 190,
                                           .wall_ms = 1700000000001,
                                           .publish_model = true,
                                           .n_tasks = 1,
                                           .tasks = {{"click", 0.75}},
                                           .n_offsets = 2,
                                           .offsets = offsets};
    fr_announcement_encode(&announcement, out);
}

static void put_metrics(struct fr_buffer *out)
{
    struct fr_metrics_section section = {.n_tasks = 1, .tasks = {{"click", 1000}}};
    fr_metrics_section_encode(&section, out);
}

static void put_positions(struct fr_buffer *out)
{
    struct fr_positions positions = {.cluster_id = "cluster"};
    for (int32_t p = 0; p < 2; p++) {
        uint32_t index = fr_positions_index(&positions, "samples", p);
        positions.partitions[index].offset = 100 + p;
    }
    positions.partitions[1].n_skips = 1;
    positions.partitions[1].skips[0] = (struct fr_skip){90, 200};
    fr_positions_encode(&positions, out);
    fr_positions_release(&positions);
}

static void put_task(struct fr_buffer *out)
{
    static const struct fr_task_metrics_options options = {
        .n_half_lives = 2, .half_life_ms = {300000, 3600000}, .gauc_groups_max = 100};
    float scores[] = {0.1f, 0.7f, 0.4f, 0.8f}, labels[] = {0, 1, 1, 0}, weights[] = {1, 1, 2, 1};
    uint8_t use[] = {3, 3, 3, 3};
    int64_t t[] = {1000, 1001, 1002, 1003};
    uint32_t group_begin[] = {0, 1, 2, 3, 4};
    uint64_t group_keys[] = {7, 7, 8, 8};
    struct fr_task_metrics *metrics = fr_task_metrics_new(&options);
    fr_task_metrics_add(metrics, &(struct fr_task_samples){.count = 4,
                                                           .scores = scores,
                                                           .labels = labels,
                                                           .weights = weights,
                                                           .use = use,
                                                           .t_ms = t,
                                                           .watermark_ms = 1000,
                                                           .group_begin = group_begin,
                                                           .group_keys = group_keys});
    fr_task_metrics_encode(metrics, out);
    fr_task_metrics_free(metrics);
}

static void put_trainer(struct fr_buffer *out)
{
    struct fr_trainer_history history = {.watermark_ms = 1700000000000, .n_tasks = 1, .tasks = {{"click", 190, 0}}};
    fr_trainer_section_encode(&history, out);
}

static void put_store(struct fr_buffer *out)
{
    struct fr_carried_key carried[2] = {{.key = 1, .seen_ms = 5, .table = 0, .count = 2},
                                        {.key = 2, .seen_ms = 5, .table = 1, .count = 1}};
    struct fr_store_section_table tables[2] = {0};
    struct fr_store_section section = {.n_tables = 2, .tables = tables, .n_carried = 2, .carried = carried};
    fr_store_section_encode(&section, out);
}

static const struct {
    const char *name;
    void (*put)(struct fr_buffer *out);
} sections[] = {{"announce", put_announcement}, {"metrics", put_metrics}, {"metrics/click", put_task},
                {"positions", put_positions},   {"store", put_store},     {"trainer", put_trainer}};

/* ---- epochs ---- */

static void stage_epoch(struct fr_stage *stage, uint64_t number)
{
    static const float kernel[6] = {1, 2, 3, 4, 5, 6};
    fr_stage_clear(stage);
    stage->epoch = number;
    stage->timeline = 1;
    for (uint64_t key = 0; key < 4; key++) {
        struct fr_image image = {.key = fr_fmix64(key + number), .table = key & 1, .kind = FR_IMAGE_ROW, .size = 24};
        memset(fr_stage_image(stage, &image), (int)key, image.size);
    }
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
        sections[i].put(fr_stage_section(stage, sections[i].name));
    fr_dense_stage(stage, &(struct fr_dense_view){
                              .name = "z/kernel", .n_dims = 2, .shape = {3, 2}, .n_values = 6, .values = kernel});
}

static void state_seeds(void)
{
    struct fr_buffer out = {0};
    struct history *h = history_new(0);
    char name[64];
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        fr_buffer_clear(&out);
        sections[i].put(&out);
        snprintf(name, sizeof(name), "state/section-%zu", i);
        write_seed(name, &out);
    }
    fr_buffer_clear(&out);
    fr_codec_settings_encode(&h->settings, &out);
    out.size -= sizeof(uint32_t); /* its crc is the target's to make */
    write_seed("state/settings", &out);
    fr_buffer_clear(&out);
    fr_buffer_append(&out, model_cfg, strlen(model_cfg));
    write_seed("state/model.json", &out);
    fr_buffer_clear(&out);
    fr_buffer_printf(&out, "{\"slots\":[{\"\":1,\"a\":1,\"a\":2}]}");
    write_seed("state/keys.json", &out);
    history_free(h);
    fr_buffer_release(&out);
}

static void journal_seeds(void)
{
    struct fr_buffer file = {0}, epoch = {0};
    struct fr_order order = fr_order_of(SALT);
    struct fr_sha256 previous = {{0}};
    struct fr_stage stage;
    static const uint32_t version_and_sizes[] = {FR_STATE_FORMAT, 3, 1, 0};
    fr_stage_init(&stage);
    fr_buffer_append(&file, "FRJOURNL", 8);
    fr_buffer_append(&file, version_and_sizes, sizeof(version_and_sizes));
    fr_buffer_append(&file, "abc\0\0\0\0", 7); /* the crc is the target's to make */
    for (uint64_t number = 1; number <= JOURNAL_EPOCHS; number++) {
        char name[32];
        struct fr_epoch view;
        stage_epoch(&stage, number);
        fr_buffer_clear(&epoch);
        (void)fr_buffer_reserve(&epoch, JOURNAL_RECORD_HEAD);
        epoch.size = JOURNAL_RECORD_HEAD;
        encode_epoch(&stage, &order, &previous, &epoch);
        seal_record(epoch.data, epoch.size - JOURNAL_RECORD_HEAD);
        FR_CHECK(fr_epoch_parse(epoch.data + JOURNAL_RECORD_HEAD, epoch.size - JOURNAL_RECORD_HEAD, &view) == FR_OK);
        previous = view.digest;
        fr_buffer_append(&file, epoch.data, epoch.size);
        snprintf(name, sizeof(name), "journal/file-%llu", (unsigned long long)number);
        write_seed(name, &file);
        struct fr_buffer alone = {.data = epoch.data + JOURNAL_RECORD_HEAD, .size = epoch.size - JOURNAL_RECORD_HEAD};
        snprintf(name, sizeof(name), "state/epoch-%llu", (unsigned long long)number);
        write_seed(name, &alone);
    }
    fr_stage_release(&stage);
    fr_buffer_release(&file);
    fr_buffer_release(&epoch);
}

/* ---- ranks ---- */

/* A message, and what is left of it when it is cut at each multiple of 4 bytes. */
static void rank_seed(enum rank_message kind, const void *bytes, size_t size)
{
    static const char *const names[] = {RANK_MESSAGES(RANK_MESSAGE_TEXT)};
    static uint32_t number;
    struct fr_buffer out = {0};
    char path[64];
    number++;
    for (size_t cut = 0; cut < size + 4; cut += 4) {
        fr_buffer_clear(&out);
        fr_put_u8(&out, (uint8_t)kind);
        fr_buffer_append(&out, bytes, cut < size ? cut : size);
        snprintf(path, sizeof(path), "ranks/%s-%u-%zu", names[kind], number, out.size - 1);
        write_seed(path, &out);
    }
    fr_buffer_release(&out);
}

static void rank_seeds_of(const struct scene *scene, uint32_t to)
{
    const struct scene_rank *from = &scene->ranks[SCENE_FROM];
    const struct fr_buffer *const messages[] = {&from->keys[to], &from->values[to], &from->row_sums[to]};
    static const enum rank_message kinds[] = {MESSAGE_KEYS, MESSAGE_ROWS, MESSAGE_ROW_SUMS};
    for (size_t i = 0; i < FR_ARRAY_LEN(kinds); i++)
        rank_seed(kinds[i], messages[i]->data, messages[i]->size);
}

/* Messages of rank SCENE_FROM, for all homes and sources: those that are not for rank SCENE_TO have
 * another number of keys. */
static void rank_seeds(void)
{
    static struct scene *scene; /* stays */
    scene = scene_new();
    struct scene_rank *from = &scene->ranks[SCENE_FROM];
    struct fr_roll rolls[SCENE_RANKS];
    const float *scores[FR_TASKS_MAX];
    for (uint32_t r = 0; r < SCENE_RANKS; r++) {
        rolls[r] = scene->ranks[r].roll;
        rank_seeds_of(scene, r);
    }
    rank_seed(MESSAGE_SUMS, from->sums[SCENE_TO].data, from->sums[SCENE_TO].size);
    rank_seed(MESSAGE_SAMPLES, from->samples.data, from->samples.size);
    /* of a job whose metrics have no groups */
    for (uint32_t t = 0; t < from->fx.conf.n_tasks; t++)
        scores[t] = fr_graph_logits(from->graph, t);
    from->fx.conf.metrics.gauc_by = FR_NO_INDEX;
    fr_buffer_clear(&from->samples);
    fr_rank_samples_put(&from->fx.conf, &from->fx.batch, scores, &from->samples);
    rank_seed(MESSAGE_SAMPLES, from->samples.data, from->samples.size);
    rank_seed(MESSAGE_TIMES, from->t_ms, from->fx.batch.n_samples * sizeof(*from->t_ms));
    rank_seed(MESSAGE_ROLLS, rolls, sizeof(rolls));
}

int main(int argc, char **argv)
{
    static const char *const folders[] = {"replica", "state", "journal", "ranks"};
    FR_CHECK(argc == 2);
    below = argv[1];
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", below, folders[i]);
        (void)mkdir(path, 0700);
    }
    replica_seeds();
    state_seeds();
    journal_seeds();
    rank_seeds();
    return 0;
}
