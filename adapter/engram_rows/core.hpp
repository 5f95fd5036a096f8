// What the engines of core.cpp share: a table, a batch of wanted rows, and how a block that was read is given out.

#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#ifdef SPARKD_LIBURING
#include <liburing.h>
#endif

namespace {

constexpr size_t kBlock = 4096;
constexpr int kBuckets = 128;
// Four buckets to a doubling, the first one from a microsecond.
constexpr int kBucketsPerDoubling = 4;
constexpr int kNotAsAsked = 75;

enum Code { kOk = 0, kShort = 1, kErrno = 2, kLate = 3, kNoSuchRow = 4 };

using Clock = std::chrono::steady_clock;

struct Result {
    int32_t code;
    int32_t error;
    int64_t row;
    int64_t bytes;
};

struct Stats {
    uint64_t reads, rows, batches, errors, deepest;
    uint64_t buckets[kBuckets];
};

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<unsigned char, Free>;

Buffer aligned(size_t bytes) {
    void *memory = nullptr;
    if (posix_memalign(&memory, kBlock, bytes) != 0) throw std::bad_alloc();
    return Buffer(static_cast<unsigned char *>(memory));
}

int bucket(Clock::duration took) {
    double micros = std::chrono::duration<double, std::micro>(took).count();
    int found = 0;
    for (double edge = 1.0; found < kBuckets - 1 && micros >= edge; ++found) edge *= 1.189207115002721;
    return found;
}
static_assert(kBucketsPerDoubling == 4, "the factor above is the fourth root of two");

struct Want {
    int64_t row;
    size_t place;
};

// Rows of one block.
struct Job {
    int64_t block;
    size_t first, count;
};

struct Batch {
    std::vector<Want> wants;
    std::vector<Job> jobs;
    unsigned char *out = nullptr;
    std::atomic<size_t> next{0};
    size_t left = 0;
    std::vector<bool> ended;
    bool over = false;
    Result result{kOk, 0, -1, 0};
    std::mutex mutex;
    std::condition_variable done;
};

struct Table {
    int descriptor = -1;
    int64_t rows = 0, row_bytes = 0, rows_per_block = 0;
    int depth = 0;
    std::mutex stats_mutex;
    Stats stats{};

    // Of the threads.
    std::mutex mutex;
    std::condition_variable work;
    std::deque<std::shared_ptr<Batch>> queue;
    bool closing = false;
    std::vector<std::thread> threads;

    // Of io_uring; batches take turns.
    std::mutex turn;
    bool uring = false;
#ifdef SPARKD_LIBURING
    io_uring ring{};
#endif
};

void count(Table &table, Clock::duration took, size_t rows) {
    std::lock_guard<std::mutex> hold(table.stats_mutex);
    ++table.stats.reads;
    table.stats.rows += rows;
    ++table.stats.buckets[bucket(took)];
}

// Under the batch's mutex: which row is still waited for.
Result late(const Batch &batch) {
    size_t index = 0;
    while (index + 1 < batch.jobs.size() && batch.ended[index]) ++index;
    return Result{kLate, 0, batch.wants[batch.jobs[index].first].row, static_cast<int64_t>(batch.left)};
}

// Under the batch's mutex: the rows of a block that was read, or what went wrong.
void settle(Table &table, Batch &batch, const Job &job, const unsigned char *block, ssize_t got, int error) {
    if (batch.over) return;
    batch.ended[&job - batch.jobs.data()] = true;
    size_t needed = 0;
    for (size_t index = job.first; index < job.first + job.count; ++index)
        needed = std::max<size_t>(needed, (batch.wants[index].row % table.rows_per_block + 1) * table.row_bytes);
    if (got < 0 || static_cast<size_t>(got) < needed) {
        if (batch.result.code == kOk)
            batch.result = Result{got < 0 ? kErrno : kShort, error, batch.wants[job.first].row, got};
    } else {
        for (size_t index = job.first; index < job.first + job.count; ++index) {
            const Want &want = batch.wants[index];
            std::memcpy(
                batch.out + want.place * table.row_bytes,
                block + (want.row % table.rows_per_block) * table.row_bytes, table.row_bytes
            );
        }
    }
    if (--batch.left == 0) {
        batch.over = true;
        batch.done.notify_all();
    }
}

}  // namespace
