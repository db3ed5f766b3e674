/* The C interface as C++ objects that free what they own: a thin, header-only layer over
 * freshet/reader.h and freshet/follow.h. A call that fails throws freshet::error, whose code is an
 * enum freshet_status. The C headers describe each call, its shapes and its threads. */
#ifndef FRESHET_FRESHET_HPP
#define FRESHET_FRESHET_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "freshet/follow.h"

namespace freshet
{

struct error : std::runtime_error {
    error(int status, const std::string &text) : std::runtime_error(text), code(status)
    {
    }
    int code;
};

inline void check(int status, const char *what)
{
    if (status != FRESHET_OK)
        throw error(status, what);
}

/* The result of a lookup: row i is values[i * dim] .. values[(i + 1) * dim - 1], and found[i] is
 * 1 if the row exists. */
struct rows {
    std::uint32_t dim;
    std::vector<float> values;
    std::vector<std::uint8_t> found;
};

/* Used by one thread at a time. */
class reader
{
    std::unique_ptr<freshet_reader, decltype(&freshet_reader_free)> handle{nullptr, freshet_reader_free};

  public:
    explicit reader(freshet_replica *replica)
    {
        freshet_reader *made = nullptr;
        check(freshet_reader_new(replica, &made), "freshet_reader_new");
        handle.reset(made);
    }
    freshet_reader *get() const
    {
        return handle.get();
    }

    freshet_replica_info info() const
    {
        freshet_replica_info out;
        freshet_reader_get_info(get(), &out);
        return out;
    }
    /* Scores at most `room` samples; the result is [samples * tasks]. */
    std::vector<float> score(const std::string &record, std::uint32_t room = 1,
                             freshet_format format = FRESHET_JSON) const
    {
        std::vector<float> scores(static_cast<std::size_t>(room) * freshet_reader_tasks(get()));
        int status = freshet_reader_score(get(), format, record.data(), record.size(), scores.data(), &room);
        check(status, freshet_reader_problem(get()));
        scores.resize(static_cast<std::size_t>(room) * freshet_reader_tasks(get()));
        return scores;
    }
    rows lookup(const std::string &table, const std::vector<std::uint64_t> &keys, const char *part = nullptr) const
    {
        rows out{0, {}, std::vector<std::uint8_t>(keys.size())};
        freshet_lookup ask = {table.c_str(), part, keys.data(), 0, out.found.data(), nullptr, 0, 0};
        /* sets ask.dim, the width of a row */
        check(freshet_reader_lookup(get(), &ask), "freshet_reader_lookup");
        out.values.resize(keys.size() * ask.dim);
        ask.n = keys.size();
        ask.values = out.values.data();
        ask.capacity = out.values.size();
        check(freshet_reader_lookup(get(), &ask), "freshet_reader_lookup");
        out.dim = ask.dim;
        return out;
    }
    std::uint64_t key(const std::string &slot, const std::string &id) const
    {
        std::uint64_t out = 0;
        check(freshet_reader_key(get(), slot.c_str(), id.data(), id.size(), &out), "freshet_reader_key");
        return out;
    }
};

/* While this object lives, every call of the reader reads the same epoch. */
class epoch
{
    const reader &held;

  public:
    explicit epoch(const reader &r) : held(r)
    {
        check(freshet_reader_begin(r.get()), "nothing is served yet");
    }
    ~epoch()
    {
        freshet_reader_end(held.get());
    }
    epoch(const epoch &) = delete;
    epoch &operator=(const epoch &) = delete;
};

/* Needs libfreshet_follow at link time. Destroy its readers first. */
class follow
{
    std::unique_ptr<freshet_follow, decltype(&freshet_follow_stop)> handle{nullptr, freshet_follow_stop};

  public:
    explicit follow(const freshet_follow_options &options)
    {
        char problem[512];
        freshet_follow *made = nullptr;
        check(freshet_follow_start(&options, &made, problem, sizeof(problem)), problem);
        handle.reset(made);
    }
    bool wait(std::uint64_t epoch, std::chrono::milliseconds timeout) const
    {
        int status = freshet_follow_wait(handle.get(), epoch, static_cast<int>(timeout.count()));
        if (status != FRESHET_AGAIN)
            check(status, state().problem);
        return status == FRESHET_OK;
    }
    /* Waits until everything that the topic held when the call began is served; false: not
     * within the timeout (state().problem has the reason). */
    bool wait_caught_up(std::chrono::milliseconds timeout) const
    {
        int status = freshet_follow_wait_caught_up(handle.get(), static_cast<int>(timeout.count()));
        if (status != FRESHET_AGAIN)
            check(status, state().problem);
        return status == FRESHET_OK;
    }
    freshet_follow_state state() const
    {
        freshet_follow_state out;
        freshet_follow_get_state(handle.get(), &out);
        return out;
    }
    reader read() const
    {
        return reader(freshet_follow_replica(handle.get()));
    }
};

} // namespace freshet

#endif
