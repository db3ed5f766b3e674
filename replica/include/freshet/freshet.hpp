/* The C interface as C++ objects that free what they own: a page over freshet/reader.h and
 * freshet/follow.h, header only. Calls that fail throw freshet::error; its code is an enum
 * freshet_status. What each call does, its shapes and its threads, stands in the C headers. */
#ifndef FRESHET_FRESHET_HPP
#define FRESHET_FRESHET_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "freshet/follow.h"

namespace freshet {

struct error : std::runtime_error {
    error(int status, const std::string &text) : std::runtime_error(text), code(status) {}
    int code;
};

inline void check(int status, const char *what)
{
    if (status != FRESHET_OK)
        throw error(status, what);
}

/* What a lookup found: row i is values[i * dim] .. and found[i] says whether there is one. */
struct rows {
    std::uint32_t dim;
    std::vector<float> values;
    std::vector<std::uint8_t> found;
};

/* One thread's. */
class reader {
    std::unique_ptr<freshet_reader, decltype(&freshet_reader_free)> handle{nullptr, freshet_reader_free};

public:
    explicit reader(freshet_replica *replica)
    {
        freshet_reader *made = nullptr;
        check(freshet_reader_new(replica, &made), "freshet_reader_new");
        handle.reset(made);
    }
    freshet_reader *get() const { return handle.get(); }

    freshet_replica_info info() const
    {
        freshet_replica_info out;
        freshet_reader_get_info(get(), &out);
        return out;
    }
    /* `room` samples at most; scores are [samples * tasks]. */
    std::vector<float> score(const std::string &record, std::uint32_t room = 1, freshet_format format = FRESHET_JSON) const
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
        check(freshet_reader_lookup(get(), &ask), "freshet_reader_lookup"); /* the width */
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

/* All calls of the reader are of one epoch while it lives. */
class epoch {
    const reader &held;

public:
    explicit epoch(const reader &r) : held(r) { check(freshet_reader_begin(r.get()), "nothing is served yet"); }
    ~epoch() { freshet_reader_end(held.get()); }
    epoch(const epoch &) = delete;
    epoch &operator=(const epoch &) = delete;
};

/* Links libfreshet_follow. Its readers go before it. */
class follow {
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
    /* All that the topic held at the call is served; false: not in that time (state().problem). */
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
    reader read() const { return reader(freshet_follow_replica(handle.get())); }
};

} // namespace freshet

#endif
